"""The reference against what exllamav3 1.4.5 computed on a GPU.

The file was made on one H200 by the first committed version of ``carve_kernels.exl3.golden`` (``facts`` holds that
script's SHA-256); what it calls on the device and the cases have not changed since, or these tests would fail.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from carve_kernels.exl3 import golden, golden_check, native, trellis
from carve_kernels.exl3.codebook import Codebook, table

FILE = Path(__file__).parent / "golden" / "exllamav3-1.4.5.npz"


@pytest.fixture(scope="module")
def kept() -> dict[str, np.ndarray]:
    with np.load(FILE) as arrays:
        return dict(arrays)


def test_made_by_the_release_it_names_without_a_failed_section(kept: dict[str, np.ndarray]) -> None:
    facts = json.loads(kept["facts"].tobytes())
    assert facts["exllamav3"] == "1.4.5"
    assert "NVIDIA" in facts["device"]
    assert facts["failed_sections"] == []


def test_every_comparison_holds(kept: dict[str, np.ndarray]) -> None:
    findings = golden_check.compare(kept)
    assert len(findings) == 160
    assert [finding for finding in findings if not finding[1]] == []


@pytest.mark.parametrize("change", ["patterns/3/mcg", "table-digest/mul1", "states/5", "forward/2/mcg"])
def test_a_changed_vector_is_found(kept: dict[str, np.ndarray], change: str) -> None:
    changed = kept[change].copy()
    changed.reshape(-1)[7] += 1
    differing = [name for name, holds, _ in golden_check.compare(kept | {change: changed}) if not holds]
    assert len(differing) == 1


def test_a_missing_vector_is_found(kept: dict[str, np.ndarray]) -> None:
    without = {name: array for name, array in kept.items() if name != "states/1"}
    assert [name for name, holds, _ in golden_check.compare(without) if not holds] == ["states K=1"]


@pytest.mark.parametrize(("bits", "book"), list(golden.cases()))
def test_our_search_is_no_worse(kept: dict[str, np.ndarray], bits: int, book: Codebook) -> None:
    tiles = golden.quantise_case(book)
    weights = table(book)[native.search(tiles, bits, book)].astype(np.float64)
    theirs = table(book)[trellis.windows(kept[f"quantised/{bits}/{book.value}"])].astype(np.float64)
    assert ((weights - tiles) ** 2).mean() <= ((theirs - tiles) ** 2).mean() * 1.005
