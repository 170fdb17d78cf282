"""compute-sanitizer's four tools over the kernels under test, each after it has found a planted fault."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from runner.errors import SeatError

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
UNFILTERED = "initcheck"
"""Has to see who wrote the inputs, so it watches every kernel; its reports on others' kernels do not count."""
TIMEOUT_SECONDS = 240
_ERRORS = re.compile(r"ERROR SUMMARY: (\d+) error")
_HAZARDS = re.compile(r"RACECHECK SUMMARY: (\d+) hazards? displayed \((\d+) errors?, (\d+) warnings?\)")
_LAUNCHES = re.compile(r'"launches": (\d+)')
_PLACES = ("/usr/local/cuda/bin/compute-sanitizer", "/usr/local/cuda/compute-sanitizer/compute-sanitizer")
_KEPT = 1500


def program() -> str:
    """compute-sanitizer's path. Raises SeatError where the host has none."""
    found = shutil.which("compute-sanitizer") or next((place for place in _PLACES if Path(place).exists()), None)
    if found is None:
        raise SeatError("compute-sanitizer is not installed", expected="on PATH or below /usr/local/cuda", found="none")
    return found


def run(family: str, kernel: str, library: Path, planted: Path, seed: int) -> list[dict[str, Any]]:
    """One entry a tool: errors in the kernels under test, their launches, and errors in the planted fault."""
    exercise = [*_module("exercise"), "--family", family, "--library", str(library), "--seed", str(seed)]
    with ThreadPoolExecutor(max_workers=len(TOOLS)) as pool:
        return list(pool.map(lambda tool: _both(tool, kernel, exercise, planted), TOOLS))


def _module(name: str) -> list[str]:
    return [sys.executable, "-P", "-m", f"carve_kernels.desk.gpu.{name}"]


def _both(tool: str, kernel: str, exercise: Sequence[str], planted: Path) -> dict[str, Any]:
    fault = _watch(tool, "planted", [*_module("planted"), str(planted), tool])
    own = _watch(tool, kernel, exercise)
    launches = _LAUNCHES.search(own)
    return {
        "tool": tool,
        "errors": errors_naming(own, kernel) if tool == UNFILTERED else errors_of(own),
        "planted_errors": errors_of(fault),
        "launches": int(launches[1]) if launches else 0,
        "words": own[-_KEPT:],
        "planted_words": fault[-_KEPT:],
    }


def errors_of(words: str) -> int:
    """Errors and hazards by the tool's own summary; -1 where it printed none."""
    if hazards := _HAZARDS.search(words):
        return int(hazards[2]) + int(hazards[3])
    errors = _ERRORS.search(words)
    return int(errors[1]) if errors else -1


def errors_naming(words: str, kernel: str) -> int:
    """Reports of a tool in which the access happened ``at`` a kernel with this in its name; -1 without a summary."""
    if _ERRORS.search(words) is None:
        return -1
    reports = re.split(r"^=+ (?=\S)", words, flags=re.MULTILINE)
    return sum(bool(re.search(rf"^=+ +at .*{re.escape(kernel)}", one, flags=re.MULTILINE)) for one in reports)


def _watch(tool: str, kernel: str, command: Sequence[str]) -> str:
    only = [] if tool == UNFILTERED else ["--kernel-regex", f"kns={kernel}"]
    limit = "100000" if tool == UNFILTERED else "10"
    argv = [program(), "--tool", tool, *only, "--print-limit", limit, *command]
    # Memory straight from the driver: an access outside a tensor is then outside an allocation.
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        return f"{tool} did not finish within {TIMEOUT_SECONDS} s"
    return done.stdout + done.stderr
