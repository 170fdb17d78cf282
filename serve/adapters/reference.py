"""Ask the reference forward, in a process of its own, how perturbations move the logprobs of forced documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from serve.adapters.side import run_job

TIMEOUT_SECONDS = 180.0


def predicted_changes(
    pack: Path, documents: Mapping[str, Sequence[int]], perturbations: Sequence[Mapping[str, Any]]
) -> list[list[float]]:
    """For each perturbation the change of every logprob (after minus before, nats), document after document.

    ``documents`` are token ids, of which all but the first are scored; a perturbation has the fields of
    ``serve.witness.reference.Perturbation``. Raises SeatError where the reference cannot run.
    """
    request = {
        "pack": str(pack),
        "documents": {name: list(ids) for name, ids in documents.items()},
        "perturbations": [dict(change) for change in perturbations],
    }
    answer = run_job("serve.witness.reference", request, timeout=TIMEOUT_SECONDS)
    base = answer["base"]
    return [
        [after - before for name in documents for before, after in zip(base[name], moved[name], strict=True)]
        for moved in answer["perturbed"]
    ]
