"""Supervised commands in a sandbox: told to stop like any other, and gone with their runner."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from runner.sandbox import TEMPORARY, Reach, available, confined
from serve.adapters.supervisor import Supervised, home_of
from serve.adapters.watchdog import descendants
from serve.connection import client_of, listens, socket_url

SERVER = """
import signal, socketserver, sys, threading
from http.server import BaseHTTPRequestHandler
class Answer(BaseHTTPRequestHandler):
    def address_string(self): return "peer"
    def do_GET(self):
        self.send_response(200); self.send_header("content-length", "2"); self.end_headers(); self.wfile.write(b"ok")
server = socketserver.UnixStreamServer(sys.argv[1], Answer)
def stop(*_):
    print("told to stop", flush=True)
    threading.Thread(target=server.shutdown).start()
signal.signal(signal.SIGTERM, stop)
server.serve_forever(0.02)
"""


def _until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.02)
    return True


def start(folder: Path) -> Supervised:
    """A server on a unix socket, in a sandbox where there is one."""
    command = [sys.executable, "-P", "-c", SERVER, f"{TEMPORARY}/engine.sock"]
    boxed = available().tool != "none"
    if boxed:
        home = home_of(folder)
        home.mkdir(parents=True)
        command = confined(command, Reach(writes=(home,)), home)
    return Supervised.start(command, {}, folder, sandboxed=boxed)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Supervised]:
    found = start(tmp_path / "boot")
    try:
        assert _until((found.temporary / "engine.sock").exists), found.text()
        yield found
    finally:
        found.stop()


def test_a_client_outside_reaches_a_server_without_a_network(running: Supervised) -> None:
    with client_of(socket_url(running.temporary / "engine.sock"), 5.0) as client:
        assert client.get("/health").text == "ok"


def test_a_socket_that_is_not_there_is_an_error_and_leaves_nothing_open(tmp_path: Path) -> None:
    url = socket_url(tmp_path / "engine.sock")
    assert not listens(url)
    with client_of(url, 5.0) as client, pytest.raises(httpx.ConnectError, match="nothing listens"):
        client.get("/health")


def test_the_command_itself_is_told_to_stop(running: Supervised) -> None:
    below = descendants(running.pid)
    assert running.stop() == ()
    assert running.forced == ()
    assert "told to stop" in running.text()
    assert not running.temporary.exists()
    assert [pid for pid in (running.pid, *below) if Path(f"/proc/{pid}").exists()] == []


@pytest.mark.parametrize("victim", ["runner", "watchdog"])
def test_kill_minus_nine_leaves_nothing(tmp_path: Path, victim: str) -> None:
    script = textwrap.dedent(
        f"""
        import time
        from pathlib import Path
        from tests.serve.adapters.test_sandboxed import start
        running = start(Path({str(tmp_path / "boot")!r}))
        while not (running.temporary / "engine.sock").exists():
            time.sleep(0.02)
        print(running.pid, running._watchdog.pid, flush=True)
        time.sleep(600)
        """
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout is not None
        pid, watchdog = map(int, runner.stdout.readline().split())
        started = [pid, *descendants(pid)]
        os.kill(runner.pid if victim == "runner" else watchdog, signal.SIGKILL)
        try:
            assert _until(lambda: not [each for each in started if Path(f"/proc/{each}").exists()], 10.0)
        finally:
            runner.kill()


def test_a_name_that_it_chose_does_not_make_it_remove_what_others_own(tmp_path: Path) -> None:
    """Inside its own shared memory a command may use the name of somebody else's."""
    foreign = Path(f"/dev/shm/psm_foreign_{os.getpid()}")
    foreign.touch()
    try:
        command = [
            sys.executable,
            "-c",
            f"import time; held = open('{foreign}', 'w'); print('held', flush=True); time.sleep(600)",
        ]
        boxed = available().tool != "none"
        if boxed:
            command = confined(command, Reach(), Path("/"))
            running = Supervised.start(command, {}, tmp_path, sandboxed=True)
            assert _until(lambda: "held" in running.text()), running.text()
            assert running.stop() == ()
        assert foreign.exists()
    finally:
        foreign.unlink()


def test_a_loopback_address_is_an_address_as_ever() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        client_of(f"http://127.0.0.1:{server.getsockname()[1]}", 0.2) as client,
    ):
        assert client.base_url.host == "127.0.0.1"
        with pytest.raises(httpx.TimeoutException):
            client.get("/")
