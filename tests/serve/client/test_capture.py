"""What goes wrong between client and engine is written down, not raised: a real server that misbehaves on purpose."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import httpx
import pytest

from runner.errors import SeatError
from serve.client import capture
from serve.client.machine import MachineWatch, read_state
from serve.client.texts import Tokeniser
from serve.instruments.answers import read_stream
from serve.instruments.metrics import GENERATION_TOKENS, total


class Misbehaving(BaseHTTPRequestHandler):
    """Answers by the prompt; metrics move for a while after the last token."""

    reads: ClassVar[int] = 0

    def log_message(self, format: str, *arguments: Any) -> None:
        """No access log."""

    def do_GET(self) -> None:
        type(self).reads += 1
        self._answer(200, f"vllm:generation_tokens_total {min(self.reads, 3)}.0\nprocess_cpu {self.reads}\n".encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if "page" in body:
            self._answer(502, b"<html>bad gateway</html>")
        elif "silence" in body:
            self.close_connection = True
        else:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b'data: {"choices": [{"token_ids": [5], "finish_reason": null}]}\n\n')
            self.close_connection = True

    def _answer(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    Misbehaving.reads = 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), Misbehaving)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{server.server_port}", trust_env=False, timeout=120) as connected:
        yield connected
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_stream_that_breaks_off_keeps_what_came(client: httpx.Client) -> None:
    exchange = capture._stream(client, "x", {"prompt": "half"})
    assert exchange.status == 200
    assert len(exchange.events) == 1
    told = read_stream(exchange)
    assert told.token_ids == (5,)
    assert any("transport_error" in fault for fault in told.faults)


def test_a_page_is_kept_as_text(client: httpx.Client) -> None:
    for ask in (capture._post, capture._stream):
        exchange = ask(client, "x", {"prompt": "page"})
        assert (exchange.status, exchange.body) == (502, "<html>bad gateway</html>")


def test_no_answer_is_an_answer_of_status_0(client: httpx.Client) -> None:
    exchange = capture._post(client, "x", {"prompt": "silence"})
    assert exchange.status == 0
    assert "transport_error" in str(exchange.body)


def test_metrics_are_read_until_they_stand_still(client: httpx.Client) -> None:
    text = capture._metrics(client)
    assert total(text, GENERATION_TOKENS) == 3
    assert Misbehaving.reads == 4


def test_an_engine_that_is_gone_has_no_metrics_and_no_tokens() -> None:
    with httpx.Client(base_url="http://127.0.0.1:9", trust_env=False) as nobody:
        with pytest.raises(SeatError, match="metrics"):
            capture._metrics(nobody)
        with pytest.raises(SeatError, match="tokenise"):
            Tokeniser(nobody, "toy")("text")


def test_a_tokeniser_that_answers_a_page_is_an_error(client: httpx.Client) -> None:
    with pytest.raises(SeatError, match="tokenise"):
        Tokeniser(client, "toy")("page")


def test_own_processor_time_is_part_of_the_busy_time() -> None:
    with MachineWatch(os.getpid()) as watch:
        sum(index * index for index in range(3_000_000))
    first, last = watch.states[0], watch.states[-1]
    assert len(watch.states) >= 2
    assert last.at_ns > first.at_ns
    assert last.own_ticks > first.own_ticks
    assert last.busy_ticks > first.busy_ticks
    assert read_state(2**22 + 1).own_ticks > 0, "an engine that has ended counts nothing, and the runner still does"
