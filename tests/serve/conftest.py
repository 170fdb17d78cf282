"""Tests that import torch or vLLM are collected only where the engine is installed."""

from __future__ import annotations

from importlib.util import find_spec

NEED_ENGINE = ["plugin", "witness", "adapters/test_process_engine.py"]

collect_ignore = [] if find_spec("vllm") else NEED_ENGINE


def pytest_report_header() -> str:
    """Say it when tests are left out."""
    return f"engine: not installed, left out: {', '.join(collect_ignore)}" if collect_ignore else "engine: installed"
