"""Clients of engines on unix sockets, where warnings about files left open are errors."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from threading import Thread

import httpx
import pytest

from serve.connection import client_of, listens, socket_url


class _Healthy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "engine.socket"
    with ThreadingUnixStreamServer(str(path), _Healthy) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield path
        server.shutdown()
        thread.join()


def test_requests_share_a_connection(engine: Path) -> None:
    with client_of(socket_url(engine), 60) as client:
        assert [client.get("/health").text for _ in range(3)] == ["ok"] * 3
    assert listens(socket_url(engine))


def left_by_a_dead_engine(path: Path) -> None:
    """A socket that was bound and that nobody listens on."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))


@pytest.mark.parametrize("made", [left_by_a_dead_engine, Path.touch, lambda path: None])
def test_where_nothing_listens_no_file_stays_open(tmp_path: Path, made: object) -> None:
    path = tmp_path / "engine.socket"
    assert callable(made)
    made(path)
    assert not listens(socket_url(path))
    with client_of(socket_url(path), 60) as client, pytest.raises(httpx.ConnectError, match="nothing listens on"):
        client.get("/health")
    gc.collect()
