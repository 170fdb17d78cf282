"""What every rank holds beside what was predicted for it before the boot."""

from __future__ import annotations

from collections.abc import Sequence

from runner.model.answer_measure import MemoryMeasure, RankMemory
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import Sample
from serve.instruments.answers import fact, missing
from serve.instruments.base import sample

NAME = "memory"
VERSION = 1

_SIZES = ("_bytes", "_tokens")
"""How names of sizes end."""


def reduce(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """The fact ``predicted`` (names to numbers, of each rank) and every size in each rank's answer to ``resolved``.

    A rank without a prediction, a prediction without a rank, and a name that the engine does not answer for are faults.
    """
    own = evidence[0]
    predicted = fact(own, "predicted")
    live = [answer for call in own.calls if call.method == "resolved" for answer in call.results]
    if not isinstance(predicted, list) or not live:
        raise missing(own, "calls.resolved and facts.predicted")
    faults, ranks = [], []
    if len(predicted) != len(live):
        faults.append(f"{len(predicted)} ranks were predicted, {len(live)} answered")
    for rank, (wanted, found) in enumerate(zip(predicted, live, strict=False)):
        names, held = _numbers(wanted), _numbers(found)
        faults += [f"rank {rank}: the engine does not say its {name}" for name in sorted(names.keys() - held.keys())]
        ranks.append(RankMemory(rank=rank, predicted=names, live=held))
    return sample(evidence, MemoryMeasure(ranks=tuple(ranks)), faults)


def _numbers(answer: object) -> dict[str, int]:
    pairs = answer.items() if isinstance(answer, dict) else ()
    sizes = {str(name): value for name, value in pairs if str(name).endswith(_SIZES)}
    return {name: value for name, value in sizes.items() if isinstance(value, int) and not isinstance(value, bool)}
