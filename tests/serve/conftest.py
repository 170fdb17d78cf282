"""Tests that need torch or vLLM are collected only where the engine is installed; those of one rank share a boot."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from serve.adapters.booted import BootedEngine
from tests.serve.engine_boot import boot, stop_clean

NEED_ENGINE = ["plugin", "witness", "adapters/test_process_engine.py", "test_cross_checks.py"]

# As on the seats; otherwise the import of vLLM compiles a helper for 13 s, with warnings that are errors here.
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")

collect_ignore = [] if find_spec("vllm") else NEED_ENGINE


def pytest_report_header() -> str:
    """Say it when tests are left out."""
    return f"engine: not installed, left out: {', '.join(collect_ignore)}" if collect_ignore else "engine: installed"


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BootedEngine]:
    """The trained pack on one rank. Each test switches to the variant it is about."""
    running = boot(tmp_path_factory.mktemp("boot") / "one")
    try:
        yield running
    finally:
        stop_clean(running)
