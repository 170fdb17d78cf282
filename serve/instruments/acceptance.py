"""How many draft tokens are accepted, in one language, from ``/metrics`` at both ends of the window."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from runner.errors import EvidenceError
from runner.model.engine_measure import AcceptanceMeasure
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import Sample
from serve.instruments import metrics
from serve.instruments.answers import choice, error_text, usage
from serve.instruments.base import sample
from serve.instruments.likelihood import state_faults

NAME = "acceptance"
VERSION = 1


def reduce(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """Window arguments: ``language``, and ``speculates``, whether the engine was to speculate.

    Faults: a counter that ran backwards (the engine was started again between the scrapes), counters that contradict
    each other, tokens by ``usage`` that ``/metrics`` does not count, requests that are not ours, no counter at all
    where the engine was to speculate, and drafts where it was not to.
    """
    own = evidence[0]
    language, speculates = window.arguments.get("language"), window.arguments.get("speculates")
    if not isinstance(language, str) or not isinstance(speculates, bool):
        raise EvidenceError(
            "an acceptance window names its language and whether the engine speculates",
            where=f"window {window.id}",
            found=f"language {language!r}, speculates {speculates!r}",
        )
    faults = state_faults(own)
    faults += [f"{one.id}: {error_text(one)}" for one in own.exchanges if choice(one) is None]
    tokens = sum(int(usage(one).get("completion_tokens", 0)) for one in own.exchanges)
    faults += _other_traffic(own, tokens)
    drafts, draft_tokens, accepted = (
        metrics.moved(own, name) for name in (metrics.DRAFTS, metrics.DRAFT_TOKENS, metrics.ACCEPTED_TOKENS)
    )
    positions = metrics.moved_by(own, metrics.ACCEPTED_BY_POSITION, "position")
    if speculates and drafts is None:
        faults.append("the engine serves no counter of speculation")
    if not speculates and drafts:
        faults.append(f"{drafts:.0f} drafts in an engine that was not to speculate")
    measure = AcceptanceMeasure(
        language=language,
        texts=len(own.exchanges),
        tokens=tokens,
        drafts=round(drafts or 0),
        draft_tokens=round(draft_tokens or 0),
        accepted_tokens=round(accepted or 0),
        accepted_by_position=tuple(round(positions[name]) for name in sorted(positions, key=int)),
    )
    return sample(evidence, measure, [*faults, *_contradictions(measure)])


def _other_traffic(evidence: Evidence, tokens: int) -> list[str]:
    counted, finished = (
        metrics.moved(evidence, name) for name in (metrics.GENERATION_TOKENS, metrics.FINISHED_REQUESTS)
    )
    faults = []
    if counted is None or round(counted) != tokens:
        faults.append(f"usage says {tokens} tokens, /metrics {counted}")
    if finished is None or round(finished) != len(evidence.exchanges):
        faults.append(f"{finished} requests finished in the window, {len(evidence.exchanges)} are ours")
    return faults


def _contradictions(found: AcceptanceMeasure) -> list[str]:
    counts = (found.drafts, found.draft_tokens, found.accepted_tokens, *found.accepted_by_position)
    if min(counts) < 0:
        return ["a counter of speculation ran backwards: the engine was started again between the scrapes"]
    faults = []
    if sum(found.accepted_by_position) != found.accepted_tokens:
        faults.append(f"{found.accepted_tokens} tokens accepted, {sum(found.accepted_by_position)} over all positions")
    if any(later > earlier for earlier, later in pairwise((found.drafts, *found.accepted_by_position))):
        faults.append(f"a position accepts more often than the one before: {found.accepted_by_position}")
    if found.accepted_tokens > found.draft_tokens:
        faults.append(f"{found.accepted_tokens} tokens accepted of {found.draft_tokens} drafted")
    return faults
