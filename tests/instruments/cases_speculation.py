"""Cases of the instruments about speculation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runner.model.evidence import Exchange
from tests.instruments.build import Case, evidence, exchange, window


def scrape(
    drafts: float | None = 0, drafted: int = 0, accepted: int = 0, by_position: Sequence[int] = (0, 0), tokens: int = 0
) -> str:
    """What ``/metrics`` says; no counter of speculation where ``drafts`` is None."""
    lines = [
        f'vllm:generation_tokens_total{{engine="0"}} {tokens}.0',
        f'vllm:request_success_total{{engine="0",finished_reason="length"}} {2.0 if tokens else 0.0}',
        'vllm:num_preemptions_total{engine="0"} 0.0',
        'vllm:prefix_cache_hits_total{engine="0"} 0.0',
    ]
    if drafts is not None:
        labels = 'engine="0",model_name="mini"'
        lines += [
            f"vllm:spec_decode_num_drafts_total{{{labels}}} {drafts}",
            f"vllm:spec_decode_num_draft_tokens_total{{{labels}}} {drafted}.0",
            f"vllm:spec_decode_num_accepted_tokens_total{{{labels}}} {accepted}.0",
            *(
                f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="{position}"}} {count}.0'
                for position, count in enumerate(by_position)
            ),
            'vllm:spec_decode_num_accepted_tokens_per_pos_created{engine="0",position="0"} 1.7e+09',
        ]
    return "".join(f"{line}\n" for line in lines)


def acceptance() -> list[Case]:
    of = window("acceptance", arguments={"language": "ja", "speculates": True})
    off = window("acceptance", arguments={"language": "ja", "speculates": False})
    before = scrape(7, 21, 9, (6, 3), tokens=0)
    after = scrape(27, 61, 27, (18, 9), tokens=40)
    answers = [exchange(f"d00{n}-ja", {"choices": [{"text": "x"}], "usage": {"completion_tokens": 20}}) for n in (1, 2)]

    def one(scraped: str = after, first: str = before, asked: Sequence[Exchange] = answers, at: Any = of) -> Any:
        return [evidence(at, asked, metrics_before=first, metrics_after=scraped)]

    failed = [answers[0], exchange("d002-ja", {"error": "x"}, 500)]
    fresh = scrape(20, 40, 18, (12, 6), tokens=40)
    nameless = of.model_copy(update={"arguments": {"language": "ja"}})
    unspoken = of.model_copy(update={"arguments": {"speculates": True}})
    return [
        ("twenty-drafts_pass", one(), of, None),
        ("counters-appear-inside_pass", one(fresh, scrape(None)), of, None),
        ("nothing-accepted_pass", one(scrape(27, 61, 9, (6, 3), tokens=40)), of, None),
        ("without-speculation_pass", one(scrape(None, tokens=40), scrape(None), at=off), off, None),
        ("counters-stand-still_pass", one(scrape(0, tokens=40), scrape(0), at=off), off, None),
        ("restarted-between-scrapes_fail", one(scrape(5, 10, 4, (3, 1), tokens=40)), of, "ran backwards"),
        ("one-position-restarted_fail", one(scrape(27, 61, 27, (26, 1), tokens=40)), of, "ran backwards"),
        (
            "positions-do-not-add-up_fail",
            one(scrape(27, 61, 28, (18, 9), tokens=40)),
            of,
            "19 tokens accepted, 18 over",
        ),
        ("later-position-more-often_fail", one(scrape(27, 61, 27, (14, 13), tokens=40)), of, "more often than the one"),
        ("more-often-than-drafted_fail", one(scrape(17, 61, 27, (18, 9), tokens=40)), of, "more often than the one"),
        ("more-accepted-than-drafted_fail", one(scrape(27, 30, 27, (18, 9), tokens=40)), of, "18 tokens accepted of 9"),
        ("no-counter_fail", one(scrape(None, tokens=40), scrape(None)), of, "serves no counter of speculation"),
        ("speculates-all-the-same_fail", one(at=off), off, "20 drafts in an engine that was not to speculate"),
        ("tokens-of-others_fail", one(scrape(27, 61, 27, (18, 9), tokens=41)), of, "usage says 40 tokens"),
        ("not-scraped_fail", one("", ""), of, "usage says 40 tokens, /metrics None"),
        ("requests-of-others_fail", one(asked=answers[:1]), of, "2.0 requests finished in the window, 1 are ours"),
        ("a-request-failed_fail", one(asked=failed), of, "d002-ja: HTTP 500"),
        ("speculation-not-said_fail", one(at=nameless), nameless, "names its language and whether"),
        ("language-not-said_fail", one(at=unspoken), unspoken, "names its language and whether"),
    ]


def greedy_band() -> list[Case]:
    of = window("greedy-band", arguments={"reference_window": "greedy-band-reference"})
    reference = of.model_copy(update={"id": "greedy-band-reference", "arguments": {}})
    material = {
        "texts": {"d001-en": {"language": "en", "tokens": [1, 2]}, "d002-ja": {"language": "ja", "tokens": [3]}}
    }

    def answer(name: str, ids: Any, top: Any = None, status: int = 200) -> Exchange:
        tops = top if top is not None else [{"token_id:5": -0.5, "token_id:6": -0.75, "token_id:7": -3.0}] * len(ids)
        return exchange(name, {"choices": [{"token_ids": ids, "logprobs": {"top_logprobs": tops}}]}, status)

    def read(at: Any, *answers: Exchange, **parts: Any) -> Any:
        return evidence(at, answers, **({"material": material} | parts))

    standing = read(reference, answer("d001-en", [5, 5, 5]), answer("d002-ja", [5, 5]))

    def one(*answers: Exchange, against: Any = standing, **parts: Any) -> Any:
        return [read(of, *answers, **parts), against]

    same = (answer("d001-en", [5, 5, 5]), answer("d002-ja", [5, 5]))
    parted = answer("d001-en", [5, 6, 9])
    other = {"texts": material["texts"] | {"d001-en": {"language": "en", "tokens": [1, 9]}}}
    untold = read(reference, answer("d001-en", [5, 5, 5], top=[]), same[1])
    half = read(reference, same[0])
    no_ids = exchange("d001-en", {"choices": [{"text": "x"}]})
    empty = (answer("d001-en", []), same[1])
    return [
        ("the-same_pass", one(*same), of, None),
        ("parts-near-a-tie_pass", one(parted, same[1]), of, None),
        ("a-token-not-named_pass", one(answer("d001-en", [5, 5, 9]), same[1]), of, None),
        ("shorter_pass", one(answer("d001-en", [5, 5]), same[1]), of, None),
        ("the-reference-itself_pass", [standing], reference, None),
        ("reference-not-measured_fail", [one(*same)[0]], of, "the reference window's evidence is missing"),
        ("asked-something-else_fail", one(*same, material=other), of, "was asked something else"),
        ("reference-asked-less_fail", one(*same, against=half), of, "d002-ja: the reference has no answer"),
        ("never-asked_fail", one(same[0]), of, "d002-ja: never asked"),
        ("failed_fail", one(same[0], exchange("d002-ja", {"error": "x"}, 500)), of, "d002-ja: HTTP 500"),
        ("no-token-ids_fail", one(no_ids, same[1]), of, "a greedy text has no token ids"),
        ("empty_fail", one(*empty), of, "d001-en: an empty text"),
        ("no-logprobs-where-they-part_fail", one(parted, same[1], against=untold), of, "no top logprobs where"),
        ("nothing-asked_fail", [read(reference, material={"texts": {}})], reference, "no text was compared"),
    ]
