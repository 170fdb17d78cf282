"""Cases of the gate about engagement."""

from __future__ import annotations

from typing import Any

from runner.gates.base import GateInput
from runner.model.evidence import CounterRow
from runner.model.plan import Expectation
from runner.model.sample import (
    EngagedMeasure,
    Engagement,
)
from tests.gates.build import (
    CANDIDATE,
    DECODE,
    INCUMBENT,
    LAYERS,
    SHARED,
    WIDE,
    Case,
    boot,
    both,
    counted,
    declined,
    fell_back,
    given,
    ran,
    sample,
    window,
)


def _absent() -> GateInput:
    """One window's counters do not even name a layer that another window of the same kind of boot counted."""
    here, there = (window(name, "shared-a", "engaged") for name in ("short", "long"))
    without = sample(here, EngagedMeasure(tokens=16), engagement=both(layers=LAYERS[:1]))
    return given({}, SHARED, [(here, without), (there, sample(there, EngagedMeasure(tokens=16)))])


LINEARS = ("model.layers.0.mlp.gate_up_proj", "model.layers.1.mlp.shared_experts.down_proj")


def _linear(variant: str = CANDIDATE, **changes: Any) -> GateInput:
    """A candidate for linears, beside routed experts that are the incumbent's in both arms; two ranks, both phases."""

    def rows(name: str, *counts: tuple[int, int]) -> tuple[CounterRow, ...]:
        return tuple(row.model_copy(update={"op": "linear"}) for row in counted(name, counts, LINEARS))

    expects = (
        Expectation(variant=CANDIDATE, rows_min=1, rows_max=32, operator="linear"),
        Expectation(variant=INCUMBENT, rows_min=33, rows_max=65, decline="rows-above-limit", operator="linear"),
    )
    here = window("short", "shared-a", "engaged").model_copy(update={"expects": expects} | changes)
    engagement = tuple(
        Engagement(
            rank=rank,
            witness=(*rows(variant, DECODE), *rows(INCUMBENT, WIDE), *counted(INCUMBENT, [DECODE, WIDE])),
            candidate=rows(CANDIDATE, DECODE) if variant == CANDIDATE else (),
            declines=declined("rows-above-limit", [WIDE], LINEARS) if variant == CANDIDATE else (),
        )
        for rank in (0, 1)
    )
    read = sample(here, EngagedMeasure(tokens=16), engagement=engagement)
    return given({}, SHARED, [(here, read.model_copy(update={"variant": variant}))])


def _no_reader() -> GateInput:
    """Its library holds no kernel for linears: every one was the incumbent's, and no decline says so."""
    alone = _linear(INCUMBENT)
    return alone.model_copy(
        update={"samples": tuple(one.model_copy(update={"variant": CANDIDATE}) for one in alone.samples)}
    )


def engaged() -> list[Case]:
    planned = window("short", "shared-a", "engaged")

    def one(*engagement: Engagement, **changes: Any) -> GateInput:
        here = planned.model_copy(update=changes)
        return given({}, SHARED, [(here, sample(here, EngagedMeasure(tokens=16), engagement=engagement))])

    skipped = Engagement(
        rank=1,
        witness=(*counted(CANDIDATE, [DECODE], LAYERS[:1]), *counted(INCUMBENT, [DECODE], LAYERS[1:])),
        candidate=counted(CANDIDATE, [DECODE], LAYERS[:1]),
        declines=declined("bits", [DECODE], LAYERS[1:]),
    )
    forged = Engagement(
        rank=1, witness=counted(INCUMBENT, [DECODE]), candidate=counted(CANDIDATE, [DECODE]), declines=()
    )
    silent = Engagement(rank=1, witness=counted(CANDIDATE, [DECODE]), candidate=(), declines=())
    other_rows = Engagement(
        rank=1, witness=counted(CANDIDATE, [DECODE]), candidate=counted(CANDIDATE, [(1, 64)]), declines=()
    )
    both_phases = [
        Engagement(
            rank=rank,
            witness=(*counted(CANDIDATE, [DECODE]), *counted(INCUMBENT, [WIDE])),
            candidate=counted(CANDIDATE, [DECODE]),
            declines=declined("rows-above-limit", [WIDE]),
        )
        for rank in (0, 1)
    ]
    wrong_phase = both_phases[1].model_copy(update={"declines": declined("rows-above-limit", [(20, 4)])})
    unnamed = both_phases[1].model_copy(update={"declines": declined("shape", [WIDE])})
    dense = Engagement(
        rank=0,
        witness=(CounterRow(op="linear", variant=CANDIDATE, layer=LAYERS[0], launches=4, rows=((4, 4),)),),
        candidate=(),
        declines=(),
    )
    still = ran(rank=1).model_copy(
        update={
            "witness": (*counted(CANDIDATE, [DECODE], LAYERS[:1]), *counted(CANDIDATE, [], LAYERS[1:])),
            "candidate": counted(CANDIDATE, [DECODE], LAYERS[:1]),
        }
    )
    normal = sample(planned, EngagedMeasure(tokens=16))
    return [
        (
            "FL-01-never-ran_fail",
            one(*both(INCUMBENT)),
            "INVALID",
            "rank 0, model.layers.1.mlp.experts: lna2 never ran",
        ),
        (
            "FL-06-row-ceiling_fail",
            one(ran(), fell_back(1, "rows-above-limit", [(20, 64)])),
            "INVALID",
            "rows-above-limit",
        ),
        (
            "one-rank-falls-back_fail",
            one(ran(), fell_back(1)),
            "INVALID",
            "rank 1, model.layers.1.mlp.experts: lna2 never ran 1..64 rows (lna2 declined other 64 times)",
        ),
        (
            "FL-07-prewarm-only_fail",
            one(ran(), fell_back(1, "rows-above-limit")),
            "INVALID",
            "rank 1, model.layers.1.mlp.experts: lna2 never ran 1..64 rows (lna2 declined rows-above-limit 64 times)",
        ),
        ("FL-03-decline-without-count_fail", one(ran(), ran(INCUMBENT, 1)), "INVALID", "no decline was counted"),
        (
            "one-layer-is-enough_fail",
            one(ran(), skipped),
            "INVALID",
            "rank 1, model.layers.2.mlp.experts: lna2 never ran 1..64 rows (lna2 declined bits 64 times)",
        ),
        (
            "layer-known-from-another-window_fail",
            _absent(),
            "INVALID",
            "short: rank 0, model.layers.2.mlp.experts: lna2",
        ),
        ("layer-stood-still_fail", one(ran(), still), "INVALID", "rank 1, model.layers.2.mlp.experts: lna2 never ran"),
        ("counter-forged_fail", one(ran(), forged), "INVALID", "the witness counted lna2 0 times"),
        ("candidate-does-not-count_fail", one(ran(), silent), "INVALID", "counted itself 0 times"),
        ("candidate-counts-other-rows_fail", one(ran(), other_rows), "INVALID", "or other rows"),
        ("decline-in-another-phase_fail", one(both_phases[0], wrong_phase), "INVALID", "undeclared, rows [20]"),
        ("decline-for-another-reason_fail", one(both_phases[0], unnamed), "INVALID", "declined shape"),
        (
            "other-variant-on_fail",
            given({}, SHARED, [(planned, normal.model_copy(update={"variant": "t0"}))]),
            "INVALID",
            "variant t0 was on",
        ),
        ("ran-everywhere_pass", one(*both()), "PASS", "every window"),
        ("both-phases_pass", one(*both_phases), "PASS", "every window"),
        ("linears_pass", _linear(), "PASS", "every window"),
        (
            "FL-04-no-linear-of-its-own_fail",
            _no_reader(),
            "INVALID",
            "rank 0, model.layers.0.mlp.gate_up_proj: lna2 never ran 1..32 rows",
        ),
        (
            "no-linear-was-counted_fail",
            given({}, SHARED, [(_linear().windows[0], sample(planned, EngagedMeasure(tokens=16)))]),
            "INVALID",
            "no linear module was counted",
        ),
        (
            "second-boot_pass",
            given({}, SHARED, [(planned, normal)], [boot("desk", (0,)), boot("shared-a")]),
            "PASS",
            "every window",
        ),
        (
            "incumbent-by-another-name_pass",
            given({}, SHARED, [(planned, normal), _drawn("t0")]),
            "PASS",
            "every window",
        ),
        (
            "incumbent-on-in-the-candidates-window_invalid",
            given(
                {}, SHARED, [(planned, normal.model_copy(update={"variant": INCUMBENT, "engagement": both(INCUMBENT)}))]
            ),
            "INVALID",
            "variant incumbent was on",
        ),
        (
            "unknown-parameter_invalid",
            given({"rows": 4}, SHARED, [(planned, normal)]),
            "INVALID",
            "parameter rows",
        ),
        ("rank-missing_invalid", one(ran()), "INVALID", "rank 1 is missing"),
        ("rank-of-nowhere_invalid", one(*both(), ran(rank=2)), "INVALID", "rank 2 is counted but not of the boot"),
        ("rank-twice_invalid", one(*both(), ran(rank=1)), "INVALID", "ranks are counted twice"),
        ("no-layer_invalid", one(dense, dense.model_copy(update={"rank": 1})), "INVALID", "no routed layer"),
        ("only-controls_invalid", one(*both(), control=True), "INVALID", "no window that is no control"),
        ("only-incumbent-expected_invalid", given({}, SHARED, [_incumbent_only()]), "INVALID", "ran a candidate"),
        (
            "not-measured_invalid",
            given({}, SHARED, [(planned, normal), (_second(), None)]),
            "INVALID",
            "second: not measured",
        ),
        (
            "measured-twice_invalid",
            given({}, SHARED, [(planned, normal), (planned, normal)]),
            "INVALID",
            "measured 2 times",
        ),
        ("boot-unknown_invalid", given({}, SHARED, [(planned, normal)], []), "INVALID", "is not in the record"),
        (
            "boot-without-ranks_invalid",
            given({}, SHARED, [(planned, normal)], [boot("shared-a", ())]),
            "INVALID",
            "names no rank",
        ),
        ("nothing-measured_invalid", given({}, SHARED, [(planned, None)]), "NOT_RUN", "no sample"),
    ]


def _drawn(incumbent: str) -> tuple[Any, Any]:
    """A drawn window whose incumbent has a name of its own, and was drawn."""
    planned = window("q1-b1", "shared-a", "engaged", "drawn", control=False)
    expects = (planned.expects[0], planned.expects[1].model_copy(update={"variant": incumbent}))
    planned = planned.model_copy(update={"expects": expects})
    return planned, sample(planned, EngagedMeasure(tokens=16), incumbent)


def _second() -> Any:
    return window("second", "shared-a", "engaged")


def _incumbent_only() -> tuple[Any, Any]:
    planned = window("short", "shared-a", "engaged", "incumbent", control=False)
    return planned, sample(planned, EngagedMeasure(tokens=16), INCUMBENT)
