"""Killed at random points, overlay, bake, merge and patches leave all or nothing, and what goes on ends the same.

Twenty points of small work here; two hundred of work that takes a second: ``python -m tests.benchmarks.kills``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from runner.paths import source_root
from tests.recipe.works import WORKS


@pytest.mark.parametrize("name", WORKS)
def test_twenty_kills_leave_all_or_nothing(name: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "tests.recipe.killing", name, "small", str(tmp_path), "20", "1"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=source_root(), check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout)["killed"] == 20
