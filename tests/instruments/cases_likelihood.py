"""Cases of logprobs and answers: perplexity, divergence and needles."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Any

from runner.model.evidence import Evidence, Exchange
from runner.model.plan import PlannedWindow
from tests.instruments.build import REFUSED, Case, counters, evidence, exchange, metrics, window
from tests.instruments.cases_streams import texts


def scored(name: str, logprobs: Sequence[float] = (-1.5, -0.25), **changes: Any) -> Exchange:
    """``prompt_logprobs`` of the document [1, 2, 3]; another token is more likely than its own everywhere."""
    entries: list[Any] = [None]
    for token, value in zip((2, 3), logprobs, strict=False):
        entries.append({"99": {"logprob": -0.1, "rank": 1}, str(token): {"logprob": value, "rank": 2}})
    choice = {"prompt_logprobs": changes.pop("entries", entries), "text": "x"}
    body = changes.pop("body", {"choices": [choice]})
    return exchange(name, body, request={"prompt": [1, 2, 3], "prompt_logprobs": 0}, **changes)


def agreement() -> list[Case]:
    of = window("agreement")
    document: dict[str, Any] = {"tokens": [1, 2, 3], "theirs": [-1.5, -0.26], "ours": [-1.5, -0.25]}
    document |= {"distances": [0.001, 0.003, 0.002], "float16": [0.001, 0.001, 0.0015]}
    told = {"exllamav3": "1.6.5", "torch": "2.11.0", "device": "a card", "another_batch": "0.0004", "record": "a" * 64}

    def one(*exchanges: Exchange, documents: Any = (document, document), **parts: Any) -> Any:
        facts = {"agreement": told | {"documents": list(documents)} | parts.pop("told", {})}
        return [evidence(of, exchanges, facts=facts, **parts)]

    both, lacks = (scored("d1"), scored("d2", (-2.0, -1.0))), "lacks what this instrument reads"
    ties: dict[str, Any] = {"told": {"tie": "0.002", "choices": "18"}}
    routed = document | {"routed": [0.001, 0.0012, 0.002], "routed_float16": [0.001, 0.001, 0.0016], "ties": 2}
    routed |= {"others": [[1, 2, 0.00014]]}
    crooked = routed | {"routed": [0.001]}
    short, few = document | {"distances": [0.001, 0.003]}, document | {"theirs": [-1.5]}
    return [
        ("two-documents_pass", one(*both), of, None),
        ("ties-told-apart_pass", one(*both, documents=(routed, routed), **ties), of, None),
        (
            "ties-of-another-length_fail",
            one(*both, documents=(routed, crooked), **ties),
            of,
            "d2: the record has another",
        ),
        ("ties-without-rows_fail", one(*both, **ties), of, lacks),
        ("never-asked_fail", one(both[0]), of, "d2: never asked"),
        ("another-length_fail", one(*both, documents=(document, short)), of, "d2: the record has another length"),
        ("too-few-likelihoods_fail", one(*both, documents=(document, few)), of, "d2: the record has another length"),
        ("no-document_fail", one(documents=()), of, "no document was read"),
        ("preempted_fail", one(*both, metrics_after=metrics(100, 1.0, 3)), of, "preempt"),
        ("record-is-no-digest_fail", one(*both, told={"record": "the file"}), of, lacks),
        ("without-documents_fail", one(*both, told={"documents": None}), of, lacks),
        ("a-document-is-text_fail", one(*both, documents=("d1", document)), of, lacks),
        ("not-compared_fail", [evidence(of, both)], of, lacks),
    ]


def ppl_prefill() -> list[Case]:
    planned = window("ppl-prefill")

    def one(*exchanges: Exchange, **parts: Any) -> Any:
        return [evidence(planned, exchanges, **({"material": texts("en-1", "ja-1")} | parts))]

    foreign = scored("ja-1", entries=[None, {"99": {"logprob": -0.1}}, {"3": {"logprob": -0.1}}])
    wordless = scored("ja-1", entries=[None, {"2": {"logprob": "low"}}, {"3": {"logprob": -0.1}}])
    hole = scored("ja-1", entries=[None, None, {"3": {"logprob": -0.1}}])
    return [
        ("SF-14-by-token-id_pass", one(scored("en-1"), scored("ja-1", (-2.0, -1.0))), planned, None),
        (
            "no-cache-family_pass",
            one(scored("en-1"), scored("ja-1"), metrics_after=metrics(100, 1.0, 2).replace("prefix", "x")),
            planned,
            None,
        ),
        ("own-token-missing_fail", one(scored("en-1"), foreign), planned, "position 1 has no logprob of its own"),
        ("logprob-is-text_fail", one(scored("en-1"), wordless), planned, "position 1 has no logprob"),
        ("position-missing_fail", one(scored("en-1"), hole), planned, "position 1 has no logprob"),
        (
            "case-28-stand-in-for-infinity_fail",
            one(scored("en-1"), scored("ja-1", (-1.0, -9999.0))),
            planned,
            "ja-1: position 2 has logprob -9999.0",
        ),
        ("logprob-above-0_fail", one(scored("en-1"), scored("ja-1", (0.5, -1.0))), planned, "position 1 has logprob"),
        ("too-short_fail", one(scored("en-1"), scored("ja-1", (-1.0,))), planned, "of another length"),
        ("case-28-ignored_fail", one(scored("en-1"), scored("ja-1", entries="none")), planned, "are missing"),
        (
            "FL-36-out-of-memory_fail",
            one(scored("en-1"), scored("ja-1", body={"error": "OOM"}, status=500)),
            planned,
            "ja-1: HTTP 500",
        ),
        (
            "error-with-200_fail",
            one(scored("en-1"), scored("ja-1", body={"error": "OOM", "choices": [{}]})),
            planned,
            "OOM",
        ),
        ("no-choices_fail", one(scored("en-1"), scored("ja-1", body={"choices": []})), planned, "HTTP 200"),
        ("body-is-text_fail", one(scored("en-1"), scored("ja-1", body="<html>")), planned, "<html>"),
        ("answer-with-500_fail", one(scored("en-1"), scored("ja-1", status=500)), planned, "ja-1: HTTP 500"),
        ("never-asked_fail", one(scored("en-1")), planned, "ja-1: never asked"),
        ("no-finite-number_fail", one(scored("en-1"), scored("ja-1", (-1e300, -1.0))), planned, "no logarithm"),
        ("nothing-scored_fail", one(material={"texts": {}}), planned, "no document was scored"),
        (
            "warm-prefix-cache_fail",
            one(scored("en-1"), scored("ja-1"), metrics_after=metrics(100, 1.0, 2, 3)),
            planned,
            "3 prefix-cache",
        ),
    ]


def forced(name: str, logprobs: Sequence[float] = (-1.5, -0.25), **changes: Any) -> Exchange:
    """Forced decode of [1, 2, 3]."""
    tops = changes.pop("tops", None)
    found = {"token_logprobs": list(logprobs), "top_logprobs": tops}
    choice = {"token_ids": changes.pop("ids", [2, 3]), "logprobs": changes.pop("found", found), "text": "x"}
    request = {"prompt": [1], "vllm_xargs": {"force_ids": [2, 3]}}
    return exchange(name, changes.pop("body", {"choices": [choice]}), request=request, **changes)


def ppl_decode() -> list[Case]:
    planned = window("ppl-decode")

    def one(*exchanges: Exchange, **parts: Any) -> Any:
        return [evidence(planned, exchanges, **({"material": texts("en-1", "ja-1")} | parts))]

    return [
        ("forced_pass", one(forced("en-1"), forced("ja-1", (-2.0, -1.0))), planned, None),
        (
            "other-declines_pass",
            one(forced("en-1"), forced("ja-1"), counters_after=(counters(9, declines=2),)),
            planned,
            None,
        ),
        ("ids-not-forced_fail", one(forced("en-1"), forced("ja-1", ids=[2, 9])), planned, "not the forced ids"),
        ("processor-ignored_fail", one(forced("en-1"), forced("ja-1", ids=None)), planned, "not the forced ids"),
        ("logprobs-short_fail", one(forced("en-1"), forced("ja-1", (-1.0,))), planned, "token_logprobs are missing"),
        ("no-logprobs_fail", one(forced("en-1"), forced("ja-1", found={})), planned, "token_logprobs are missing"),
        (
            "case-28-null_fail",
            one(forced("en-1"), forced("ja-1", found={"token_logprobs": [None, -1.0]})),
            planned,
            "a token has no logprob",
        ),
        (
            "case-28-stand-in-for-infinity_fail",
            one(forced("en-1"), forced("ja-1", (-9999.0, -1.0))),
            planned,
            "position 1 has logprob -9999.0",
        ),
        (
            "preempted_fail",
            one(forced("en-1"), forced("ja-1"), metrics_after=metrics(100, 1.0, 4)),
            planned,
            "2 preemptions",
        ),
        ("force-ids-refused_fail", one(forced("en-1"), forced("ja-1", body=REFUSED, status=400)), planned, "HTTP 400"),
        ("never-asked_fail", one(forced("en-1")), planned, "ja-1: never asked"),
    ]


def tops(first: dict[int, float], second: dict[int, float]) -> list[dict[str, float]]:
    """Probabilities by token id → top logprobs of two positions."""
    return [{f"token_id:{token}": log(value) for token, value in top.items()} for top in (first, second)]


def kld() -> list[Case]:
    own = window("kld", arguments={"reference_window": "kld-incumbent"})
    base = window("kld", id="kld-incumbent")
    flat, steep = {2: 0.5, 7: 0.25}, {3: 0.75, 7: 0.125}
    shifted = {2: 0.25, 7: 0.5}
    drawn = {"positions": {"en-1": [0], "ja-1": [1]}}

    def reading(of: PlannedWindow, *pairs: Any, ids: Sequence[int] = (2, 3), **parts: Any) -> Evidence:
        exchanges = [
            forced(name, tops=found, ids=list(ids)) for name, found in zip(("en-1", "ja-1"), pairs, strict=False)
        ]
        return evidence(of, exchanges, **({"material": texts("en-1", "ja-1") | drawn} | parts))

    same = tops(flat, steep)
    reference = reading(base, same, same)
    named = [{"the": -0.5}, {"a": -0.5}]
    return [
        ("compared_pass", [reading(own, tops(shifted, steep), same), reference], own, None),
        ("other-tops_pass", [reading(own, tops({2: 0.5, 9: 0.25}, steep), same), reference], own, None),
        ("ranks-tie_pass", [reading(own, tops({2: 0.25, 7: 0.25}, steep), same), reference], own, None),
        ("its-own-reference_pass", [reference], base, None),
        ("more-than-all_pass", [reading(own, tops({2: 0.5, 7: 0.5}, steep), same), reference], own, None),
        ("reference-not-given_fail", [reading(own, same, same)], own, "the divergence needs its reference"),
        ("other-reference_fail", [reading(own, same, same), reading(own, same, same)], own, "needs its reference"),
        (
            "other-material_fail",
            [reading(own, same, same), reading(base, same, same, material=texts("en-1") | drawn)],
            own,
            "other material",
        ),
        ("ids-not-forced_fail", [reading(own, same, same, ids=(2, 9)), reference], own, "not the forced ids"),
        (
            "reference-not-forced_fail",
            [reading(own, same, same), reading(base, same, same, ids=(9, 3))],
            own,
            "not the forced",
        ),
        ("no-tops_fail", [reading(own, None, None), reference], own, "top logprobs are missing"),
        (
            "reference-without-tops_fail",
            [reading(own, same, same), reading(base, same, same[:1])],
            own,
            "top logprobs are missing",
        ),
        (
            "a-position-without-tops_fail",
            [reading(own, same, [same[0], None]), reference],
            own,
            "not named by token id",
        ),
        ("named-by-text_fail", [reading(own, same, named), reference], own, "not named by token id"),
        (
            "reference-by-text_fail",
            [reading(own, same, same), reading(base, same, named)],
            own,
            "not named by token id",
        ),
        ("never-asked_fail", [reading(own, same), reference], own, "ja-1: never asked"),
        ("reference-never-asked_fail", [reading(own, same, same), reading(base, same)], own, "ja-1: never asked"),
        (
            "nothing-compared_fail",
            [evidence(of, material={"texts": {}, "positions": {}}) for of in (own, base)],
            own,
            "no document",
        ),
        (
            "preempted_fail",
            [reading(own, same, same, metrics_after=metrics(100, 1.0, 3)), reference],
            own,
            "1 preemptions",
        ),
    ]


def needle() -> list[Case]:
    planned = window("needle")
    hidden = {
        "en-10": {"language": "en", "depth_percent": 10, "answer": "01234"},
        "ja-90": {"language": "ja", "depth_percent": 90, "answer": "55555"},
    }

    labelled = window("needle", arguments={"prompt_tokens": 1760})

    def answer(name: str, text: str, length: int = 1792, **changes: Any) -> Exchange:
        body = {"choices": [{"text": text}], "usage": {"prompt_tokens": length}}
        return exchange(name, changes.pop("body", body), **changes)

    def one(*exchanges: Exchange, **parts: Any) -> Any:
        return [evidence(planned, exchanges, **({"material": {"needles": hidden}} | parts))]

    return [
        ("found_pass", one(answer("en-10", " 01234."), answer("ja-90", "55555です")), planned, None),
        ("one-missed_pass", one(answer("en-10", "01234"), answer("ja-90", "5555")), planned, None),
        ("longer-number-is-missed_pass", one(answer("en-10", "012345"), answer("ja-90", "55555")), planned, None),
        (
            "later-in-the-text-is-missed_pass",
            one(answer("en-10", "It is 01234"), answer("ja-90", "55555")),
            planned,
            None,
        ),
        (
            "FL-58-error-is-no-miss_fail",
            one(answer("en-10", "01234"), answer("ja-90", "", body=REFUSED, status=400)),
            planned,
            "ja-90: HTTP 400",
        ),
        ("never-asked_fail", one(answer("en-10", "01234")), planned, "ja-90: never asked"),
        (
            "SF-04-warm-cache_fail",
            one(answer("en-10", "01234"), answer("ja-90", "5"), metrics_after=metrics(100, 1.0, 2, 16)),
            planned,
            "16 prefix-cache",
        ),
        ("nothing-hidden_fail", one(material={"needles": {}}), planned, "no needle"),
        (
            "no-usage_fail",
            one(answer("en-10", "01234", body={"choices": [{"text": "01234"}]}), answer("ja-90", "55555")),
            planned,
            "does not say how long",
        ),
        (
            "case-32-inside-another-word_pass",
            one(answer("en-10", "see b-01234 and 6.01234.3"), answer("ja-90", "55555")),
            planned,
            None,
        ),
        (
            "case-32-a-list-of-codes_pass",
            one(answer("en-10", "01234, 55555, 90210"), answer("ja-90", "55555 (55555)")),
            planned,
            None,
        ),
        (
            "case-32-the-digits-and-a-year_pass",
            one(answer("en-10", "01234 in 2026"), answer("ja-90", "55555")),
            planned,
            None,
        ),
        (
            "case-32-no-content_pass",
            one(
                answer("en-10", "", body={"choices": [{}], "usage": {"prompt_tokens": 1792}}),
                answer("ja-90", ""),
            ),
            planned,
            None,
        ),
        ("case-34-as-long-as-its-label_pass", one(answer("en-10", "01234"), answer("ja-90", "55555")), labelled, None),
        (
            "case-34-shorter-than-its-label_fail",
            one(answer("en-10", "01234", 801), answer("ja-90", "55555")),
            labelled,
            "en-10: the prompt had 801 tokens, planned were 1760",
        ),
        (
            "case-34-only-what-was-not-cached_fail",
            one(answer("en-10", "01234"), answer("ja-90", "55555", 3)),
            labelled,
            "ja-90: the prompt had 3 tokens",
        ),
    ]


def sensitivity() -> list[Case]:
    planned = window("sensitivity")
    facts: dict[str, Any] = {
        "loss": {"en-1": "1.5", "ja-1": "2"},
        "layers": {
            "model.layers.3": {"loss": {"en-1": "1.51", "ja-1": "2"}, "kl": {"en-1": "0.01", "ja-1": "0.03"}},
            "together": {"loss": {"en-1": "1.53", "ja-1": "1.99"}, "kl": {"en-1": "0.02", "ja-1": "0.04"}},
        },
    }

    def one(**changes: Any) -> list[Evidence]:
        return [evidence(planned, facts=facts | changes, material=texts("en-1", "ja-1"))]

    def layers(**changes: Any) -> dict[str, Any]:
        return {**facts["layers"], **changes}

    hole = {"loss": {"en-1": "1.53"}, "kl": {"en-1": "0.02", "ja-1": "0.04"}}
    endless = {"loss": {"en-1": "1.53", "ja-1": "nan"}, "kl": {"en-1": "0.02", "ja-1": "inf"}}
    alone = {name: row for name, row in facts["layers"].items() if name != "together"}
    return [
        ("two-layers_pass", one(), planned, None),
        ("better-on-a-document_pass", one(loss={"en-1": "1.6", "ja-1": "2.5"}), planned, None),
        ("a-document-missing_fail", one(layers=layers(together=hole)), planned, "together: loss: ja-1 has no finite"),
        ("no-finite-number_fail", one(layers=layers(together=endless)), planned, "together: KL: ja-1 has no finite"),
        ("standing-pack-missing_fail", one(loss={"en-1": "1.5"}), planned, "standing pack: ja-1 has no finite"),
        ("no-divergence_fail", one(layers=layers(together={"loss": facts["loss"]})), planned, "together: KL: en-1"),
        ("row-is-text_fail", one(layers=layers(together="1.5")), planned, "together: loss: en-1"),
        ("never-together_fail", one(layers=alone), planned, "together were never measured"),
        ("nothing-measured_fail", one(layers=None), planned, "lacks what"),
    ]
