"""The packs that benchmarks measure on are packs: a benchmark that nobody runs for weeks still starts."""

from __future__ import annotations

from pathlib import Path

from recipe.pack import read_pack
from tests.benchmarks.overlay import FILES, make_pack


def test_the_pack_of_the_overlay_benchmark_is_one(tmp_path: Path) -> None:
    pack = read_pack(make_pack(tmp_path / "pack", FILES * (8 << 20), 1, layers=range(2)))
    assert len(pack.headers) == 2
    assert {module.bits for module in pack.modules.values()} == {2}
