"""One container, complete before it starts: image by digest, mounts, environment, devices, and its ``docker run``.

Words in braces (``{pack}``, ``{code}``) stand for places of one machine, so that neither plan nor report names a path
of it; the same record read back from a running container is in :mod:`serve.adapters.docker_readback`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from runner.errors import InputError
from runner.model.seat import Container, Machine, Mount, SeatManifest
from runner.sandbox import HIDDEN_CODE, SERVED_CODE
from serve.adapters.engine_command import BYTECODE, arguments_of, carve_variables, flags
from serve.seat import BootRequest
from serve.witness.environment import NAMES

PACK, CODE, CACHE = "{pack}", "{code}", "{cache}"
"""What a mount of the manifest may say instead of a path."""
WITNESS, SITE, TREE, TRACES = "{witness}", "{site}", "{tree}", "{traces}"
PORT = 8000
"""Inside the container; outside it is a loopback port of the runner's choice."""
LABEL = "dsv4-carve"
_HOME = "/carve"
LIBRARIES = f"{_HOME}/libraries"
"""Folder of the native libraries inside the container."""
_TRACED = f"{_HOME}/traces"
_COMPILED = "/tmp/carve-bytecode"
"""Of the container alone, so empty at its start: see :data:`serve.adapters.engine_command.BYTECODE`."""


@dataclass(frozen=True)
class Bound:
    """A file or folder of the host inside the container."""

    word: str
    """As the manifest names it: a path, or a word in braces."""
    host: str
    """Its path on this machine; in a draft the word."""
    inside: str
    writable: bool = False

    @property
    def option(self) -> str:
        """Value of ``--mount``: unlike ``--volume`` it makes no folder where nothing is. Raises InputError."""
        if set(',"') & set(self.host):
            raise InputError("docker cannot mount such a path", where=self.inside, found=self.host)
        return f"type=bind,src={self.host},dst={self.inside}{'' if self.writable else ',readonly'}"


@dataclass(frozen=True)
class Launch:
    """Everything that ``docker run`` is told."""

    name: str
    labels: Mapping[str, str]
    image: str
    """SHA-256 of the image, or ``unknown`` in a draft."""
    devices: tuple[int, ...]
    bounds: tuple[Bound, ...]
    hidden: tuple[str, ...]
    """Folders inside that are empty for the engine."""
    environment: Mapping[str, str]
    ulimits: Mapping[str, int]
    shared_memory_gb: int
    port: str
    """On the host's loopback."""
    command: tuple[str, ...]
    """Entry point and its arguments."""

    def argv(self) -> list[str]:
        """Words after ``docker``; the engine runs in the foreground and its container stays when it has ended."""
        words = ["run", "--name", self.name]
        words += _each("--label", (f"{LABEL}.{name}={value}" for name, value in self.labels.items()))
        words += ["--pull", "never", "--init", "--security-opt", "no-new-privileges"]
        words += ["--gpus", f'"device={",".join(map(str, self.devices))}"'] if self.devices else []
        words += ["--publish", f"127.0.0.1:{self.port}:{PORT}", "--shm-size", f"{self.shared_memory_gb}g"]
        words += _each("--ulimit", (f"{name}={value}" for name, value in self.ulimits.items()))
        words += _each("--mount", (bound.option for bound in self.bounds))
        words += _each("--mount", (f"type=tmpfs,dst={folder}" for folder in self.hidden))
        words += _each("--env", (f"{name}={value}" for name, value in self.environment.items()))
        return [*words, "--entrypoint", self.command[0], f"sha256:{self.image}", *self.command[1:]]


@dataclass(frozen=True)
class Places:
    """Where things lie on this machine; words in braces in a draft."""

    pack: str
    code: str
    cache: str
    witness: str = WITNESS
    site: str = SITE
    """A folder that makes the checkout's entry points known inside."""
    tree: str = ""
    """A patch order's product."""
    traces: str = TRACES
    """Where the engine's profiler writes; only mounted where the manifest's command names it."""
    port: str = "{port}"
    start: str = "{start}"
    """Different for every start, so that none is taken for another of the same name."""

    def of(self, mount: Mount) -> str:
        """Path of one of the manifest's mounts."""
        return {PACK: self.pack, CODE: self.code, CACHE: self.cache}.get(mount.host, mount.host)


def launch_of(request: BootRequest, places: Places, run: str, libraries: Mapping[str, str]) -> Launch:
    """The container of one boot; ``libraries`` are paths on this machine by variant. Raises InputError."""
    manifest, container = request.manifest, container_of(request)
    inside = {variant: f"{LIBRARIES}/{variant}.so" for variant in libraries}
    named = [Bound(f"{{library {variant}}}", host, inside[variant]) for variant, host in libraries.items()]
    bounds = (
        *(bound for mount in container.mounts for bound in _bounds(mount, places)),
        *named,
        Bound(WITNESS, places.witness, f"{_HOME}/witness.so"),
        Bound(SITE, places.site, f"{_HOME}/site"),
        *([Bound(TREE, places.tree, f"{_HOME}/tree")] if places.tree else []),
        *([Bound(TRACES, places.traces, _TRACED, writable=True)] if _is_traced(manifest) else []),
    )
    code = [mount.inside for mount in container.mounts if mount.host == CODE]
    paths = [*([f"{_HOME}/tree"] if places.tree else []), f"{_HOME}/site"]
    paths += [path for root in code for path in (root, f"{root}/kernels")]
    own = {"CARVE_WITNESS_LIBRARY": f"{_HOME}/witness.so", "PYTHONPATH": ":".join(paths)}
    own |= carve_variables(request, inside)
    own |= {BYTECODE: _COMPILED} if places.tree else {}
    declared = manifest.environment | own
    words = {"{pack}": _inside(container, PACK), "{port}": str(PORT)}
    command = [words.get(word, word).replace(TRACES, _TRACED) for word in manifest.command]
    return Launch(
        name=f"carve-{manifest.name}-{run}-{request.planned.id}",
        labels={"run": run, "seat": manifest.name, "boot": request.planned.id, "start": places.start},
        image=container.digest,
        devices=_devices(manifest.machine),
        bounds=bounds,
        hidden=tuple(f"{root}/{folder}" for root in code for folder in HIDDEN_CODE),
        environment=declared | {NAMES: json.dumps(sorted(declared))},
        ulimits=container.ulimits,
        shared_memory_gb=container.shared_memory_gb,
        port=places.port,
        command=("python3", "-P", *command, *flags(arguments_of(request))),
    )


def _bounds(mount: Mount, places: Places) -> list[Bound]:
    """Of the checkout only what the engine imports: canon, reports, orders and tests are not inside at all."""
    if mount.host != CODE:
        return [Bound(mount.host, places.of(mount), mount.inside, mount.writable)]
    return [Bound(f"{CODE}/{name}", f"{places.code}/{name}", f"{mount.inside}/{name}") for name in SERVED_CODE]


def container_of(request: BootRequest) -> Container:
    """The manifest's container. Raises InputError where a docker seat describes none."""
    if request.manifest.container is None:
        raise InputError("the seat describes no container", where=request.manifest.name, expected="container")
    return request.manifest.container


def bears(inspected: Mapping[str, Any], **labels: str) -> bool:
    """Whether a container as docker knows it has these labels of ours."""
    found = inspected["Config"].get("Labels") or {}
    return all(found.get(f"{LABEL}.{name}") == value for name, value in labels.items())


def _is_traced(manifest: SeatManifest) -> bool:
    return any(TRACES in word for word in manifest.command)


def _inside(container: Container, word: str) -> str:
    found = [mount.inside for mount in container.mounts if mount.host == word]
    if len(found) != 1:
        raise InputError("a container needs one mount of it", where=word, found=", ".join(found) or "none")
    return found[0]


def _devices(machine: Machine | None) -> tuple[int, ...]:
    return machine.devices if machine else ()


def _each(option: str, values: Iterable[str]) -> list[str]:
    return [word for value in values for word in (option, value)]


__all__ = [
    "CACHE",
    "CODE",
    "LABEL",
    "LIBRARIES",
    "PACK",
    "PORT",
    "SITE",
    "TREE",
    "WITNESS",
    "Bound",
    "Launch",
    "Places",
    "bears",
    "container_of",
    "launch_of",
]
