"""Cases of the gate about what a recipe made and whether it was served."""

from __future__ import annotations

from typing import Any

from runner.gates.base import GateInput
from runner.model.boot import BootRecord, RankIdentity
from runner.model.plan import PlannedBoot
from runner.model.sample import EngagedMeasure, ProductMeasure, SensitivityMeasure, SensitivityRow
from tests.gates.build import DESK, DIGEST, NO_RANKS, RANKS, Case, boot, given, sample, window

OTHER = "b" * 64
SEALED = {"header": DIGEST, "payload": OTHER}
TREE = {"tree": "d" * 64}
STANDING, MADE = "incumbent-only", "candidate-only"


def served(name: str, weights: str, trees: dict[str, str] | None = None) -> BootRecord:
    ranks = tuple(
        RankIdentity(rank=rank, pid=101 + rank, libraries={}, trees=trees or {}, weights=weights) for rank in RANKS
    )
    return boot(name).model_copy(update={"ranks": ranks})


def one(
    boots: tuple[BootRecord, ...] = (served(STANDING, DIGEST), served(MADE, OTHER)),
    *,
    faults: tuple[str, ...] = (),
    digests: dict[str, str] | None = None,
    **parameters: Any,
) -> GateInput:
    planned = window("product", "desk", "product", "none")
    found = SEALED if digests is None else digests
    measure = ProductMeasure(digests=found, summary={"tensors replaced": "72"}, faults=faults)
    whole = given({"digests": SEALED} | parameters, DESK, [(planned, sample(planned, measure, **NO_RANKS))])
    arms = (
        PlannedBoot(id=STANDING, role="incumbent-only", libraries=(), strict=0, seconds=15),
        PlannedBoot(id=MADE, role="candidate-only", libraries=(), strict=0, product=True, seconds=15),
    )
    desk = whole.planned_boots[0].model_copy(update={"product": True})
    return whole.model_copy(update={"planned_boots": (desk, *arms), "boots": (*whole.boots, *boots)})


def product() -> list[Case]:
    standing, made = served(STANDING, DIGEST), served(MADE, OTHER)
    one_rank = made.model_copy(update={"ranks": (made.ranks[0], made.ranks[1].model_copy(update={"weights": DIGEST}))})
    code = (served(STANDING, DIGEST), served(MADE, DIGEST, {"product": TREE["tree"]}))
    both_code = (served(STANDING, DIGEST, {"product": TREE["tree"]}), code[1])
    by_code: dict[str, Any] = {"digests": TREE, "loaded": "code"}
    planned = window("product", "desk", "product", "none")
    wrong = one()
    other_kind = wrong.model_copy(
        update={"samples": (sample(planned, EngagedMeasure(tokens=1), **NO_RANKS),)},
    )
    return [
        ("changed_pass", one(), "PASS", "served", {"header": DIGEST}),
        ("draft-layers-only_pass", one((standing, served(MADE, DIGEST)), loaded="same"), "PASS", "served"),
        ("patched_pass", one_code(code, by_code), "PASS", "served"),
        (
            "FL-38-nothing-was-dropped_fail",
            one(faults=("experts.0.gate_proj.weight should be absent",)),
            "FAIL",
            "absent",
        ),
        ("exchanged-after-sealing_fail", one(digests=SEALED | {"payload": "c" * 64}), "FAIL", "payload is"),
        ("digest-not-found_fail", one(digests={"header": DIGEST}), "FAIL", "payload is none"),
        ("standing-pack-was-served_fail", one((standing, served(MADE, DIGEST))), "FAIL", "the incumbent's weights"),
        ("one-rank-kept-the-old-weights_fail", one((standing, one_rank)), "FAIL", "rank 1"),
        ("draft-only-but-the-model-changed_fail", one(loaded="same"), "FAIL", "other weights"),
        ("one-of-two-boots-served-the-old_fail", one((standing, made, again())), "FAIL", "candidate-only-0000000b"),
        (
            "FL-14-patch-not-imported_fail",
            one_code((standing, standing_as_made()), by_code),
            "FAIL",
            "imported product",
        ),
        ("incumbent-is-patched-too_fail", one_code(both_code, by_code), "FAIL", "incumbent-only"),
        (
            "patched-but-no-tree-sealed_fail",
            one(code, loaded="code"),
            "FAIL",
            "expected none",
        ),
        ("read-again-after-the-boot_pass", one((standing, reread(made, SEALED))), "PASS", "served"),
        (
            "exchanged-before-the-boot_fail",
            one((standing, reread(made, SEALED | {"payload": DIGEST}))),
            "FAIL",
            "payload after candidate-only",
        ),
        (
            "exchanged-and-put-back_fail",
            one((standing, reread(made, SEALED, "config.json was written or exchanged"))),
            "FAIL",
            "config.json was written",
        ),
        ("nothing-sealed_invalid", unsealed(), "INVALID", "sealed no"),
        ("candidate-never-booted_invalid", one((standing,)), "NOT_RUN", "candidate"),
        ("incumbent-never-booted_invalid", one((made,)), "NOT_RUN", "incumbent"),
        ("no-engine-was-planned_invalid", without_engines(), "NOT_RUN", "two arms"),
        ("ranks-unknown_invalid", one((standing, made.model_copy(update={"ranks": ()}))), "NOT_RUN", "candidate"),
        ("broken-before-any-boot_fail", without_engines("a tensor is missing"), "FAIL", "missing"),
        ("not-read-again_invalid", wrong.model_copy(update={"samples": ()}), "NOT_RUN", "no sample"),
        ("no-window_invalid", wrong.model_copy(update={"windows": (), "samples": ()}), "NOT_RUN", "no sample"),
        ("sample-of-another-kind_invalid", other_kind, "INVALID", "kind engaged"),
        ("unknown-parameter_invalid", one(weights="new"), "INVALID", "parameter weights"),
    ]


def one_code(boots: tuple[BootRecord, ...], parameters: dict[str, Any]) -> GateInput:
    """A patch order's product: a tree of code under one digest."""
    whole = one(boots, digests=TREE)
    return whole.model_copy(update={"parameters": parameters})


def reread(record: BootRecord, digests: dict[str, str], *changes: str) -> BootRecord:
    """A boot after which the product was read again."""
    return record.model_copy(update={"product": digests, "product_changes": changes})


def again() -> BootRecord:
    """A second boot of the candidate's that came up with the standing pack."""
    return served(MADE, DIGEST).model_copy(update={"id": f"{MADE}-0000000b"})


def standing_as_made() -> BootRecord:
    """The candidate's boot with the installed code."""
    return served(MADE, DIGEST)


def unsealed() -> GateInput:
    return one().model_copy(update={"parameters": {}})


def without_engines(*faults: str) -> GateInput:
    whole = one((), faults=faults)
    return whole.model_copy(update={"planned_boots": whole.planned_boots[:1]})


def sensitivity() -> list[Case]:
    planned = window("sensitivity", "desk", "sensitivity", "none")

    def row(layer: str, delta: float, documents: int = 24, outlier: float = 0.0) -> SensitivityRow:
        deltas = {f"d{number:03d}-en": f"{delta + outlier * (number == 0):.6f}" for number in range(documents)}
        return SensitivityRow(layer=layer, deltas=deltas, mean_kl="0.001")

    def one(*rows: SensitivityRow, **parameters: str) -> GateInput:
        measure = SensitivityMeasure(tokens=3048, rows=rows)
        return given({"line": "0.02"} | parameters, DESK, [(planned, sample(planned, measure, **NO_RANKS))])

    first, second = row("model.layers.3", 0.004), row("model.layers.21", 0.007)
    other_kind = given({"line": "0.02"}, DESK, [(planned, sample(planned, EngagedMeasure(tokens=1), **NO_RANKS))])
    below, above = row("together", 0.0116), row("together", 0.0388)
    return [
        (
            "below-the-line_pass",
            one(first, second, below),
            "PASS",
            "below the retreat line",
            {"together worst end": "<= 0.02", "model.layers.3 worst end": ""},
        ),
        ("exactly-on-the-line_pass", one(first, row("together", 0.019802)), "PASS", "below the retreat line"),
        ("one-document-far-out_pass", one(first, row("together", 0.0116, outlier=0.4)), "PASS", "below"),
        ("no-line-for-one-layer_pass", one(row("model.layers.3", 0.05), below), "PASS", "below"),
        ("above-the-line_fail", one(first, second, above), "FAIL", "together: perplexity rises by up to 3.96 %"),
        (
            "singles-below-but-not-together_fail",
            one(row("model.layers.3", 0.0041), row("model.layers.13", 0.0106), above, each="0.02"),
            "FAIL",
            "together",
        ),
        (
            "one-layer-above-its-line_fail",
            one(first, row("model.layers.9", 0.03), below, each="0.02"),
            "FAIL",
            "layers.9",
        ),
        (
            "beyond-any-exponential_fail",
            one(first, row("together", 2500)),
            "FAIL",
            "together: perplexity rises by up to",
        ),
        ("nothing-together_invalid", one(first, second), "INVALID", "all of them together"),
        ("only-together_invalid", one(below), "INVALID", "not every layer"),
        ("a-layer-twice_invalid", one(first, first, below), "INVALID", "not every layer"),
        ("too-few-documents_invalid", one(first, row("together", 0.001, 19)), "INVALID", "at least 20"),
        (
            "too-few-of-one-layer_invalid",
            one(row("model.layers.3", 0.001, 3), below),
            "INVALID",
            "layers.3: 3 documents",
        ),
        ("not-measured_invalid", given({"line": "0.02"}, DESK, [(planned, None)]), "NOT_RUN", "no sample"),
        ("sample-of-another-kind_invalid", other_kind, "INVALID", "kind engaged"),
        (
            "no-line-sealed_invalid",
            one(first, below).model_copy(update={"parameters": {}}),
            "INVALID",
            "parameter line",
        ),
    ]
