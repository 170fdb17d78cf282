"""A small exact-match set: of several continuations, is the text's own the likeliest?"""

from __future__ import annotations

from collections.abc import Sequence

from runner.model.answer_measure import ScoreItem, ScoreMeasure
from runner.model.base import decimal_text
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import Sample
from runner.stats import total
from serve.instruments.answers import material
from serve.instruments.base import sample
from serve.instruments.likelihood import by_id, forced_logprobs, state_faults

NAME = "score"
VERSION = 1


def reduce(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """Items of the material: ``choices`` are equally long continuations, ``answer`` says which is the text's own.

    Each was forced after the same context, token by token, so the decode path under test gave every logprob.
    """
    own = evidence[0]
    exchanges, faults, items = by_id(own), state_faults(own), []
    for identifier, item in material(own, "items").items():
        sums, wrong = [], []
        for number, tokens in enumerate(item["choices"]):
            name = f"{identifier}/{number}"
            exchange = exchanges.get(name)
            values, fault = forced_logprobs(exchange, [0, *tokens]) if exchange else ((), "never asked")
            wrong += [f"{name}: {fault}"] if fault else []
            sums.append(total(values))
        others = [value for number, value in enumerate(sums) if number != item["answer"]]
        faults += wrong
        if wrong or not others:
            continue
        margin = sums[item["answer"]] - max(others)
        items.append(
            ScoreItem(
                id=identifier,
                language=item["language"],
                choices=len(sums),
                right=margin > 0,
                margin=decimal_text(margin),
            )
        )
    return sample(evidence, ScoreMeasure(items=tuple(items)), faults or ([] if items else ["no item was scored"]))
