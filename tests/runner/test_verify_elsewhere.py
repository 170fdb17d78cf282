"""What was signed on one machine is authentic on another, whose exp and log differ in the last bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from runner.paths import source_root

REPORTS = source_root() / "reports"
FIRST = REPORTS / "mini-lna2/20261130-091151-7339781d"
"""Two nearly equal distributions in it part by 9e-9 nats."""
NEXT_BIT = """
import math, sys
plain = {name: getattr(math, name) for name in ("exp", "log")}
def other(name):
    def moved(value):
        found = plain[name](value)
        return math.nextafter(found, math.inf) if hash(value) % 3 == 0 else found
    return moved
for name in plain:
    setattr(math, name, other(name))
from runner.cli import main
sys.argv[1:] = ["verify", "--deep", *sys.argv[1:]]
main()
"""


def verified(command: list[str], tmp_path: Path, **environment: str) -> str:
    found = subprocess.run(
        [sys.executable, *command],
        cwd=source_root(),
        env=os.environ | {"CARVE_CONFIG": str(tmp_path)} | environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return found.stdout + found.stderr


def test_on_a_processor_without_fused_products(tmp_path: Path) -> None:
    tunables = "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX"
    said = verified(["-m", "runner.cli", "verify", "--deep", str(FIRST)], tmp_path, GLIBC_TUNABLES=tunables)
    assert "authentic" in said and "REFUSED" not in said, said


def test_with_a_library_that_rounds_otherwise(tmp_path: Path) -> None:
    newest = [max((REPORTS / name).iterdir()) for name in ("mini-lna2", "mini-bake", "mini-speculation")]
    said = verified(["-c", NEXT_BIT, str(FIRST), *map(str, newest)], tmp_path)
    assert said.count("authentic") >= 4 and "REFUSED" not in said, said
