"""The fake seat speaks as a real one: HTTP, counters, strict, ranks, and an end that leaves nothing."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from runner.errors import SeatError
from runner.model.plan import PlannedBoot
from runner.steps.seats import load_manifest
from serve.adapters.booted import BootedEngine
from serve.adapters.fake import FakeSeat, label_of
from serve.seat import BootRequest


@contextmanager
def booted(
    folder: Path, variant: str = "incumbent", *, seat: str = "fake", strict: int = 2, **libraries: str
) -> Iterator[BootedEngine]:
    """A fake engine with ``name=library`` variants."""
    planned = PlannedBoot.model_validate(
        {"id": "shared-a", "role": "shared", "libraries": list(libraries), "strict": strict, "seconds": 1}
    )
    request = BootRequest(
        planned=planned,
        manifest=load_manifest(seat),
        pack=folder,
        libraries={name: Path(library) for name, library in libraries.items()},
        variant=variant,
        allowed_declines=("rows-above-limit",),
        folder=folder,
    )
    boot = FakeSeat().boot(request)
    try:
        yield boot
    finally:
        boot.stop()


def complete(boot: BootedEngine, **body: Any) -> dict[str, Any]:
    answer = httpx.post(f"{boot.base_url}/v1/completions", json={"model": "toy", **body}, timeout=120)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_boot_says_what_it_is_and_leaves_nothing(tmp_path: Path) -> None:
    with booted(tmp_path, seat="fake-tp2", lna2="lna2") as boot:
        record = boot.record
        assert record.label == "simulated"
        assert [rank.rank for rank in record.ranks] == [0, 1]
        assert record.canary
        assert record.kv_tokens == 8192
        assert {name: record.resolved[name] for name in record.requested} == record.requested
        pids = [record.pid, *(rank.pid for rank in record.ranks)]
        assert Path(f"/dev/shm/carve_fake_{record.pid}").exists()
    ended = boot.record
    assert (ended.ended, ended.leftovers) == ("stopped", ())
    assert not Path(f"/dev/shm/carve_fake_{record.pid}").exists()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_only_this_project_answers_as_simulated() -> None:
    assert label_of({"distribution": "dsv4-carve"}) == "simulated"
    with pytest.raises(SeatError, match="another engine"):
        label_of({"distribution": "vllm"})


def test_forced_decode_agrees_with_prefill_and_counts_its_rows(tmp_path: Path) -> None:
    ids = list(b"The water of the pond is cold in spring.")
    with booted(tmp_path, lna2="lna2") as boot:
        boot.switch("lna2")
        before = boot.counters()[0]
        forced = complete(
            boot,
            prompt=[ids[0]],
            max_tokens=len(ids) - 1,
            ignore_eos=True,
            logprobs=0,
            return_token_ids=True,
            vllm_xargs={"force_ids": ids[1:]},
        )["choices"][0]
        after = boot.counters()[0]
        boot.switch("incumbent")
        scored = complete(boot, prompt=ids, max_tokens=1, prompt_logprobs=0)["choices"][0]["prompt_logprobs"]
    assert forced["token_ids"] == ids[1:]
    expected = [entry[str(token)]["logprob"] for entry, token in zip(scored[1:], ids[1:], strict=True)]
    assert forced["logprobs"]["token_logprobs"] == pytest.approx(expected, abs=1e-4)
    rows = {row.layer: dict(row.rows) for row in after.candidate}
    assert not before.candidate
    assert set(rows) == {"model.layers.1.mlp.experts", "model.layers.2.mlp.experts"}
    assert all(found == {1: len(ids) - 1} for found in rows.values())
    assert {row.layer: dict(row.rows) for row in after.witness if row.variant == "lna2"} == rows


def test_prefill_above_the_limit_is_declined_and_counted(tmp_path: Path) -> None:
    with booted(tmp_path, lna2="lna2") as boot:
        boot.switch("lna2")
        complete(boot, prompt=list(b"x" * 100), max_tokens=2, ignore_eos=True)
        counters = boot.counters()[0]
    assert [(row.reason, row.count, row.rows) for row in counters.declines] == [
        ("rows-above-limit", 1, ((65, 1),)),
        ("rows-above-limit", 1, ((65, 1),)),
    ]


def test_concurrent_requests_share_steps(tmp_path: Path) -> None:
    with booted(tmp_path) as boot, httpx.Client(base_url=boot.base_url, timeout=120) as client:
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 (only this test has several clients)

        body = {"prompt": [65], "max_tokens": 1000, "ignore_eos": True}
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: client.post("/v1/completions", json=body), range(4)))
        assert all(answer.json()["usage"]["completion_tokens"] == 1000 for answer in answers)
        rows = dict(boot.counters()[0].witness[0].rows)
    assert rows.get(4, 0) > 0


def test_a_needle_is_found_and_a_broken_kernel_loses_text(tmp_path: Path) -> None:
    prompt = "The pass word of the gate is 48213. " + "Rain fell on the hills all day. " * 4
    with booted(tmp_path, lna2="knock-out-zero") as boot:
        question = {"prompt": prompt + "The pass word of the gate is", "max_tokens": 6}
        assert complete(boot, **question)["choices"][0]["text"] == " 48213"
        text = {"prompt": "abc", "max_tokens": 40, "ignore_eos": True}
        whole = complete(boot, **text)["choices"][0]["text"]
        boot.switch("lna2")
        assert complete(boot, **text)["choices"][0]["text"] != whole


def test_strict_refuses_at_the_first_token(tmp_path: Path) -> None:
    refusal = pytest.raises(SeatError, match=r"carve strict 2: variant lna2 declined on rank 0, .*: other")
    with refusal, booted(tmp_path, "lna2", lna2="knock-out-decline"):
        pass


def test_a_variant_without_library_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SeatError, match="not ready"), booted(tmp_path, "lna2"):
        pass
    with booted(tmp_path / "second") as boot, pytest.raises(SeatError, match="not loaded"):
        boot.switch("lna2")


def test_one_rank_can_decline_alone(tmp_path: Path) -> None:
    with booted(tmp_path, seat="fake-tp2", strict=0, lna2="one-rank") as boot:
        boot.switch("lna2")
        complete(boot, prompt=[65], max_tokens=8, ignore_eos=True)
        counters = boot.counters()
    assert not counters[0].declines
    assert {row.reason for row in counters[1].declines} == {"other"}
    assert sum(row.launches for row in counters[1].candidate) == 0


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"prompt": "a", "max_tokens": 2048}, "maximum context length is 2048 tokens"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens must be at least 1"),
        ({"prompt": []}, "not empty"),
        ({"prompt": [999]}, "token ids"),
        ({"prompt": "a", "vllm_xargs": {"force_ids": "x"}}, "force_ids must be a list of ints"),
        ({"prompt": "a", "stream": True, "prompt_logprobs": 0}, "not available when"),
    ],
)
def test_bad_requests_get_the_engine_words(fake_url: str, body: dict[str, Any], words: str) -> None:
    answer = httpx.post(f"{fake_url}/v1/completions", json=body, timeout=120)
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]


@pytest.fixture(scope="module")
def fake_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with booted(tmp_path_factory.mktemp("fake")) as boot:
        yield boot.base_url


def test_unknown_witness_calls_are_refused(fake_url: str) -> None:
    answer = httpx.post(f"{fake_url}/carve/call", json={"method": "forge"}, timeout=120)
    assert answer.status_code == 400
    assert "unknown method" in answer.json()["error"]


def test_metrics_move_with_tokens(fake_url: str) -> None:
    def generated() -> float:
        lines = httpx.get(f"{fake_url}/metrics", timeout=120).text.splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith("vllm:generation_tokens_total"))

    before = generated()
    httpx.post(f"{fake_url}/v1/completions", json={"prompt": "a", "max_tokens": 9, "ignore_eos": True}, timeout=120)
    assert generated() - before == 9


def test_a_dead_rank_ends_the_engine(tmp_path: Path) -> None:
    with booted(tmp_path, seat="fake-tp2") as boot:
        os.kill(boot.record.ranks[1].pid, signal.SIGKILL)
        httpx.post(f"{boot.base_url}/v1/completions", json={"prompt": "a", "max_tokens": 1}, timeout=60)
        deadline = time.monotonic() + 60
        while boot.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        record = boot.stop()
        port = int(boot.base_url.rsplit(":", 1)[1])
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0
    assert record.ended == "died"
    assert record.leftovers == ()
