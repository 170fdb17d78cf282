"""Runs a library's kernels a few times, for tools that watch every memory access.

Prints one JSON line: launches by the library's own count, and whether every output was written. Nothing else is
computed on the device, so that a tool has little besides to watch.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from carve_kernels.desk.gpu.families import workload


def main(arguments: Sequence[str] | None = None) -> int:
    """Launch every small problem twice."""
    parser = argparse.ArgumentParser(prog="python -m carve_kernels.desk.gpu.exercise", description=__doc__)
    parser.add_argument("--family", required=True)
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    subject = workload(given.family, given.library, torch.device("cuda:0"))
    finite = True
    for problem in subject.small(given.seed):
        for _ in range(2):
            out = problem.outputs()
            if declined := problem.launch(out):
                sys.stdout.write(f"declined: {declined}\n")
                return 1
        finite = finite and all(bool(each.cpu().isfinite().all()) for each in out)
    launches, _ = subject.counted()
    sys.stdout.write(json.dumps({"launches": launches, "finite": finite}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
