"""Peak memory of an overlay of very many tensors: ``python -m tests.benchmarks.overlay_many FOLDER``.

Makes two packs with as many tensors as the experts of DeepSeek-V4 have (132,096), each of a few hundred bytes, has all
of them replaced, and prints the peak of resident memory of plan, make and verify, each in a process of its own. The
line to hold is 512 MB; exit code 1 where one is above. Needs 400 MB in FOLDER, which it removes at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from recipe import overlay
from recipe.product import Job
from runner.model.product import Product
from tests.recipe.many_tensors import TENSORS_AN_EXPERT, many_tensors
from tests.recipe.overlays import job_of, recipe_of

LAYERS, EXPERTS, PEAK = 43, 256, 512 << 20


def peak_of(work: Callable[[], object]) -> int:
    """Peak of resident memory, in bytes, of ``work`` in a process of its own."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:  # not reached where the work succeeded
            traceback.print_exc()
            os._exit(1)
    _, status, usage = os.wait4(child, 0)
    if status:
        raise SystemExit("the work failed")
    return int(usage.ru_maxrss) * 1024


def peaks(folder: Path) -> dict[str, int]:
    """Bytes by step."""
    source, donor = folder / "source", folder / "donor"
    folder.mkdir(parents=True)
    peak_of(lambda: many_tensors(source, layers=LAYERS, experts=EXPERTS, seed=1))  # so that this process stays small
    peak_of(lambda: many_tensors(donor, layers=LAYERS, experts=EXPERTS, seed=2))
    names = {f"model.layers.{layer}": f"model.layers.{layer}" for layer in range(LAYERS)}
    job = job_of(folder, source, recipe_of(donor, layers=names))
    found = {"plan": peak_of(lambda: overlay.estimate(job)), "make": peak_of(lambda: overlay.make(job))}
    found["verify"] = peak_of(lambda: _verify(job))
    shutil.rmtree(folder)
    return found


def _verify(job: Job) -> None:
    """Of the record of a product only folder and summary count here."""
    product = Product(kind="pack", folder=str(job.product), digests={}, summary={})
    faults = overlay.verify(job, product).faults
    assert not faults, faults[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    found = peaks(parser.parse_args().folder)
    print(json.dumps({"tensors": LAYERS * EXPERTS * TENSORS_AN_EXPERT, "peak_bytes": found, "line": PEAK}, indent=1))
    sys.exit(max(found.values()) > PEAK)


if __name__ == "__main__":
    main()
