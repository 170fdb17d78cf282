"""How long the first token of long prompts takes, none of which is cached."""

from __future__ import annotations

from collections.abc import Sequence

from runner.model.answer_measure import FirstToken, TtftMeasure
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import Sample
from serve.instruments.answers import material
from serve.instruments.base import sample
from serve.instruments.likelihood import state_faults
from serve.instruments.streams import read_texts

NAME = "ttft"
VERSION = 1


def reduce(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """One first token a text of the material; a cache hit, a preemption or a broken stream is a fault."""
    own = evidence[0]
    texts, faults = read_texts(own)
    prompts = material(own, "texts")
    measured = tuple(
        FirstToken(
            id=text.id, language=text.language, prompt_tokens=len(prompts[text.id]["tokens"]), ttft_ns=text.ttft_ns
        )
        for text in texts
    )
    return sample(evidence, TtftMeasure(texts=measured), [*faults, *state_faults(own)])
