"""Cases of the gates about likelihoods: divergence and perplexity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runner.gates.base import GateInput
from runner.model.plan import Expectation, PlannedWindow
from runner.model.sample import (
    DivergenceDocument,
    DivergenceMeasure,
    DocumentMeasure,
    PerplexityMeasure,
)
from tests.gates.build import CANDIDATE, INCUMBENT, WIDE, Case, both, fell_back, given, ran, sample, window

FORCING = {"forcing": "forcing"}
SHARED = {"shared-b": "shared"}


def kld() -> list[Case]:
    own = window("kld-candidate", "forcing", "kld")
    base = window("kld-incumbent", "forcing", "kld", "incumbent")
    again = window("kld-again", "forcing", "kld", "incumbent")

    def divergence(
        mean: str, *, count: int = 20, reference: str = base.id, agree: int = 95, worst: str = "0.01"
    ) -> Any:
        documents = tuple(
            DivergenceDocument(id=f"d{index}", positions=95, mean_kl=mean, max_kl=worst, top1_agree=agree)
            for index in range(count)
        )
        return DivergenceMeasure(reference_window=reference, documents=documents)

    def one(mean: str, floor: str = "1e-7", *, candidate: Any = own, **changes: Any) -> GateInput:
        parameters = {"bound": "1e-3"} | changes.pop("parameters", {})
        variant = changes.pop("variant", CANDIDATE)
        readings = [
            (base, sample(base, divergence("0"), INCUMBENT)),
            (candidate, sample(candidate, divergence(mean, **changes), variant)),
            (again, sample(again, divergence(floor), INCUMBENT)),
        ]
        return given(parameters, FORCING, readings)

    rising = [f"{index + 1}e-4" for index in range(20)]
    spread = divergence("0").model_copy(
        update={
            "documents": tuple(
                document.model_copy(update={"mean_kl": mean})
                for document, mean in zip(divergence("0").documents, rising, strict=True)
            )
        }
    )
    control = own.model_copy(update={"control": True})
    no_candidate = given({"bound": "1e-3"}, FORCING, [(base, sample(base, divergence("0"), INCUMBENT))])
    worse_half = given({"bound": "1e-3"}, FORCING, [(own, sample(own, spread))])
    fell = sample(own, divergence("0"), engagement=(ran(), fell_back(1)))
    return [
        ("half-of-k_fail", one("0.8", agree=40), "FAIL", "mean KL up to 0.8"),
        ("just-above-the-bound_fail", one("1.1e-3"), "FAIL", "mean KL"),
        ("another-token-first_fail", one("1e-6", agree=90), "FAIL", "top-1 agrees"),
        ("one-position-far-off_fail", one("1e-6", worst="2.5", parameters={"worst": "1"}), "FAIL", "KL of a position"),
        ("worst-end-outside_fail", worse_half, "FAIL", "mean KL up to"),
        ("incumbent-differs-from-itself_fail", one("1e-6", floor="2e-3"), "UNRESOLVED", "the incumbent differs"),
        (
            "inside-the-bounds_pass",
            one("2e-6", parameters={"worst": "0.01"}),
            "PASS",
            "inside the bounds",
            {"kld-candidate largest KL": "<= 0.01"},
        ),
        ("at-the-bound_pass", one("1e-3", floor="1e-3"), "PASS", "inside the bounds", {"kld-candidate largest KL": ""}),
        ("SF-01-control-window_invalid", one("0", candidate=control), "INVALID", "a control window proves nothing"),
        ("compared-with-itself_invalid", one("0", reference=own.id), "INVALID", "compared with itself"),
        ("nineteen-documents_invalid", one("0", count=19), "INVALID", "19 documents"),
        ("no-candidate_invalid", no_candidate, "INVALID", "no window of the candidate"),
        ("one-rank-falls-back_invalid", given({"bound": "1"}, FORCING, [(own, fell)]), "INVALID", "rank 1"),
        ("no-bound_invalid", given({}, FORCING, [(own, fell)]), "INVALID", "parameter bound"),
    ]


def _documents(nll: float, count: int, tokens: int, worse: int = 0, by: float = 0.0) -> PerplexityMeasure:
    documents = tuple(
        DocumentMeasure(
            id=f"d{index:02d}",
            language="en",
            tokens=tokens,
            nll=str(round(nll + (by if index < worse else 0.0), 6)),
        )
        for index in range(count)
    )
    return PerplexityMeasure(documents=documents, preemptions=0)


def _perplexity(name: str, roles: dict[str, str]) -> list[Case]:
    place = next(iter(roles))
    base = window(f"{name}-incumbent", place, name, "incumbent")
    own = window(f"{name}-candidate", place, name)
    if name == "ppl-prefill":
        own = own.model_copy(update={"control": True})
    engagement = both() if name == "ppl-decode" else prefilled()

    def one(measure: PerplexityMeasure, **changes: Any) -> GateInput:
        parameters = {"margin": "0.02"} | changes.pop("parameters", {})
        first = changes.pop("incumbent", _documents(200, 24, 100))
        readings = [
            (base, sample(base, first, INCUMBENT)),
            (own, sample(own, measure, **({"engagement": engagement} | changes))),
        ]
        return given(parameters, roles, readings)

    same = _documents(200, 24, 100)
    alone = sample(base, same, INCUMBENT)
    other = same.model_copy(
        update={"documents": (*same.documents[:-1], same.documents[0].model_copy(update={"id": "x"}))}
    )
    standing: dict[str, Any] = {"margin": "0.02", "perplexity": "7.5"}
    failed = sample(own, same, engagement=engagement, faults=("d07: HTTP 500: out of memory",))
    return [
        ("FL-71-everything-worse_fail", one(_documents(203.9, 24, 100)), "FAIL", "half of the documents"),
        ("beyond-any-exponential_fail", one(_documents(250000, 24, 100)), "FAIL", "half of the documents"),
        ("FL-15-loops_fail", one(_documents(600, 24, 100)), "FAIL", "half of the documents"),
        ("eight-of-24-worse_fail", one(_documents(200, 24, 100, 8, 4.0)), "UNRESOLVED", "the interval reaches"),
        ("line-crossed_fail", one(same, parameters={"perplexity": "7.3"}), "FAIL", "the line 7.3"),
        (
            "standing-over-its-line_fail",
            given(standing | {"perplexity": "7"}, roles, [(base, alone)]),
            "FAIL",
            "the line 7",
        ),
        ("no-worse_pass", one(_documents(201, 24, 100)), "PASS", "margin", {"perplexity": ""}),
        ("at-the-margin_pass", one(_documents(202, 24, 100)), "PASS", "margin"),
        ("seven-of-24-worse_pass", one(_documents(200, 24, 100, 6, 4.0)), "PASS", "margin"),
        *_classes(one),
        ("better_pass", one(_documents(150, 24, 100), parameters={"perplexity": "7.3"}), "PASS", "margin"),
        (
            "standing-alone_pass",
            given(standing, roles, [(base, alone)]),
            "PASS",
            "line holds",
            {"perplexity": "<= 7.5"},
        ),
        (
            "no-line-and-no-candidate_invalid",
            given({"margin": "0"}, roles, [(base, alone)]),
            "INVALID",
            "no perplexity line",
        ),
        (
            "standing-without-tokens_invalid",
            given(standing, roles, [(base, sample(base, _documents(0, 24, 0), INCUMBENT))]),
            "INVALID",
            "no token was scored",
        ),
        (
            "no-incumbent_invalid",
            given(standing, roles, [(own, sample(own, same, engagement=engagement))]),
            "INVALID",
            "no window of the incumbent",
        ),
        ("other-documents_invalid", one(other), "INVALID", "other documents"),
        ("case-29-other-tokens-scored_invalid", one(_documents(200, 24, 101)), "INVALID", "other tokens"),
        ("no-tokens_invalid", one(_documents(0, 24, 0), incumbent=_documents(0, 24, 0)), "INVALID", "other tokens"),
        (
            "nineteen-documents_invalid",
            one(_documents(200, 19, 100), incumbent=_documents(200, 19, 100)),
            "INVALID",
            "19 documents",
        ),
        (
            "FL-36-out-of-memory_invalid",
            given({"margin": "0"}, roles, [(base, alone), (own, failed)]),
            "INVALID",
            "HTTP 500",
        ),
        ("FL-62-no-margin_invalid", given({}, roles, [(base, alone), (own, failed)]), "INVALID", "parameter margin"),
        ("not-measured_invalid", given(standing, roles, [(base, alone), (own, None)]), "INVALID", "not measured"),
    ]


def prefilled() -> tuple[Any, ...]:
    """Whole documents in one step: the candidate declines, as declared, and the incumbent runs."""
    return tuple(fell_back(rank, "rows-above-limit", [WIDE]) for rank in (0, 1))


def _classes(one: Callable[..., GateInput]) -> list[Case]:
    """Sixty documents of three languages, of which one is destroyed, or a few documents are."""

    def spoilt(worse: float, *, every: int = 3, classes: str = "each") -> GateInput:
        before = _documents(200, 60, 100)
        languages = ("en", "code", "ja")
        named = [each.model_copy(update={"language": languages[at % 3]}) for at, each in enumerate(before.documents)]
        after = [
            each.model_copy(update={"nll": str(200 + worse)}) if at % every == 2 else each
            for at, each in enumerate(named)
        ]
        arms = [before.model_copy(update={"documents": tuple(documents)}) for documents in (named, after)]
        return one(arms[1], incumbent=arms[0], parameters={"classes": classes})

    told = {"ja increase": "<= 0.02", "en increase": "<= 0.02"}
    return [
        ("a-language-destroyed_fail", spoilt(500), "FAIL", "ja: worse by 5 nats a token, the margin is 0.02", told),
        ("a-few-documents-destroyed_fail", spoilt(500, every=30), "FAIL", "ja: worse by 0.5 nats a token"),
        (
            "a-language-destroyed-not-asked-about_pass",
            spoilt(500, classes="together"),
            "PASS",
            "no document class is worse by more than the margin",
        ),
        ("a-language-at-the-margin_pass", spoilt(2), "PASS", "no language is worse by more than the margin", told),
    ]


def ppl_prefill() -> list[Case]:
    base = window("ppl-prefill-incumbent", "shared-b", "ppl-prefill", "incumbent")
    same = _documents(200, 24, 100)
    idle = sample(base, same, INCUMBENT, engagement=both(INCUMBENT, []))
    armless = window("ppl-prefill", "shared-b", "ppl-prefill", "none")
    standing: dict[str, Any] = {"margin": "0.02", "perplexity": "7.5"}
    return [
        *_perplexity("ppl-prefill", SHARED),
        ("nothing-ran_invalid", given(standing, SHARED, [(base, idle)]), "INVALID", "nothing declared ran"),
        ("no-arm_invalid", given(standing, SHARED, [(armless, sample(armless, same))]), "INVALID", "no candidate"),
    ]


def ppl_decode() -> list[Case]:
    own = window("ppl-decode-candidate", "forcing", "ppl-decode")
    base = window("ppl-decode-incumbent", "forcing", "ppl-decode", "incumbent")
    same = _documents(200, 24, 100)

    def one(**changes: Any) -> GateInput:
        planned = own.model_copy(update=changes.pop("planned", {}))
        readings = [(base, sample(base, same, INCUMBENT)), (planned, sample(planned, same, **changes))]
        return given({"margin": "0.02"}, FORCING, readings)

    prefill_only = tuple(fell_back(rank, "rows-below-limit") for rank in (0, 1))
    return [
        *_perplexity("ppl-decode", FORCING),
        ("SF-01-case-37-prefill-only_invalid", one(engagement=prefilled()), "INVALID", "lna2 never ran 1..64 rows"),
        ("never-called-in-decode_invalid", one(engagement=prefill_only), "INVALID", "rows-below-limit"),
        ("control-window_invalid", one(planned={"control": True}), "INVALID", "a control window proves nothing"),
        ("other-boot_invalid", one(boot="shared-b-0000000a"), "INVALID", "left no record"),
        *_one_row(base, own, same),
    ]


def _one_row(base: PlannedWindow, own: PlannedWindow, same: PerplexityMeasure) -> list[Case]:
    """The incumbent's documents read again in an engine of one row a step."""
    alone = (Expectation(variant=INCUMBENT, rows_min=1, rows_max=1),)
    again = window("ppl-decode-one-row", "one-row", "ppl-prefill", "incumbent", expects=alone)
    boots = FORCING | {"one-row": "one-row"}

    def one(
        nll: float,
        *,
        tokens: int = 100,
        mine: PerplexityMeasure = same,
        count: int = 6,
        rows: int = 1,
        **parameters: Any,
    ) -> GateInput:
        read = sample(again, _documents(nll, count, tokens), INCUMBENT, engagement=both(INCUMBENT, [(rows, 600)]))
        readings = [(base, sample(base, same, INCUMBENT)), (own, sample(own, mine)), (again, read)]
        return given({"margin": "0.02"} | parameters, boots, readings)

    renamed = _documents(200, 6, 100)
    renamed = renamed.model_copy(
        update={"documents": (*renamed.documents[:-1], renamed.documents[-1].model_copy(update={"id": "x"}))}
    )
    read = sample(again, renamed, INCUMBENT, engagement=both(INCUMBENT, [(1, 600)]))
    other = given(
        {"margin": "0.02"}, boots, [(base, sample(base, same, INCUMBENT)), (own, sample(own, same)), (again, read)]
    )
    missing = given(
        {"margin": "0.02"}, boots, [(base, sample(base, same, INCUMBENT)), (own, sample(own, same)), (again, None)]
    )
    forced_never = given({"margin": "0.02", "perplexity": "7.5"}, boots, [(again, read)])
    limit = {"forced against one row": "<= 0.001"}
    broken = _documents(1e6, 24, 100)
    beyond = given(
        {"margin": "0.02"},
        boots,
        [
            (base, sample(base, broken, INCUMBENT)),
            (own, sample(own, broken)),
            (again, sample(again, _documents(1e6, 6, 100), INCUMBENT, engagement=both(INCUMBENT, [(1, 600)]))),
        ],
    )
    return [
        (
            "one-row-agrees-and-worse_fail",
            one(200, mine=_documents(203.9, 24, 100)),
            "FAIL",
            "half of the documents",
            limit,
        ),
        ("one-row-agrees_pass", one(200.09), "PASS", "margin", limit),
        (
            "one-row-a-wider-limit_pass",
            one(200.3, control="0.004"),
            "PASS",
            "margin",
            {"forced against one row": "<= 0.004"},
        ),
        ("one-row-beyond-any-number_invalid", beyond, "INVALID", "differ by inf of the incumbent's perplexity"),
        ("one-row-higher_invalid", one(200.11), "INVALID", "forced decode and one row at a time differ"),
        ("one-row-lower_invalid", one(199.89), "INVALID", "forced decode and one row at a time differ"),
        ("one-row-other-documents_invalid", other, "INVALID", "not among the forced"),
        ("one-row-other-tokens_invalid", one(200, tokens=99), "INVALID", "not among the forced"),
        ("one-row-no-tokens_invalid", one(0, tokens=0), "INVALID", "not among the forced"),
        ("one-row-no-document_invalid", one(200, count=0), "INVALID", "not among the forced"),
        ("one-row-in-more-rows_invalid", one(200, rows=65), "INVALID", "incumbent ran 65 rows"),
        ("one-row-not-measured_invalid", missing, "INVALID", "ppl-decode-one-row: not measured"),
        ("one-row-and-nothing-forced_invalid", forced_never, "INVALID", "no candidate"),
    ]
