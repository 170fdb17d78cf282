"""One desk job on a GPU in a process of its own: ``python -P -m carve_kernels.desk.gpu.job REQUEST.json ANSWER.json``.

Request: ``{"job": name, "family": ..., "libraries": {...}, "seed": int, ...}``; jobs ``identify``, ``parity``,
``kernel-speed``, ``pressure`` and ``sanitizer``.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from carve_kernels.desk.gpu import counters, parity, pressure, sanitizer, speed
from carve_kernels.desk.gpu.families import workload
from carve_kernels.desk.gpu.workload import Workload
from runner.digest import sha256_file
from runner.errors import SeatError

Answer = dict[str, Any]


def _subject(request: Mapping[str, Any], build: str) -> Workload:
    return workload(str(request["family"]), Path(request["libraries"][build]), torch.device("cuda:0"))


def _identify(request: Mapping[str, Any]) -> Answer:
    """What answered: the device's UUID and name by the driver, the driver, and the torch that reaches it."""
    if not torch.cuda.is_available():
        raise SeatError("no GPU answers", expected="a CUDA device", found=f"torch {torch.__version__} sees none")
    fields = "uuid,name,driver_version"
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    words = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    uuid, name, driver = (word.strip() for word in words.splitlines()[0].split(","))
    properties = torch.cuda.get_device_properties(0)
    if str(properties.uuid) not in uuid:
        raise SeatError("driver and torch name different devices", expected=uuid, found=str(properties.uuid))
    return {
        "devices": [uuid],
        "name": name,
        "driver": driver,
        "torch": str(torch.__version__),
        "cuda": str(torch.version.cuda),
        "multiprocessors": properties.multi_processor_count,
        "capability": f"{properties.major}.{properties.minor}",
        "memory_bytes": properties.total_memory,
        "python": platform.python_version(),
    }


def _parity(request: Mapping[str, Any]) -> Answer:
    own, marked = _subject(request, "candidate"), _subject(request, "watermark")
    return {"library": dict(own.describe), "cases": parity.run(own, marked, int(request["seed"]))}


def _speed(request: Mapping[str, Any]) -> Answer:
    own, library = _subject(request, "candidate"), Path(request["incumbent"])
    cases = speed.run(
        own,
        library,
        int(request["seed"]),
        bits=request["bits"],
        rows=request["rows"],
        routes=request.get("routes", ("uniform",)),
        cold=int(request["cold"]),
        warm=int(request["warm"]),
    )
    return {"version": request["version"], "incumbent_digest": sha256_file(library), "cases": cases}


def _pressure(request: Mapping[str, Any]) -> Answer:
    own, null = _subject(request, "candidate"), _subject(request, "null-decode")
    cases = {"bits": request["bits"], "rows": request["rows"]}
    ceilings, seed = Path(request["libraries"]["ceilings"]), int(request["seed"])
    answer = pressure.run(own, null, ceilings, seed, **cases, replays=int(request["replays"]))
    with tempfile.TemporaryDirectory() as folder:
        family, library = str(request["family"]), Path(request["libraries"]["candidate"])
        counted = counters.run(family, library, own.kernel, seed, **cases, folder=Path(folder))
    if counted:
        for case in answer["cases"]:
            case["counters"] = counted[case["id"]]
    return answer


def _sanitizer(request: Mapping[str, Any]) -> Answer:
    libraries = {name: Path(path) for name, path in request["libraries"].items()}
    kernel = _subject(request, "candidate").kernel
    tools = sanitizer.run(
        str(request["family"]), kernel, libraries["candidate"], libraries["planted"], int(request["seed"])
    )
    return {"tools": tools}


_JOBS: dict[str, Callable[[Mapping[str, Any]], Answer]] = {
    "identify": _identify,
    "parity": _parity,
    "kernel-speed": _speed,
    "pressure": _pressure,
    "sanitizer": _sanitizer,
}


def main(arguments: Sequence[str]) -> int:
    """Run the job that the request names. Raises KeyError for a malformed request, SeatError where it cannot run."""
    asked, answered = (Path(argument) for argument in arguments)
    request = json.loads(asked.read_text(encoding="utf-8"))
    answered.write_text(json.dumps(_JOBS[request["job"]](request)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
