"""What a GPU seat compiles at one boot is found at the next: no boot's own home is in the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.paths import source_root
from runner.steps.seats import load_manifest

KEYED = ("VLLM_CONFIG_ROOT", "VLLM_XLA_CACHE_PATH")
"""Of vLLM 0.26's ``envs.compile_factors`` those that lie below HOME where they are not set."""
SEATS = sorted(path.stem for path in (source_root() / "serve/seats").glob("h200-*.yaml"))


@pytest.mark.parametrize("name", SEATS)
def test_the_compile_caches_key_is_the_same_in_every_boot(name: str) -> None:
    environment = load_manifest(name).environment
    assert environment["VLLM_CACHE_ROOT"] == "{cache}"
    assert all(Path(environment[variable]).parts[0] == "{cache}" for variable in KEYED)
    assert environment["VLLM_USE_FLASHINFER_SAMPLER"] == "0", "it would be compiled at the first boot of a host"


def test_there_are_gpu_seats() -> None:
    assert {"h200-mini", "h200-mini-tp2", "h200-ds"} <= set(SEATS)
