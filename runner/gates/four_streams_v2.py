"""``four-streams`` from version 2 on: both arms are asked the same, and the order says how many texts must be alike."""

from __future__ import annotations

from runner.gates import four_streams
from runner.gates.base import GateInput, Limit
from runner.gates.blocks import speed_of
from runner.gates.common import Decision, Reading, decide, figure, invalid, verdict
from runner.model.sample import SpeedMeasure
from runner.model.verdict import Status, Verdict

NAME = "four-streams"
VERSION = 2


class Parameters(four_streams.Parameters):
    """As in version 1, and the work that both arms have to do."""

    alike: Limit | None = None
    """Least share of prompts after which both arms wrote one text; without it the share is told and decides nothing.
    How requests share a step changes how right kernels round, so streams part at near ties sooner than a single one."""


def judge(given: GateInput) -> Verdict:
    """FAIL also where the candidate wrote other texts; INVALID where the arms of a round had other prompts."""
    return verdict(NAME, VERSION, decide(Parameters, (SpeedMeasure,), given, lambda *all_of: _decide(given, *all_of)))


def _decide(whole: GateInput, wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    speeds = wanted.model_dump(mode="json", exclude={"alike"})
    first = four_streams.judge(whole.model_copy(update={"parameters": speeds}))
    if first.status is Status.INVALID:
        return Decision(first.status, first.reasons, first.figures)
    written = _written(readings)
    for (language, number, text, _), both in written.items():
        if len(both) != 2:
            return invalid(f"{language}, round {number}: {text}: the arms had other prompts")
    alike = sum(None not in both and len(set(both)) == 1 for both in written.values())
    limit = f">= {wanted.alike}" if wanted.alike else ""
    figures = (*first.figures, figure("texts alike", alike / len(written), limit=limit))
    if wanted.alike is not None and alike < float(wanted.alike) * len(written):
        reason = f"the arms wrote another text after {len(written) - alike} of {len(written)} prompts"
        return Decision(Status.FAIL, (reason, *first.reasons), figures)
    return Decision(first.status, first.reasons, figures)


def _written(readings: tuple[Reading, ...]) -> dict[tuple[str, str, str, str], list[str | None]]:
    """By language, round, name and prompt of a text: the digests of what each arm wrote."""
    written: dict[tuple[str, str, str, str], list[str | None]] = {}
    for reading in readings:
        language, number = (str(reading.window.arguments.get(name)) for name in ("language", "round"))
        for text in speed_of(reading).texts:
            written.setdefault((language, number, text.id, text.prompt_digest), []).append(text.output_digest)
    return written
