"""What a card counts during one launch of each case, by Nsight Compute where the host has it. No gate judges it.

The desk runs ``ncu … python -P -m carve_kernels.desk.gpu.counters REQUEST.json``: the cases one after the other, only
the last launch of each between the profiler's marks.
"""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from carve_kernels.desk.gpu import compare
from carve_kernels.desk.gpu.families import workload

METRICS = {
    "gpu__time_duration.sum": "duration_ns",
    "dram__bytes_read.sum": "bytes_from_memory",
    "smsp__inst_executed.sum": "warp_instructions",
    "smsp__issue_active.avg.pct_of_peak_sustained_elapsed": "issue_slots_percent",
    "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_elapsed": "alu_pipe_percent",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "occupancy_percent",
    "launch__registers_per_thread": "registers_per_thread",
    "launch__shared_mem_per_block_dynamic": "shared_bytes_per_block",
    "smsp__inst_executed_op_local.sum": "local_memory_instructions",
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": "stalled_on_global_loads",
    "smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio": "stalled_on_shared_loads",
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio": "stalled_on_barriers",
    "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio": "stalled_on_fixed_latency",
    "smsp__average_warps_issue_stalled_no_instruction_per_issue_active.ratio": "stalled_on_instructions",
}
"""Nsight Compute's names; stalls are warps that wait, for each issued instruction."""
TIMEOUT_SECONDS = 100
_WARM = 3
_PLACES = ("/usr/local/cuda/bin/ncu",)

Counted = dict[str, dict[str, str]]


def run(
    family: str, library: Path, kernel: str, seed: int, *, bits: Sequence[int], rows: Sequence[int], folder: Path
) -> Counted | None:
    """Counters by case; None where the host has no ncu, or it may not count there."""
    program = shutil.which("ncu") or next((place for place in _PLACES if Path(place).exists()), None)
    if program is None:
        return None
    request = folder / "counters.json"
    request.write_text(
        json.dumps({"family": family, "library": str(library), "seed": seed, "bits": bits, "rows": rows})
    )
    options = ["--profile-from-start", "off", "--clock-control", "none", "--cache-control", "none", "--csv"]
    options += ["--page", "raw", "-k", f"regex:{kernel}", "--print-units", "base", "--metrics", ",".join(METRICS)]
    command = [program, *options, sys.executable, "-P", "-m", "carve_kernels.desk.gpu.counters", str(request)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return None
    return by_case(done.stdout, [f"k{width}-m{count}" for width in bits for count in rows])


def by_case(words: str, names: Sequence[str]) -> Counted | None:
    """A table of ncu, one launch a line in the order of ``names``; None where it has another number of lines."""
    table = list(csv.DictReader(line for line in words.splitlines() if line.startswith('"')))
    launches = [row for row in table if row.get("Kernel Name")]  # below the heads stands a line of units
    if len(launches) != len(names):
        return None
    return {
        name: {
            word: compare.decimal(float(row[metric].replace(",", "")))
            for metric, word in METRICS.items()
            if row.get(metric, "n/a") not in ("n/a", "")
        }
        for name, row in zip(names, launches, strict=True)
    }


def main(arguments: Sequence[str]) -> int:
    """Launch every case; the profiler sees the last launch of each."""
    request: dict[str, Any] = json.loads(Path(arguments[0]).read_bytes())
    own = workload(request["family"], Path(request["library"]), torch.device("cuda:0"))
    for width in request["bits"]:
        for count in request["rows"]:
            problems = own.rotating(int(request["seed"]), width, count)[: _WARM + 1]
            outputs = [problem.outputs() for problem in problems]
            for problem, out in zip(problems[:-1], outputs, strict=False):
                problem.launch(out)
            torch.cuda.synchronize()
            torch.cuda.profiler.start()
            problems[-1].launch(outputs[-1])
            torch.cuda.synchronize()
            torch.cuda.profiler.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
