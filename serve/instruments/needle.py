"""Whether each hidden number was given back."""

from __future__ import annotations

import re
from collections.abc import Sequence

from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import NeedleMeasure, NeedleTrial, Sample
from serve.instruments.answers import choice, error_text, material, usage
from serve.instruments.base import sample
from serve.instruments.likelihood import by_id, state_faults

NAME = "needle"
VERSION = 1

LENGTH_AGREEMENT = 0.02
"""How far a prompt's length may lie from its label."""


def reduce(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """One trial for each needle: the answer must begin with its digits, with no further digit and no other number as
    long.

    An error instead of an answer is a fault, never a needle that was not found; so is a prompt that is not as long as
    the plan says, by the engine's own count.
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
        prompt_tokens = int(usage(exchange).get("prompt_tokens", 0))
        faults += _length_fault(identifier, prompt_tokens, window)
        trials.append(
            NeedleTrial(
                id=identifier,
                language=needle["language"],
                depth_percent=needle["depth_percent"],
                prompt_tokens=prompt_tokens,
                found=_found(str(answered.get("text", "")), needle["answer"]),
            )
        )
    if not trials:
        faults.append("no needle was asked for")
    return sample(evidence, NeedleMeasure(trials=tuple(trials)), faults)


def _length_fault(identifier: str, measured: int, window: PlannedWindow) -> list[str]:
    label = window.arguments.get("prompt_tokens")
    if not measured:
        return [f"{identifier}: the engine does not say how long the prompt was"]
    if isinstance(label, int) and abs(measured - label) > LENGTH_AGREEMENT * label:
        return [f"{identifier}: the prompt had {measured} tokens, planned were {label}"]
    return []


def _found(text: str, answer: str) -> bool:
    """Of a list of codes none was found: which of them was meant nobody can tell."""
    answered = text.lstrip()
    others = [number for number in re.findall(r"\d+", answered) if len(number) == len(answer) and number != answer]
    whole = answered.startswith(answer) and not answered[len(answer) : len(answer) + 1].isdigit()
    return whole and not others
