"""Cases of the second versions of ``kld``, ``ppl-prefill`` and ``ppl-decode``: every language decides by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from runner.gates.base import GateInput
from runner.model.plan import PlannedWindow
from runner.model.sample import DivergenceDocument, DivergenceMeasure, DocumentMeasure, PerplexityMeasure
from tests.gates.build import CANDIDATE, INCUMBENT, Case, both, fell_back, given, ran, sample, window
from tests.gates.cases_quality import FORCING, SHARED, prefilled

LANGUAGES = ("en", "ja", "code")
Values = Callable[[str, int], float]
"""Of a language's document, by its place among those of the language."""


def _language(index: int, languages: tuple[str, ...]) -> tuple[str, int]:
    return languages[index % len(languages)], index // len(languages)


def _all(value: float) -> Values:
    return lambda language, place: value


def _ruined(name: str, value: float, *, first: int = 10**6, others: float = 0.0) -> Values:
    """The first documents of one language, or all of them."""
    return lambda language, place: value if language == name and place < first else others


def _scored(nll: Values, count: int = 24, tokens: int = 100, languages: tuple[str, ...] = LANGUAGES) -> Any:
    found = []
    for index in range(count):
        language, place = _language(index, languages)
        name = f"d{index + 1:03d}-{language}"
        text = str(round(200 + tokens * nll(language, place), 6))
        found.append(DocumentMeasure(id=name, language=language, tokens=tokens, nll=text))
    return PerplexityMeasure(documents=tuple(found), preemptions=0)


def _perplexity(name: str, roles: Mapping[str, str]) -> list[Case]:
    place = next(iter(roles))
    base = window(f"{name}-incumbent", place, name, "incumbent")
    own = window(f"{name}-candidate", place, name)
    if name == "ppl-prefill":
        own = own.model_copy(update={"control": True})
    engagement = both() if name == "ppl-decode" else prefilled()

    def judged(mine: PerplexityMeasure, theirs: PerplexityMeasure, **parameters: Any) -> GateInput:
        readings = [(base, sample(base, theirs, INCUMBENT)), (own, sample(own, mine, engagement=engagement))]
        return given({"margin": "0.02"} | parameters, dict(roles), readings)

    def one(delta: Values, count: int = 24, languages: tuple[str, ...] = LANGUAGES, **parameters: Any) -> GateInput:
        equal = _scored(_all(0), count, languages=languages)
        return judged(_scored(delta, count, languages=languages), equal, **parameters)

    same = _scored(_all(0))
    documents = same.documents
    nameless = same.model_copy(update={"documents": (documents[0].model_copy(update={"language": ""}), *documents[1:])})
    renamed = same.model_copy(
        update={"documents": (documents[0].model_copy(update={"language": "fr"}), *documents[1:])}
    )
    alone = given({"margin": "0.02", "perplexity": "7.5"}, dict(roles), [(base, sample(base, same, INCUMBENT))])
    lonely = given({"margin": "0.02"}, dict(roles), [(own, sample(own, same, engagement=engagement))])
    passed, limit = "no language is worse", {"ja worst end": "<= 0.02", "ja mean loss": "<= 0.02"}
    return [
        ("one-language-of-96-ruined_fail", one(_ruined("ja", 16), 96), "FAIL", "ja: half of the documents", limit),
        ("one-language-of-24-ruined_fail", one(_ruined("code", 16)), "FAIL", "code: half of the documents"),
        ("a-quarter-of-a-language-ruined_fail", one(_ruined("ja", 16, first=8), 96), "FAIL", "ja: documents lose 4 "),
        ("one-document-of-96-ruined_fail", one(_ruined("en", 16, first=1), 96), "FAIL", "en: documents lose 0.5 "),
        (
            "gains-elsewhere-make-up-for-nothing_fail",
            one(_ruined("en", 1, first=5, others=-5), 96),
            "FAIL",
            "en: documents lose 0.15",
        ),
        ("FL-71-everything-worse_fail", one(_all(0.039)), "FAIL", "code: half of the documents"),
        ("beyond-any-exponential_fail", one(_all(2500)), "FAIL", "en: half of the documents"),
        ("one-document-of-eight-beyond_fail", one(_ruined("ja", 0.03, first=1)), "UNRESOLVED", "ja: the interval"),
        ("five-of-a-language_fail", one(_all(0), 20, (*LANGUAGES, "fr")), "UNRESOLVED", "5 documents cannot cover"),
        ("line-crossed_fail", one(_all(0), perplexity="7.3"), "FAIL", "the line 7.3"),
        ("no-worse_pass", one(_all(0.01)), "PASS", passed, limit | {"perplexity": ""}),
        ("at-the-margin_pass", one(_all(0.02)), "PASS", passed),
        ("six-of-a-language_pass", one(_all(0.01), 20), "PASS", passed),
        ("two-of-sixteen-beyond_pass", one(_ruined("ja", 0.03, first=2), 48), "PASS", passed),
        ("better_pass", one(_all(-0.5), perplexity="7.3"), "PASS", passed),
        ("standing-alone_pass", alone, "PASS", "line holds", {"perplexity": "<= 7.5"}),
        ("no-incumbent_invalid", lonely, "INVALID", "no window of the incumbent"),
        ("no-language_invalid", judged(nameless, nameless), "INVALID", "no language, or two, of ['d001-en']"),
        ("two-languages-of-one_invalid", judged(renamed, same), "INVALID", "no language, or two, of ['d001-en']"),
        ("nineteen-documents_invalid", one(_all(0), 19), "INVALID", "19 documents"),
        ("no-margin_invalid", judged(same, same, margin=None), "INVALID", "parameter margin"),
    ]


def ppl_prefill() -> list[Case]:
    return _perplexity("ppl-prefill", SHARED)


def ppl_decode() -> list[Case]:
    own = window("ppl-decode-candidate", "forcing", "ppl-decode")
    base = window("ppl-decode-incumbent", "forcing", "ppl-decode", "incumbent")
    same = _scored(_all(0))

    def one(planned: PlannedWindow, **changes: Any) -> GateInput:
        readings = [(base, sample(base, same, INCUMBENT)), (planned, sample(planned, same, **changes))]
        return given({"margin": "0.02"}, FORCING, readings)

    prefill_only = tuple(fell_back(rank, "rows-below-limit") for rank in (0, 1))
    control = own.model_copy(update={"control": True})
    return [
        *_perplexity("ppl-decode", FORCING),
        ("SF-01-case-37-prefill-only_invalid", one(own, engagement=prefilled()), "INVALID", "lna2 never ran 1..64"),
        ("never-called-in-decode_invalid", one(own, engagement=prefill_only), "INVALID", "rows-below-limit"),
        ("control-window_invalid", one(control), "INVALID", "a control window proves nothing"),
    ]


def kld() -> list[Case]:
    own = window("kld-candidate", "forcing", "kld")
    base = window("kld-incumbent", "forcing", "kld", "incumbent")
    again = window("kld-again", "forcing", "kld", "incumbent")

    def divergence(
        mean: Values,
        count: int = 24,
        *,
        languages: tuple[str, ...] = LANGUAGES,
        agree: Values = lambda language, place: 95,
        worst: str = "0.01",
        reference: str = base.id,
        positions: int = 95,
    ) -> DivergenceMeasure:
        found = []
        for index in range(count):
            language, place = _language(index, languages)
            found.append(
                DivergenceDocument(
                    id=f"d{index + 1:03d}-{language}" if language else f"d{index + 1:03d}",
                    positions=positions,
                    mean_kl=format(mean(language, place), ".6g"),
                    max_kl=worst,
                    top1_agree=int(agree(language, place)),
                )
            )
        return DivergenceMeasure(reference_window=reference, documents=tuple(found))

    def one(mean: Values, count: int = 24, *, floor: float = 1e-7, planned: Any = own, **changes: Any) -> GateInput:
        parameters = {"bound": "1e-3"} | changes.pop("parameters", {})
        readings = [
            (base, sample(base, divergence(_all(0)), INCUMBENT)),
            (planned, sample(planned, divergence(mean, count, **changes), CANDIDATE)),
            (again, sample(again, divergence(_all(floor)), INCUMBENT)),
        ]
        return given(parameters, FORCING, readings)

    control = own.model_copy(update={"control": True})
    no_candidate = given({"bound": "1e-3"}, FORCING, [(base, sample(base, divergence(_all(0)), INCUMBENT))])
    fell = sample(own, divergence(_all(0)), engagement=(ran(), fell_back(1)))
    passed, limits = "inside the bounds in every language", {"kld-candidate ja worst end": "<= 1e-3"}
    return [
        ("one-language-of-96-ruined_fail", one(_ruined("ja", 16), 96), "FAIL", "kld-candidate ja: half", limits),
        ("a-quarter-of-a-language-ruined_fail", one(_ruined("ja", 1, first=8), 96), "FAIL", "ja: documents lose 0.25"),
        ("half-of-k_fail", one(_all(0.8), agree=lambda language, place: 40), "FAIL", "code: half of the documents"),
        ("just-above-the-bound_fail", one(_all(1.1e-3)), "FAIL", "half of the documents"),
        (
            "another-token-first-in-one-language_fail",
            one(_all(1e-6), agree=_ruined("code", 90, others=95)),
            "FAIL",
            "code: top-1 agrees at 0.9474",
            {"kld-candidate code top-1 agreement": ">= 0.99"},
        ),
        ("one-position-far-off_fail", one(_all(1e-6), worst="2.5", parameters={"worst": "1"}), "FAIL", "KL of a pos"),
        ("one-document-of-eight-beyond_fail", one(_ruined("ja", 2e-3, first=1)), "UNRESOLVED", "ja: the interval"),
        ("five-of-a-language_fail", one(_all(0), 20, languages=(*LANGUAGES, "fr")), "UNRESOLVED", "5 documents cannot"),
        ("incumbent-differs-from-itself_fail", one(_all(1e-6), floor=2e-3), "UNRESOLVED", "the incumbent differs"),
        (
            "inside-the-bounds_pass",
            one(_all(2e-6), parameters={"worst": "0.01"}),
            "PASS",
            passed,
            limits | {"kld-candidate largest KL": "<= 0.01"},
        ),
        ("at-the-bound_pass", one(_all(1e-3), floor=1e-3), "PASS", passed, {"kld-candidate largest KL": ""}),
        ("six-of-a-language_pass", one(_all(1e-6), 20), "PASS", passed),
        (
            "another-token-first-now-and-then_pass",
            one(_all(1e-6), agree=lambda language, place: 95 - (place == 0)),
            "PASS",
            passed,
        ),
        ("SF-01-control-window_invalid", one(_all(0), planned=control), "INVALID", "a control window proves nothing"),
        ("compared-with-itself_invalid", one(_all(0), reference=own.id), "INVALID", "compared with itself"),
        ("nineteen-documents_invalid", one(_all(0), 19), "INVALID", "19 documents"),
        ("no-position_invalid", one(_all(0), positions=0), "INVALID", "0 documents"),
        ("no-language_invalid", one(_all(0), languages=("",)), "INVALID", "d001 names no language"),
        ("no-candidate_invalid", no_candidate, "INVALID", "no window of the candidate"),
        ("one-rank-falls-back_invalid", given({"bound": "1"}, FORCING, [(own, fell)]), "INVALID", "rank 1"),
        ("no-bound_invalid", given({}, FORCING, [(own, fell)]), "INVALID", "parameter bound"),
    ]
