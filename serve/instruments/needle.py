"""Whether each hidden number was given back."""

from __future__ import annotations

from collections.abc import Sequence

from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import NeedleMeasure, NeedleTrial, Sample
from serve.instruments.answers import choice, error_text, material, usage
from serve.instruments.base import sample
from serve.instruments.likelihood import by_id, state_faults

NAME = "needle"
VERSION = 1


def reduce(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """One trial for each needle: the answer must begin with its digits and no further digit.

    An error instead of an answer is a fault, never a needle that was not found.
    """
    own = evidence[0]
    exchanges, faults, trials = by_id(own), state_faults(own), []
    for identifier, needle in material(own, "needles").items():
        if identifier not in exchanges:
            faults.append(f"{identifier}: never asked")
            continue
        exchange = exchanges[identifier]
        answered = choice(exchange)
        if answered is None:
            faults.append(f"{identifier}: {error_text(exchange)}")
            continue
        trials.append(
            NeedleTrial(
                id=identifier,
                language=needle["language"],
                depth_percent=needle["depth_percent"],
                prompt_tokens=int(usage(exchange).get("prompt_tokens", 0)),
                found=_found(str(answered.get("text", "")), needle["answer"]),
            )
        )
    if not trials:
        faults.append("no needle was asked for")
    return sample(evidence, NeedleMeasure(trials=tuple(trials)), faults)


def _found(text: str, answer: str) -> bool:
    answered = text.lstrip()
    return answered.startswith(answer) and not answered[len(answer) : len(answer) + 1].isdigit()
