"""A server that somebody else started: read, labelled, and left as it was."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from runner.errors import SeatError
from runner.model.plan import PlannedBoot
from runner.model.seat import Attached, SeatManifest
from runner.steps.seats import load_manifest, seat_of
from serve.adapters.attach import AttachedEngine, AttachSeat, absent
from serve.seat import BootRequest
from tests.serve.adapters.test_fake import booted

METRICS = (
    "# TYPE vllm:cache_config_info gauge\n"
    'vllm:cache_config_info{block_size="256",enable_prefix_caching="True",engine="0",num_gpu_blocks="1549"} 1.0\n'
)


class Plain(BaseHTTPRequestHandler):
    """A server of the seat's model without our witness."""

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        models = {"data": [{"id": "dsv4-flash-vision", "max_model_len": 389120}]}
        answers = {"/health": "", "/metrics": METRICS, "/v1/models": json.dumps(models), "/version": '{"version": "9"}'}
        self._answer(200 if self.path in answers else 404, answers.get(self.path, ""))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(404, "")

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


@pytest.fixture
def plain() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Plain) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def seat_at(url: str, **changes: Any) -> SeatManifest:
    return load_manifest("attach").model_copy(update={"attached": Attached(url=url), **changes})


def connected(folder: Path, manifest: SeatManifest, **planned: Any) -> AttachedEngine:
    known = {"id": "shared-a", "role": "shared", "libraries": [], "strict": 0, "seconds": 1}
    boot = PlannedBoot.model_validate(known | planned)
    request = BootRequest(boot, manifest, folder, {}, "incumbent", (), folder)
    seat = seat_of(manifest, boot)
    assert isinstance(seat, AttachSeat)
    return seat.boot(request)


def test_a_server_without_our_witness_is_read_from_outside(tmp_path: Path, plain: str) -> None:
    boot = connected(tmp_path, seat_at(plain))
    record = boot.record
    assert (record.label, record.ranks, record.kv_tokens, record.canary) == ("attached", (), 396544, False)
    assert record.engine == {"name": "vllm", "version": "9"}
    assert {name: record.resolved[name] for name in record.requested} == record.requested
    assert boot.counters() == ()
    ended = boot.stop()
    assert (ended.ended, ended.leftovers) == ("stopped", ())
    assert httpx.get(f"{plain}/health", timeout=120).status_code == 200, "it goes on"


def test_the_toy_is_simulated_wherever_it_runs_and_is_left_running(tmp_path: Path) -> None:
    with booted(tmp_path / "own", lna2="lna2") as engine:
        toy = load_manifest("fake")
        changes = {"served_name": "toy", "arguments": toy.arguments, "tensor_parallel": 1}
        boot = connected(tmp_path, seat_at(engine.base_url, **changes))
        assert boot.record.label == "simulated"
        assert len(boot.counters()) == 1
        boot.switch("incumbent")
        with pytest.raises(SeatError, match="never switched"):
            boot.switch("lna2")
        with pytest.raises(SeatError, match="only read"):
            boot.call("perturb", {"rank": 0})
        assert engine.counters()[0].pid == boot.record.ranks[0].pid
        boot.stop()
        assert engine.call("resolved")[0]["variant"] == "incumbent"


def test_nothing_is_loaded_into_it(tmp_path: Path, plain: str) -> None:
    for planned in ({"libraries": ["lna2"]}, {"arguments": {"max_num_seqs": 1}}, {"product": True}):
        with pytest.raises(SeatError, match="loads nothing"):
            connected(tmp_path, seat_at(plain), **planned)


def test_another_model_or_no_server(tmp_path: Path, plain: str) -> None:
    with pytest.raises(SeatError, match="another model is served"):
        connected(tmp_path, seat_at(plain, served_name="other"))
    nowhere = seat_at("http://127.0.0.1:9")
    with pytest.raises(SeatError, match="no server answers"):
        connected(tmp_path, nowhere)
    (line,) = absent(nowhere)
    assert "no server answers on http://127.0.0.1:9" in line
    assert absent(seat_at(plain)) == ()
