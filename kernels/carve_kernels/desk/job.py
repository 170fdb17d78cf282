"""One desk job in a process of its own: ``python -P -m carve_kernels.desk.job REQUEST.json ANSWER.json``.

Request: ``{"job": "parity", "library": path, "seed": int}``, optionally ``rows`` and ``threads``. Answer: ``{"library":
what the library says of itself, "cases": [...]}`` with the facts of :mod:`carve_kernels.desk.parity`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from carve_kernels.desk import parity
from carve_kernels.library import Library


def main(arguments: Sequence[str]) -> int:
    """Run the job that the request names. Raises KeyError or ValueError for a malformed request."""
    asked, answered = (Path(argument) for argument in arguments)
    request = json.loads(asked.read_text(encoding="utf-8"))
    if request["job"] != "parity":
        raise ValueError(f"{asked}: the desk knows the job parity, not {request['job']!r}")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    library = Library(Path(request["library"]))
    rows = request.get("rows", [*parity.DECODE_ROWS, *parity.PREFILL_ROWS])
    cases = parity.run(library, int(request["seed"]), rows=rows, threads=int(request.get("threads", 2)))
    answered.write_text(json.dumps({"library": library.describe, "cases": cases}), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
