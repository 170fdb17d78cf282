"""Cases of the gates about deliberate changes: an expert's scale, a wrong build, a library that declines or zeros."""

from __future__ import annotations

from typing import Any

from runner.gates.base import GateInput
from runner.model.sample import Engagement, RankShift, RefusalMeasure, ShiftMeasure
from tests.gates.build import (
    CANDIDATE,
    DECODE,
    FORCING,
    INCUMBENT,
    WIDE,
    Case,
    boot,
    both,
    counted,
    given,
    ran,
    sample,
    window,
)


def _shift(name: str, observed: tuple[str, ...], floor: str, **changes: Any) -> tuple[Any, Any]:
    ranks = tuple(RankShift(rank=rank, observed=value) for rank, value in enumerate(observed))
    planned = window(name, "forcing", name, arguments={"variant": "lna2-watermark"} if name == "watermark" else {})
    engagement = both()
    if name == "watermark":
        engagement = tuple(
            one.model_copy(
                update={
                    "witness": (*one.witness, *counted("lna2-watermark", [DECODE])),
                    "candidate": (*one.candidate, *counted("lna2-watermark", [DECODE])),
                }
            )
            for one in engagement
        )
    taken = sample(planned, ShiftMeasure(ranks=ranks, floor=floor), engagement=engagement)
    return planned, taken.model_copy(update=changes)


def watermark() -> list[Case]:
    def one(observed: tuple[str, ...], floor: str = "1e-6", **parameters: str) -> GateInput:
        return given(parameters, FORCING, [_shift("watermark", observed, floor)])

    planned, taken = _shift("watermark", ("0.05", "0.05"), "1e-6")
    return [
        ("output-does-not-care_fail", one(("2e-6", "2e-6")), "FAIL", "rank 0 moved"),
        ("rank-1-does-not-care_fail", one(("0.05", "3e-6")), "FAIL", "rank 1 moved"),
        ("exactly-nothing_fail", one(("0", "0"), "0"), "FAIL", "rank 0 moved"),
        ("inside-the-floor_fail", one(("0.05", "0.05"), "0.01"), "FAIL", "at least 0.1"),
        ("rank-never-changed_fail", one(("0.05",)), "FAIL", "rank 1 was never changed"),
        ("shows-on-every-rank_pass", one(("0.05", "0.04")), "PASS", "every rank"),
        (
            "beside-a-larger-boot_pass",
            given({}, FORCING, [(planned, taken)], [boot("forcing"), boot("other", (0, 1, 2))]),
            "PASS",
            "every rank",
        ),
        (
            "wrong-build-at-prefill-rows_invalid",
            given({}, FORCING, [(planned, _wide(taken))]),
            "INVALID",
            "ran 65 rows",
        ),
        ("limits-of-the-order_pass", one(("0.05", "0.05"), "0.01", factor="4"), "PASS", "every rank"),
        (
            "wrong-build-never-ran_invalid",
            given({}, FORCING, [(planned, taken.model_copy(update={"engagement": both()}))]),
            "INVALID",
            "lna2-watermark never ran",
        ),
        (
            "ids-not-forced_invalid",
            given({}, FORCING, [(planned, taken.model_copy(update={"faults": ("rank0/d1: not the forced ids",)}))]),
            "INVALID",
            "not the forced ids",
        ),
    ]


def _wide(taken: Any) -> Any:
    """The wrong build also ran rows that the right one declines."""
    wide = tuple(
        one.model_copy(
            update={
                "witness": (*one.witness, *counted("lna2-watermark", [WIDE])),
                "candidate": (*one.candidate[:2], *counted("lna2-watermark", [DECODE, WIDE])),
            }
        )
        for one in taken.engagement
    )
    return taken.model_copy(update={"engagement": wide})


def perturbation() -> list[Case]:
    def one(observed: tuple[str, ...], error: str | None = None, **parameters: Any) -> GateInput:
        planned, taken = _shift("perturbation", observed, "1e-6")
        ranks = tuple(
            rank.model_copy(update={} if error is None else {"predicted": "0.03", "error": error})
            for rank in taken.measure.ranks
        )
        measure = taken.measure.model_copy(update={"ranks": ranks})
        return given(parameters, FORCING, [(planned, taken.model_copy(update={"measure": measure}))])

    return [
        ("ignored_fail", one(("1e-6", "1e-6")), "FAIL", "rank 0 moved"),
        ("ignored-on-rank-1_fail", one(("0.03", "1e-6")), "FAIL", "rank 1 moved"),
        ("FL-15-moves-otherwise_fail", one(("0.03", "0.03"), "0.7"), "FAIL", "prediction error"),
        ("moves-as-predicted_pass", one(("0.03", "0.03"), "0.1", predicted=True), "PASS", "every rank"),
        ("moves_pass", one(("0.03", "0.03")), "PASS", "every rank"),
        ("no-prediction_invalid", one(("0.03", "0.03"), predicted=True), "INVALID", "no prediction"),
        (
            "candidate-never-ran_invalid",
            _never_ran(_shift("perturbation", ("0.03", "0.03"), "0")),
            "INVALID",
            "never ran",
        ),
    ]


def _never_ran(reading: tuple[Any, Any]) -> GateInput:
    planned, taken = reading
    return given({}, {planned.boot: "forcing"}, [(planned, taken.model_copy(update={"engagement": both(INCUMBENT)}))])


def knock_out() -> list[Case]:
    decline = window("knock-out-decline", "knock-out-decline", "knock-out-decline", "none")
    zero = window("knock-out-zero", "knock-out-zero", "knock-out-zero", "none", arguments={"variant": CANDIDATE})
    roles = {"knock-out-decline": "knock-out-decline", "knock-out-zero": "knock-out-zero"}
    words = "carve strict 2: variant lna2 declined on rank 0: other"

    def one(
        reason: str = words,
        observed: tuple[str, ...] = ("2.1", "1.9"),
        *,
        refused: bool = True,
        engagement: tuple[Engagement, ...] | None = None,
    ) -> GateInput:
        refusal = RefusalMeasure(refused=refused, reason=reason, ranks=(0,))
        ranks = tuple(RankShift(rank=rank, observed=value) for rank, value in enumerate(observed))
        shift = ShiftMeasure(ranks=ranks, floor="0")
        readings = [
            (decline, sample(decline, refusal, engagement=() if refused else both(INCUMBENT))),
            (zero, sample(zero, shift, INCUMBENT, engagement=engagement or both())),
        ]
        return given({}, roles, readings)

    alone = one()
    return [
        ("SF-08-refusal-swallowed_fail", one("the boot was running", refused=False), "FAIL", "strict let a library"),
        ("zeros-unnoticed_fail", one(observed=("0", "0")), "FAIL", "rank 0 moved"),
        ("zeros-unnoticed-on-rank-1_fail", one(observed=("2.1", "0")), "FAIL", "rank 1 moved"),
        ("both-noticed_pass", one(), "PASS", "noticed"),
        ("port-was-taken_invalid", one("OSError: address already in use"), "INVALID", "for another reason"),
        ("zeros-never-called_invalid", one(engagement=(ran(), ran(INCUMBENT, 1))), "INVALID", "rank 1 never called"),
        (
            "zeros-counted-but-never-called_invalid",
            one(engagement=(ran(), ran(rank=1, rows=[]))),
            "INVALID",
            "rank 1 never",
        ),
        (
            "one-knock-out-only_invalid",
            given({}, roles, [(zero, alone.samples[1])]),
            "INVALID",
            "both knock-outs",
        ),
        ("decline-only_invalid", given({}, roles, [(decline, alone.samples[0])]), "INVALID", "both knock-outs"),
    ]
