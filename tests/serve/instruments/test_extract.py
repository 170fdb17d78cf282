"""The committed extract: smaller, and read alike."""

from __future__ import annotations

import json
import struct

from hypothesis import given
from hypothesis import strategies as st

from runner.digest import sha256_json
from runner.model.evidence import Evidence, Exchange
from serve.instruments.extract import extract, relevant, shortest
from serve.instruments.likelihood import single
from serve.instruments.metrics import total

FLOAT32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(FLOAT32)
def test_the_shortest_number_is_the_same_float32(value: float) -> None:
    assert struct.pack("<f", shortest(value)) == struct.pack("<f", value)
    assert len(repr(shortest(value))) <= len(repr(value))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_number_is_read_alike_from_the_extract(value: float) -> None:
    assert single(shortest(value)) == single(value)


@given(st.one_of(st.none(), st.text(), st.integers(), st.lists(st.integers())))
def test_what_is_no_number_stays(value: object) -> None:
    assert shortest(value) == value


def test_metrics_keep_the_families_that_are_read() -> None:
    text = (
        "# HELP vllm:generation_tokens_total Tokens.\n"
        'vllm:generation_tokens_total{engine="0"} 12.0\n'
        'vllm:generation_tokens_created{engine="0"} 1.7e9\n'
        "process_open_fds 9.0\n"
    )
    assert relevant(text) == 'vllm:generation_tokens_total{engine="0"} 12.0\n'
    assert total(relevant(text), "vllm:generation_tokens_total") == 12.0


def forced(identifier: str, positions: int) -> Exchange:
    """Forced decode of ``positions`` tokens with two top logprobs each."""
    top = [{f"token_id:{at}": -0.10000000149011612, "token_id:99": -2.5} for at in range(positions)]
    choice = {
        "index": 0,
        "token_ids": list(range(positions)),
        "logprobs": {"token_logprobs": [-0.10000000149011612] * positions, "top_logprobs": top, "text_offset": [0]},
    }
    return Exchange(
        id=identifier,
        path="/v1/completions",
        request={"prompt": [1], "vllm_xargs": {"force_ids": list(range(positions))}, "logprobs": 2},
        status=200,
        sent_ns=0,
        done_ns=1,
        body={"choices": [choice], "usage": {"total_tokens": positions}},
    )


def test_only_drawn_positions_keep_their_top_logprobs() -> None:
    evidence = Evidence(
        window="kld",
        boot="b",
        instrument="kld@1",
        variant="lna2",
        opened_at="2026-11-30T12:00:00Z",
        opened_ns=0,
        closed_ns=1,
        exchanges=(forced("d1", 3), forced("d2", 3)),
        material={"texts": {}, "positions": {"d1": [1]}},
    )
    first, second = (json.loads(json.dumps(one.body))["choices"][0] for one in extract(evidence).exchanges)
    assert first == {
        "token_ids": [0, 1, 2],
        "logprobs": {"top_logprobs": [None, {"token_id:1": -0.1, "token_id:99": -2.5}, None]},
    }
    assert second["logprobs"] == {"token_logprobs": [-0.1, -0.1, -0.1]}
    kept = {"logprobs": 2, "prompt_digest": sha256_json([1])}
    assert [one.request for one in extract(evidence).exchanges] == [kept] * 2
