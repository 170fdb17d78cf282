"""A stand-in for docker: a client program on the path, and a daemon in the test's process that answers it.

It records every command line, answers from data, and runs what a container is asked to run as a fake engine that really
serves HTTP. As with the real one a container belongs to the daemon: neither the client's nor the runner's end ends it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

IMAGE = "ab" * 32
_KILLED = 128 + 9
IMAGE_ENVIRONMENT = ["PATH=/usr/local/bin:/usr/bin", "CUDA_VERSION=13.0"]
_CLIENT = """#!{python} -IS
import json, os, signal, socket, sys
server = socket.socket(socket.AF_UNIX)
try:
    server.connect(os.environ["DOCKER_HOST"].removeprefix("unix://"))
except OSError:
    sys.exit("Cannot connect to the Docker daemon. Is the docker daemon running?")
signal.signal(signal.SIGTERM, lambda *_: server.sendall(b'"TERM"\\n'))
server.sendall(json.dumps(sys.argv[1:]).encode() + b"\\n")
for line in server.makefile():
    told = json.loads(line)
    if "exit" in told:
        sys.exit(told["exit"])
    print(told["text"], end="", flush=True, file=sys.stderr if told["error"] else sys.stdout)
sys.exit("the daemon hung up")
"""


@dataclass
class World:
    """What the daemon knows, and what is to go wrong."""

    images: dict[str, list[str]] = field(default_factory=lambda: {IMAGE: IMAGE_ENVIRONMENT})
    """By digest, the environment each sets."""
    denied: bool = False
    port_taken: bool = False
    reset: dict[str, str] = field(default_factory=dict)
    """Variables that the engine sets otherwise than it was told."""
    runs: str = ""
    """Digest of another image that the container runs."""
    drops: str = ""
    """Inside path of a mount that the container does not get."""
    adds: str = ""
    """Inside path of a mount that nobody asked for."""
    dies_at: str = ""
    """The engine is killed once it has printed this."""
    out_of_memory: bool = False
    """Whoever is killed was killed for memory."""
    says: str = ""
    """Printed by the engine at its start."""
    holds_back: str = ""
    """What the engine prints arrives only once a line with this text has been printed, as through a slow pipe."""


@dataclass
class Container:
    """One container and its engine."""

    name: str
    inspect: dict[str, Any]
    process: subprocess.Popen[str] | None = None
    log: list[str] = field(default_factory=list)

    def end(self, signal: int = 15) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal)

    def settle(self, code: int, *, out_of_memory: bool = False) -> None:
        """Its process has ended."""
        state = {"Running": False, "Status": "exited", "ExitCode": code, "OOMKilled": out_of_memory}
        self.inspect["State"] |= state


class Daemon:
    """Answers clients; :attr:`calls` holds every command line."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.calls: list[list[str]] = []
        self.containers: dict[str, Container] = {}

    def answer(self, argv: list[str], client: _Handler) -> int:
        """Run one command; its exit code."""
        self.calls.append(argv)
        if self.world.denied:
            return client.fail("permission denied while trying to connect to the docker API at unix:///docker.sock")
        handlers = {"run": self._run, "stop": self._stop, "rm": self._rm, "ps": self._ps, "logs": self._logs}
        if argv[0] in handlers:
            return handlers[argv[0]](argv[1:], client)
        if argv[0] == "version":
            return client.say("29.0.1\n")
        if argv[:2] == ["image", "inspect"]:
            digest = argv[2].removeprefix("sha256:")
            if digest not in self.world.images:
                return client.fail(f"Error response from daemon: No such image: {argv[2]}")
            return client.say(json.dumps([{"Id": argv[2], "Config": {"Env": self.world.images[digest]}}]))
        assert argv[:3] == ["inspect", "--type", "container"], argv
        known = [self.containers[name].inspect for name in argv[3:] if name in self.containers]
        if len(known) < len(argv[3:]):
            return client.fail(f"Error response from daemon: No such container: {argv[3]}")
        return client.say(json.dumps(known))

    def add_foreign(self, name: str, devices: list[str]) -> None:
        """A running container that somebody else started."""
        inspected = {"Name": f"/{name}", "HostConfig": {"DeviceRequests": [{"DeviceIDs": devices}]}}
        self.containers[name] = Container(name, inspected | {"State": {"Running": True}, "Config": {"Labels": {}}})

    def _run(self, words: list[str], client: _Handler) -> int:
        asked = _parser().parse_args(words)
        mounts = [dict(part.partition("=")[::2] for part in one.split(",")) for one in asked.mount]
        for one in mounts:
            if one["type"] == "bind" and not Path(one["src"]).exists():
                message = f'invalid mount config for type "bind": bind source path does not exist: {one["src"]}'
                return client.fail(f"docker: Error response from daemon: {message}", 125)
        if asked.name in self.containers:
            return client.fail(f'docker: Conflict. The container name "/{asked.name}" is already in use', 125)
        container = Container(asked.name, self._inspect(asked, mounts))
        self.containers[asked.name] = container
        if self.world.port_taken:
            return client.fail("docker: Error response from daemon: Bind failed: port is already allocated", 125)
        environment = dict(entry.partition("=")[::2] for entry in container.inspect["Config"]["Env"])
        port = asked.publish.split(":")[1]
        container.process = subprocess.Popen(
            engine_of(asked.command, port),
            env={"PATH": os.environ["PATH"]} | environment | self.world.reset,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        container.inspect["State"]["Pid"] = container.process.pid
        client.attached = container
        self._follow(container, client)
        code = container.process.wait()
        code = 128 - code if code < 0 else code
        container.settle(code, out_of_memory=self.world.out_of_memory and code == _KILLED)
        return code

    def _follow(self, container: Container, client: _Handler) -> None:
        assert container.process is not None and container.process.stdout is not None
        for line in _late(chain(filter(None, [self.world.says]), container.process.stdout), self.world.holds_back):
            container.log.append(line)
            client.say(line)
            if self.world.dies_at and self.world.dies_at in line:
                container.end(9)
        container.process.stdout.close()

    def _inspect(self, asked: argparse.Namespace, mounts: list[dict[str, str]]) -> dict[str, Any]:
        listed = [
            {
                "Type": one["type"],
                "Source": one.get("src", ""),
                "Destination": one["dst"],
                "RW": "readonly" not in one,
            }
            for one in mounts
            if one["dst"] != self.world.drops
        ]
        if self.world.adds:
            listed.append({"Type": "bind", "Source": "/srv/other", "Destination": self.world.adds, "RW": True})
        devices = re.findall(r"\d+", asked.gpus or "")
        own = self.world.images[asked.image.removeprefix("sha256:")]
        named = {entry.partition("=")[0] for entry in asked.env}
        ulimits = [(name, int(value)) for name, _, value in (one.partition("=") for one in asked.ulimit)]
        return {
            "Name": f"/{asked.name}",
            "Image": f"sha256:{self.world.runs}" if self.world.runs else asked.image,
            "Mounts": listed,
            "State": {"Running": True, "Status": "running", "OOMKilled": False, "ExitCode": 0, "Error": ""},
            "Config": {
                "Env": [*(entry for entry in own if entry.partition("=")[0] not in named), *asked.env],
                "Entrypoint": [asked.entrypoint],
                "Cmd": asked.command,
                "Labels": dict(one.partition("=")[::2] for one in asked.label),
            },
            "HostConfig": {
                "DeviceRequests": [{"DeviceIDs": devices}] if devices else None,
                "Ulimits": [{"Name": name, "Soft": value, "Hard": value} for name, value in ulimits],
                "ShmSize": int(asked.shm_size.removesuffix("g")) << 30,
                "Privileged": False,
            },
        }

    def _stop(self, words: list[str], client: _Handler) -> int:
        container = self.containers[words[-1]]
        container.end()
        if container.process is not None:
            container.process.wait(int(words[1]))
        return client.say(f"{words[-1]}\n")

    def _rm(self, words: list[str], client: _Handler) -> int:
        container = self.containers.pop(words[-1])
        container.end(9)
        return client.say(f"{words[-1]}\n")

    def _ps(self, words: list[str], client: _Handler) -> int:
        wanted = [word.removeprefix("label=").partition("=")[::2] for word in words if word.startswith("label=")]
        for name, one in self.containers.items():
            labels = one.inspect["Config"]["Labels"]
            alive = "--all" in words or one.inspect["State"]["Running"]
            if alive and all(labels.get(key) == value for key, value in wanted):
                client.say(f"{name}\n")
        return 0

    def _logs(self, words: list[str], client: _Handler) -> int:
        return client.say("".join(self.containers[words[-1]].log))


def _late(lines: Iterable[str], awaited: str) -> Iterator[str]:
    """``lines`` as they come; those before ``awaited`` together with it, at the latest at the end."""
    held: list[str] = []
    arrived = not awaited
    for line in lines:
        held.append(line)
        arrived = arrived or awaited in line
        if arrived:
            yield from held
            held.clear()
    yield from held


def _parser() -> argparse.ArgumentParser:
    """Options of ``docker run`` that the adapter uses; another one is an error here."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("name", "pull", "security-opt", "gpus", "publish", "shm-size", "entrypoint"):
        parser.add_argument(f"--{name}")
    for name in ("label", "ulimit", "mount", "env"):
        parser.add_argument(f"--{name}", action="append", default=[])
    parser.add_argument("--init", action="store_true")
    parser.add_argument("image")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser


def engine_of(command: list[str], port: str) -> list[str]:
    """A fake engine configured by what vLLM would have been told."""
    given: dict[str, Any] = {"weights": "0" * 64}
    words = iter(command)
    for word in words:
        name = word.removeprefix("--").replace("-", "_")
        if word.startswith("--no-"):
            given[name.removeprefix("no_")] = False
        elif word == "--enable-prefix-caching":
            given[name] = True
        elif word.startswith("--"):
            value = next(words)
            given[name] = int(value) if value.isdigit() else value
    configuration = json.dumps(given)
    engine = [sys.executable, "-P", "-m", "serve.adapters.fake_engine", "--port", port, "--traces", "/nonexistent"]
    return [*engine, "--configuration", configuration]


class _Handler(socketserver.StreamRequestHandler):
    """One client."""

    attached: Container | None = None
    server: _Server

    def handle(self) -> None:
        argv = json.loads(self.rfile.readline())
        threading.Thread(target=self._signals, daemon=True).start()
        self._tell({"exit": self.server.daemon.answer(argv, self)})

    def _signals(self) -> None:
        """A client hands its SIGTERM on to the container that it is attached to."""
        try:
            told = self.rfile.readline()
        except (OSError, ValueError):
            return
        if told and self.attached is not None:
            self.attached.end()

    def say(self, text: str) -> int:
        self._tell({"text": text, "error": False})
        return 0

    def fail(self, text: str, code: int = 1) -> int:
        self._tell({"text": f"{text}\n", "error": True})
        return code

    def _tell(self, message: dict[str, Any]) -> None:
        try:
            self.wfile.write(json.dumps(message).encode() + b"\n")
        except OSError:
            return  # the client is gone; the container goes on


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False
    daemon: Daemon


@contextmanager
def docker(folder: Path, world: World | None = None) -> Iterator[tuple[Daemon, dict[str, str]]]:
    """A daemon, and the environment in which its client is ``docker``."""
    program = folder / "bin" / "docker"
    program.parent.mkdir(parents=True)
    program.write_text(_CLIENT.format(python=sys.executable))
    program.chmod(0o755)
    daemon, socket = Daemon(world or World()), folder / "docker.sock"
    with _Server(str(socket), _Handler) as server:
        server.daemon = daemon
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            path = f"{program.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
            yield daemon, {"PATH": path, "DOCKER_HOST": f"unix://{socket}"}
        finally:
            server.shutdown()
            for container in daemon.containers.values():
                container.end(9)
                if container.process is not None:
                    container.process.wait()
