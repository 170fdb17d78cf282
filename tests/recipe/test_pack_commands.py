"""The commands a person types: make a random pack, take it apart, bake it again."""

import subprocess
import sys
from pathlib import Path

from recipe.pack import read_pack


def _run(*arguments: object) -> str:
    command = [sys.executable, "-m", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_round_trip_on_the_command_line(tmp_path: Path) -> None:
    assert str(tmp_path / "pack") in _run("recipe.mini.random_pack", tmp_path / "pack", "--layers", 1, "--seed", 7)
    _run("recipe.mini.dequantise", tmp_path / "pack", tmp_path / "float")
    out = _run("recipe.mini.bake", tmp_path / "float", tmp_path / "again", "--mlp", 1, "--codebook", "mul1")
    assert "K=1: 3 modules, relative error 0.2" in out
    assert read_pack(tmp_path / "again").census() == {1: 3 * 256 * 512}
