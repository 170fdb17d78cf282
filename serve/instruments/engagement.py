"""Counter differences of a window, rank by rank: the proof that the path under test ran inside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from runner.model.evidence import CounterRow, DeclineRow, Evidence, RankCounters
from runner.model.sample import Engagement

Rows = Sequence[tuple[int, int]]


def differences(evidence: Evidence) -> tuple[tuple[Engagement, ...], tuple[str, ...]]:
    """After minus before for every rank, and what makes the pair of readings no difference.

    A rank missing at one end, another process behind a rank, or a counter that ran backwards is a fault. A layer known
    before that did not run keeps its row with 0 launches, so that a gate sees it stand still.
    """
    before = {counters.rank: counters for counters in evidence.counters_before}
    after = {counters.rank: counters for counters in evidence.counters_after}
    faults = [f"rank {rank}: counters were read only once" for rank in sorted(set(before) ^ set(after))]
    found = []
    for rank in sorted(set(before) & set(after)):
        if before[rank].pid != after[rank].pid:
            faults.append(f"rank {rank}: process {before[rank].pid} became {after[rank].pid} inside the window")
        found.append(_difference(rank, before[rank], after[rank]))
        faults += [f"rank {rank}: {fault}" for fault in _backwards(found[-1])]
    return tuple(found), tuple(faults)


def _difference(rank: int, before: RankCounters, after: RankCounters) -> Engagement:
    return Engagement(
        rank=rank,
        witness=_launches(before.witness, after.witness),
        candidate=_launches(before.candidate, after.candidate),
        declines=_declines(before.declines, after.declines),
    )


def _launches(before: Iterable[CounterRow], after: Iterable[CounterRow]) -> tuple[CounterRow, ...]:
    earlier = {(row.op, row.variant, row.layer): row for row in before}
    later = {(row.op, row.variant, row.layer): row for row in after}
    found = []
    for key in sorted(earlier.keys() | later.keys()):
        old, new = earlier.get(key), later.get(key)
        found.append(
            CounterRow(
                op=key[0],
                variant=key[1],
                layer=key[2],
                launches=(new.launches if new else 0) - (old.launches if old else 0),
                rows=_rows(old.rows if old else (), new.rows if new else ()),
            )
        )
    return tuple(found)


def _declines(before: Iterable[DeclineRow], after: Iterable[DeclineRow]) -> tuple[DeclineRow, ...]:
    earlier = {(row.variant, row.layer, row.reason): row for row in before}
    later = {(row.variant, row.layer, row.reason): row for row in after}
    found = []
    for key in sorted(earlier.keys() | later.keys()):
        old, new = earlier.get(key), later.get(key)
        count = (new.count if new else 0) - (old.count if old else 0)
        rows = _rows(old.rows if old else (), new.rows if new else ())
        if count or rows:
            found.append(DeclineRow(variant=key[0], layer=key[1], reason=key[2], count=count, rows=rows))
    return tuple(found)


def _rows(before: Rows, after: Rows) -> tuple[tuple[int, int], ...]:
    old, new = dict(before), dict(after)
    moved = {rows: new.get(rows, 0) - old.get(rows, 0) for rows in old.keys() | new.keys()}
    return tuple(sorted((rows, count) for rows, count in moved.items() if count))


def _backwards(engagement: Engagement) -> list[str]:
    counted = [(row.layer, row.variant, row.launches) for row in (*engagement.witness, *engagement.candidate)]
    counted += [(row.layer, row.variant, row.count) for row in engagement.declines]
    return [f"the counter of {variant} on {layer} ran backwards" for layer, variant, count in counted if count < 0]
