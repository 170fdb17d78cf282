"""Cases of the instruments about memory, first tokens, sane text, scores and images."""

from __future__ import annotations

from typing import Any

from runner.model.evidence import Call, Exchange
from tests.instruments.build import Case, evidence, exchange, metrics, window
from tests.instruments.cases_likelihood import forced
from tests.instruments.cases_streams import stream, texts

HELD = {"weights_bytes": 4096, "kv_cache_tokens": 512, "dtype": "float32", "enforce_eager": True}
PREDICTED = {"weights_bytes": 4000, "kv_cache_tokens": 512}


def memory() -> list[Case]:
    of = window("memory")

    def one(*live: Any, predicted: Any = None, method: str = "resolved") -> Any:
        calls = (Call(method=method, arguments={}, results=live, at_ns=0),) if live else ()
        facts = {"predicted": [PREDICTED, PREDICTED] if predicted is None else predicted}
        return [evidence(of, calls=calls, facts=facts)]

    return [
        ("two-ranks_pass", one(HELD, HELD), of, None),
        ("every-size-is-told_pass", one(HELD | {"scratch_bytes": 7}, HELD), of, None),
        ("a-rank-did-not-answer_fail", one(HELD), of, "2 ranks were predicted, 1 answered"),
        ("a-rank-nobody-predicted_fail", one(HELD, HELD, HELD), of, "2 ranks were predicted, 3 answered"),
        ("a-name-is-not-told_fail", one(HELD, {"weights_bytes": 4096}), of, "rank 1: the engine does not say its kv_"),
        ("true-is-no-number_fail", one(HELD, HELD | {"kv_cache_tokens": True}), of, "does not say its kv_cache_tokens"),
        ("an-answer-is-text_fail", one(HELD, "gone"), of, "rank 1: the engine does not say its weights_bytes"),
        ("not-asked_fail", one(), of, "lacks what this instrument reads"),
        ("asked-something-else_fail", one(HELD, HELD, method="identity"), of, "lacks what this instrument reads"),
        ("prediction-is-text_fail", one(HELD, HELD, predicted="2 GiB"), of, "lacks what this instrument reads"),
    ]


def sanity() -> list[Case]:
    of = window("sanity")
    asked = {name: {"language": name.rpartition("-")[2], "tokens": [1]} for name in ("d1-en", "d2-ja", "d3-code")}

    def answer(name: str, text: Any, ids: Any = (1, 2, 3, 4, 5, 6)) -> Exchange:
        return exchange(name, {"choices": [{"text": text, "token_ids": list(ids) if ids is not None else None}]})

    good = (
        answer("d1-en", "Two words, été."),
        answer("d2-ja", "漢字とカナ、and ｱ"),
        answer("d3-code", "x = 'é'\n\tpass\x00"),
    )

    def one(*answers: Exchange, material: Any = asked) -> Any:
        return [evidence(of, answers, material={"texts": material})]

    loop = answer("d1-en", "a a a a", (7,) * 12)
    return [
        ("three-languages_pass", one(*good), of, None),
        ("a-circle_pass", one(loop, *good[1:]), of, None),
        ("nothing-to-read_pass", one(answer("d1-en", "...", (1, 2)), *good[1:]), of, None),
        ("never-asked_fail", one(*good[:2]), of, "d3-code: never asked"),
        ("failed_fail", one(*good[:2], exchange("d3-code", {"error": "x"}, 500)), of, "d3-code: HTTP 500"),
        ("no-text_fail", one(answer("d1-en", None), *good[1:]), of, "lacks its text or its token ids"),
        ("no-ids_fail", one(answer("d1-en", "x", None), *good[1:]), of, "lacks its text or its token ids"),
        ("no-material_fail", one(material={}), of, "no text was written"),
    ]


def score() -> list[Case]:
    of = window("score")
    item: dict[str, Any] = {"language": "en", "context": [9], "choices": [[2, 3], [4, 5], [6, 7]], "answer": 1}

    def answer(name: str, *values: float, ids: Any = None) -> Exchange:
        number = int(name[-1])
        return forced(name, values, ids=ids or item["choices"][number])

    right = (answer("i1/0", -2.0, -1.0), answer("i1/1", -0.5, -0.25), answer("i1/2", -1.0, -0.5))
    wrong = (right[0], right[1], answer("i1/2", -0.25, -0.25))

    def one(*answers: Exchange, of_: Any = item, **parts: Any) -> Any:
        return [evidence(of, answers, material={"items": {"i1": of_} if of_ else {}}, **parts)]

    unforced = answer("i1/2", -1.0, -0.5, ids=[6, 8])
    lonely = item | {"choices": [[2, 3]], "answer": 0}
    return [
        ("the-own-continuation_pass", one(*right), of, None),
        ("another-is-likelier_pass", one(*wrong), of, None),
        ("equally-likely_pass", one(right[0], right[1], answer("i1/2", -0.5, -0.25)), of, None),
        ("not-forced_fail", one(right[0], right[1], unforced), of, "i1/2: the generated ids are not the forced ids"),
        ("a-choice-never-asked_fail", one(*right[:2]), of, "i1/2: never asked"),
        ("nothing-to-choose-from_fail", one(right[0], of_=lonely), of, "no item was scored"),
        ("no-item_fail", one(*right, of_=None), of, "no item was scored"),
        ("preempted_fail", one(*right, metrics_after=metrics(100, 1.0, 3)), of, "preempt"),
    ]


def vision() -> list[Case]:
    of = window("vision")
    cards = {"c1": {"answer": "482"}, "c2": {"answer": "17"}}

    def said(name: str, words: Any) -> Exchange:
        return exchange(name, {"choices": [{"message": {"role": "assistant", "content": words}}]})

    def one(*answers: Exchange, material: Any = cards) -> Any:
        return [evidence(of, answers, material={"cards": material})]

    second = said("c2", "17")
    return [
        ("both-read_pass", one(said("c1", "The card says 482."), second), of, None),
        ("twice-the-same_pass", one(said("c1", "482. Yes, 482!"), second), of, None),
        ("a-list-of-numbers_pass", one(said("c1", "481, 482 or 483"), second), of, None),
        ("inside-another-number_pass", one(said("c1", "14820"), second), of, None),
        ("silence_pass", one(said("c1", None), second), of, None),
        ("no-message_pass", one(exchange("c1", {"choices": [{"text": "482"}]}), second), of, None),
        ("never-shown_fail", one(second), of, "c1: never asked"),
        ("no-vision-here_fail", one(exchange("c1", {"error": "not multimodal"}, 400), second), of, "c1: HTTP 400"),
        ("no-card_fail", one(material={}), of, "no card was shown"),
    ]


def ttft() -> list[Case]:
    of = window("ttft")
    names = ("en-1", "ja-1")

    def one(*exchanges: Exchange, **parts: Any) -> Any:
        return [evidence(of, exchanges, **({"material": texts(*names)} | parts))]

    both = (stream("en-1", [5]), stream("ja-1", [6, 7], sent_ns=5_000_000))
    cached = {"metrics_after": metrics(100, 1.0, 2, hits=16)}
    return [
        ("two-prompts_pass", one(*both), of, None),
        ("never-asked_fail", one(both[0]), of, "ja-1: never asked"),
        ("H7-warm-cache_fail", one(*both, **cached), of, "cache"),
        ("broke-off_fail", one(both[0], stream("ja-1", [6], end=False)), of, "ja-1: the stream broke off"),
        ("no-prompt_fail", one(*both, material={}), of, "lacks what this instrument reads"),
    ]
