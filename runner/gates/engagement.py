"""Law 1 as code: did the declared path run inside this very window, on every rank and layer that has its operator?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from runner.model.base import ROUTED, Operator
from runner.model.boot import BootRecord
from runner.model.evidence import CounterRow
from runner.model.plan import Expectation, PlannedWindow
from runner.model.sample import Engagement, Sample

INCUMBENT = "incumbent"
"""Name of the incumbent where a plan's expectations do not name another."""
ANY_ROWS = (1, 65)
_LAYER: dict[Operator, str] = {ROUTED: "routed layer", "linear": "linear module"}


def operator_of(window: PlannedWindow) -> Operator:
    """What the window's expectations are about; routed experts where it expects nothing."""
    return window.expects[0].operator if window.expects else ROUTED


def counted_layers(samples: Iterable[Sample], operator: Operator = ROUTED) -> frozenset[str]:
    """Every layer of an operator that any rank of any of these samples has counted, also those that stood still."""
    counted = (row for sample in samples for one in sample.engagement for row in one.witness)
    return frozenset(row.layer for row in counted if row.op == operator)


def engagement_faults(
    sample: Sample, window: PlannedWindow, boots: Sequence[BootRecord], layers: frozenset[str] = frozenset()
) -> tuple[str, ...]:
    """What keeps the window from counting, naming rank, layer and reason; nothing where it counts.

    ``layers`` are the layers known from elsewhere; the sample's own are added. Declared and required: every
    expectation without a decline reason, on every rank and layer. Declared and permitted: rows that the switched-on
    variant declines for the declared reason. A control window requires no particular variant, only that something
    declared ran. A window that expects nothing claims nothing and is only checked for its ranks.
    """
    boot = next((one for one in boots if one.id == sample.boot), None)
    if boot is None:
        return (f"{window.id}: boot {sample.boot} is not in the record",)
    faults = _rank_faults(sample, boot)
    expects, variant_fault = declared(window, sample)
    faults += [variant_fault] if variant_fault else []
    if expects:
        operator = operator_of(window)
        known = sorted(layers | counted_layers([sample], operator))
        faults += [] if known else [f"no {_LAYER[operator]} was counted"]
        for one in sample.engagement:
            faults += _launch_faults(one, known, expects, control=window.control)
            faults += _undeclared_launches(one, expects)
            faults += _undeclared_declines(one, expects)
            faults += _disagreements(one, operator)
    return tuple(f"{window.id}: {fault}" for fault in faults)


def declared(window: PlannedWindow, sample: Sample) -> tuple[tuple[Expectation, ...], str]:
    """The expectations that hold for the variant that was on, and what is wrong with that variant.

    A drawn window's expectations are the candidate's; where the incumbent was drawn every row is the incumbent's. A
    window that switches single ranks to another variant names it in ``arguments["variant"]``: it runs the same rows.
    """
    expects = window.expects
    own = {expectation.variant for expectation in expects if expectation.decline is None}
    incumbent = incumbent_of(window)
    if window.arm == "drawn" and sample.variant == incumbent:
        low, high = ANY_ROWS
        return (Expectation(variant=incumbent, rows_min=low, rows_max=high, operator=operator_of(window)),), ""
    fault = f"variant {sample.variant} was on, declared was {', '.join(sorted(own))}"
    other = window.arguments.get("variant")
    if isinstance(other, str):
        expects += tuple(one.model_copy(update={"variant": other}) for one in expects if one.decline is None)
    return expects, fault if own and sample.variant not in own else ""


def incumbent_of(window: PlannedWindow) -> str:
    """The incumbent's name: who runs the rows that the candidate declines."""
    return next((one.variant for one in window.expects if one.decline is not None), INCUMBENT)


def _rank_faults(sample: Sample, boot: BootRecord) -> list[str]:
    expected = sorted(rank.rank for rank in boot.ranks)
    found = sorted(one.rank for one in sample.engagement)
    if not expected:
        return [f"boot {boot.id} names no rank"]
    faults = [f"rank {rank} is missing from the counters" for rank in expected if rank not in found]
    faults += [f"rank {rank} is counted but not of the boot" for rank in found if rank not in expected]
    return faults + ([f"ranks are counted twice: {found}"] if len(set(found)) != len(found) else [])


def _of(operator: Operator, rows: Iterable[CounterRow]) -> list[CounterRow]:
    return [row for row in rows if row.op == operator]


def _within(rows: int, expectation: Expectation) -> bool:
    return expectation.rows_min <= rows <= expectation.rows_max


def _count(engagement: Engagement, layer: str, expectation: Expectation) -> int:
    return sum(
        count
        for row in _of(expectation.operator, engagement.witness)
        if row.layer == layer and row.variant == expectation.variant
        for rows, count in row.rows
        if _within(rows, expectation)
    )


def _launch_faults(
    engagement: Engagement, layers: Sequence[str], expects: Sequence[Expectation], *, control: bool
) -> list[str]:
    faults = []
    for layer in layers:
        counts = {expectation: _count(engagement, layer, expectation) for expectation in expects}
        required = [] if control else [one for one in expects if one.decline is None]
        faults += [
            f"rank {engagement.rank}, {layer}: {one.variant} never ran {one.rows_min}..{one.rows_max} rows"
            f"{_why(engagement, layer)}"
            for one in required
            if not counts[one]
        ]
        if not required and not any(counts.values()):
            faults.append(f"rank {engagement.rank}, {layer}: nothing declared ran{_why(engagement, layer)}")
    return faults


def _why(engagement: Engagement, layer: str) -> str:
    """The decline reasons on that rank and layer, where there are any."""
    reasons = [
        f"{row.variant} declined {row.reason} {row.count} times" for row in engagement.declines if row.layer == layer
    ]
    return f" ({'; '.join(reasons)})" if reasons else " (no decline was counted)"


def _undeclared_launches(engagement: Engagement, expects: Sequence[Expectation]) -> list[str]:
    return [
        f"rank {engagement.rank}, {row.layer}: {row.variant} ran {rows} rows {count} times undeclared"
        f"{_why(engagement, row.layer)}"
        for row in _of(expects[0].operator, engagement.witness)
        for rows, count in row.rows
        if count and not any(row.variant == one.variant and _within(rows, one) for one in expects)
    ]


def _undeclared_declines(engagement: Engagement, expects: Sequence[Expectation]) -> list[str]:
    faults = []
    for row in engagement.declines:
        allowed = [one for one in expects if one.decline == row.reason]
        counted = [rows for rows, count in row.rows if count]
        if row.count and not (counted and all(any(_within(rows, one) for one in allowed) for rows in counted)):
            faults.append(
                f"rank {engagement.rank}, {row.layer}: {row.variant} declined {row.reason} {row.count} times "
                f"undeclared, rows {counted}"
            )
    return faults


def _disagreements(engagement: Engagement, operator: Operator) -> list[str]:
    """The candidate's own counter must tell what the witness tells; an incumbent has only the witness."""
    witness, candidate = (_by_layer(_of(operator, rows)) for rows in (engagement.witness, engagement.candidate))
    return [
        f"rank {engagement.rank}, {layer}: the witness counted {variant} {_total(witness, variant, layer)} times, "
        f"{variant} counted itself {_total(candidate, variant, layer)} times or other rows"
        for variant, layer in sorted(witness.keys() | candidate.keys())
        if not variant.startswith(INCUMBENT) and witness.get((variant, layer)) != candidate.get((variant, layer))
    ]


def _by_layer(rows: Iterable[CounterRow]) -> dict[tuple[str, str], tuple[tuple[int, int], ...]]:
    return {
        (row.variant, row.layer): tuple(sorted((bin_, count) for bin_, count in row.rows if count))
        for row in rows
        if any(count for _, count in row.rows)
    }


def _total(counted: dict[tuple[str, str], tuple[tuple[int, int], ...]], variant: str, layer: str) -> int:
    return sum(count for _, count in counted.get((variant, layer), ()))
