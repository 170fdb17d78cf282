"""Small readings of a report that its text and its pages share. Nothing here decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from runner.model.attempt import Attempt
from runner.model.evidence import ROWS_EXACT, CounterRow
from runner.model.report import Measured
from runner.model.sample import Sample


def launches_by_rows(counters: Sequence[CounterRow]) -> dict[str, Counter[int]]:
    """Variant to rows to launches of routed experts, over all layers; 65 stands for more than 64 rows."""
    found: dict[str, Counter[int]] = {}
    for counter in counters:
        if counter.op == "routed_experts":
            rows = found.setdefault(counter.variant, Counter())
            for number, launches in dict(
                counter.rows
            ).items():  # as Counter.update does, without asking what it is given
                rows[number] = rows.get(number, 0) + launches
    return found


def rows_text(rows: Counter[int]) -> str:
    """``480 at 1 row``, ``96 at 2–16 rows``, ``12 at > 64 rows``."""
    if not rows:
        return "0"
    low, high = min(rows), max(rows)
    span = f"> {ROWS_EXACT}" if low > ROWS_EXACT else f"{low}" if low == high else f"{low}–{high}"
    return f"{rows.total()} at {span} row{'' if span == '1' else 's'}"


def engagement_text(counters: Sequence[CounterRow]) -> str:
    """What the routed experts ran, variant by variant."""
    found = launches_by_rows(counters)
    return "; ".join(f"{variant} {rows_text(found[variant])}" for variant in sorted(found)) or "none"


def attempt_outcome(attempt: Attempt) -> str:
    """Why it gave no candidate, what the report said about its candidate, or that this is the one under test."""
    if attempt.findings:
        return "; ".join(f"{finding.kind}: {finding.detail}" for finding in attempt.findings)
    if attempt.judged is None:
        return "under test"
    return f"{attempt.judged.verdict} in run {attempt.judged.run}: {'; '.join(attempt.judged.reasons) or 'every gate'}"


def unwatched(attempts: Sequence[Attempt]) -> list[tuple[str, str]]:
    """Number of an attempt and what a reader has to know of how it came about.

    What nobody watched of it, what others changed meanwhile, what ended it from outside before, and where a limit of
    the order was not kept.
    """
    found = []
    for one in attempts:
        session = one.session
        told = (*one.deviations, *session.unseen, *session.meanwhile, *session.interrupted)
        found += [(str(one.number), what) for what in told]
    return found


def without_sample(measured: Measured) -> tuple[str, ...]:
    """Planned windows that no sample speaks of."""
    measured_windows = {sample.window for sample in measured.samples}
    return tuple(window.id for window in measured.plan.windows if window.id not in measured_windows)


def primary_rate(sample: Sample) -> str | None:
    """The decode rate of a speed sample in tok/s, as written."""
    return sample.measure.decode_rate if sample.measure.kind == "speed" else None


__all__ = [
    "attempt_outcome",
    "engagement_text",
    "launches_by_rows",
    "primary_rate",
    "rows_text",
    "unwatched",
    "without_sample",
]
