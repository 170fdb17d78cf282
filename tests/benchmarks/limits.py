"""What ``runner canon`` and ``runner verify`` take over many reports, beside what they may take."""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Callable
from pathlib import Path

from runner import canon
from runner.errors import CarveError
from runner.verify_many import verify_many
from tests.runner.records import trust_of

CANON_SECONDS, VERIFY_SECONDS, MEGABYTES = 5, 60, 500
"""Of 10,000 reports on two processors; the memory is that of all processes together."""
_EVERY = 0.25
"""Seconds between two looks at the memory."""
_OWN_AND_BELOW = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


def make_canon(workspace: Path) -> str:
    """As ``runner canon`` does; what came of it."""
    text = canon.generate(workspace, trust_of(workspace))
    canon.write(workspace, text)
    return f"{len(text)} characters"


def verify_all(workspace: Path) -> str:
    """As ``runner verify reports`` does; how many stand."""
    refused, texts, count = [], 0, 0
    for _, answer in verify_many([workspace / "reports"], workspace):
        count += 1
        if isinstance(answer, CarveError):
            refused.append(answer)
        else:
            texts += answer.text == "different"
    first = f", the first because {refused[0]}" if refused else ""
    return f"{count - len(refused)} stand, {texts} with another text, {len(refused)} refused{first}"


def measure(workspace: Path) -> bool:
    """Both, each in a process of its own and printed as it ends; whether all was within the limits."""
    return all([_measured(make_canon, workspace, CANON_SECONDS), _measured(verify_all, workspace, VERIFY_SECONDS)])


def _measured(work: Callable[[Path], str], workspace: Path, limit: float) -> bool:
    context = multiprocessing.get_context("fork")
    says, told = context.Pipe(duplex=False)

    def run() -> None:
        began = time.perf_counter()
        said = work(workspace)
        seconds, used = time.perf_counter() - began, map(resource.getrusage, _OWN_AND_BELOW)
        told.send((seconds, f"{sum(one.ru_utime + one.ru_stime for one in used):.1f} s of processors, {said}"))

    process, peak = context.Process(target=run), 0.0
    process.start()
    told.close()
    while process.is_alive():
        peak = max(peak, _megabytes(process.pid or 0))
        process.join(_EVERY)
    seconds, said = says.recv()
    for value, most, unit in ((seconds, limit, "s"), (peak, MEGABYTES, "MB")):
        print(f"{work.__name__:<10} {value:6.1f} {unit:<2}  {'within' if value < most else 'OVER'} {most} {unit}")
    print(f"{'':<10} {said}", flush=True)
    return bool(seconds < limit and peak < MEGABYTES)


def _megabytes(pid: int) -> float:
    """What a process and all below it hold, shared pages once (``Pss`` of Linux)."""
    try:
        process = Path("/proc", str(pid))
        rollup = (process / "smaps_rollup").read_text()
        below = (process / "task" / str(pid) / "children").read_text()
    except OSError:  # it has ended meanwhile
        return 0.0
    held = next((int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")), 0)
    return held * 1024 / 1e6 + sum(_megabytes(int(child)) for child in below.split())
