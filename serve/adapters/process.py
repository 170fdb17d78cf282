"""The ``process`` adapter: a real vLLM on this machine, started and ended by the runner."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from runner.boots import new_record
from runner.digest import sha256_file
from runner.errors import AbsentError, InputError
from runner.model.boot import Label, Sandbox
from runner.model.product import PROVENANCE
from runner.model.seat import SeatManifest
from runner.paths import cache_home
from runner.sandbox import TEMPORARY, Reach, available, confined, devices
from serve.adapters import booted
from serve.adapters.booted import BootedEngine
from serve.adapters.engine_command import BYTECODE, arguments_of, carve_variables, flags, requested
from serve.adapters.gpu_desk import incumbent_library
from serve.adapters.supervisor import Supervised, free_port, home_of, import_path, traces_of
from serve.connection import socket_url
from serve.install import engine_record, installed_version
from serve.seat import BootRequest
from serve.witness.build import witness_library

SOCKET = "engine.sock"
"""Where an engine without a network listens, in its temporary folder."""

UNWANTED = Sandbox(tool="none", network="host", reason="a standing seat, which no candidate is loaded into")

_HOST_OF_A_GPU = ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "TRITON_LIBCUDA_PATH", "CC", "CXX")
"""Of this process's environment, what an engine needs on a host whose driver and toolkit lie where it says."""

PACK = "pack"
"""The engine's name for its pack: a link in the folder it starts in."""


class ProcessSeat:
    """Starts vLLM's OpenAI server from this interpreter's own packages."""

    def boot(self, request: BootRequest) -> BootedEngine:
        """Start and wait for readiness.

        Raises SeatError when the engine is not installed, does not come up (with its own last words) or refuses under
        strict (with the reason and the rank).
        """
        manifest, planned = request.manifest, request.planned
        engine = installed_engine(manifest.distribution)
        started, port = time.monotonic(), free_port()
        link_pack(request)
        sandbox = available() if request.sandboxed else UNWANTED
        command, cache = argv(request, port), engine_cache(request, sandbox)
        if sandbox.network == "own":
            command += ["--uds", f"{TEMPORARY}/{SOCKET}"]
        if sandbox.tool != "none":
            reach = reach_of(request, cache, network=sandbox.network == "host")
            command = confined(command, reach, home_of(request.folder.resolve()))
        process = Supervised.start(
            command, environment(request, cache), request.folder, port=port, sandboxed=sandbox.tool != "none"
        )
        record = new_record(
            planned.id,
            label="cpu",
            pid=process.pid,
            engine=engine,
            requested=requested(request),
            sandbox=sandbox,
        )
        own = sandbox.network == "own"
        url = socket_url(process.temporary / SOCKET) if own else f"http://127.0.0.1:{port}"
        boot = BootedEngine(record, url, process, started, traces_of(process.home))
        boot.come_up(manifest, lambda resolved: label_of(resolved, engine))
        return boot


def installed_engine(distribution: str) -> dict[str, str]:
    """Name, version and RECORD digest of a manifest's engine (``name==version``). Raises AbsentError where absent."""
    name, _, wanted = distribution.partition("==")
    found = installed_version(name)
    if found != wanted:
        raise AbsentError(
            "the seat's engine is not installed",
            where=sys.executable,
            expected=distribution,
            found=f"{name}=={found}" if found else "none",
            next_step="run `scripts/setup engine`",
        )
    return {"name": name, "version": found, "record": engine_record(name)}


def link_pack(request: BootRequest) -> None:
    """A link to the pack in the folder where the engine starts, so that no report names a path of this machine.

    Raises InputError where the pack is missing.
    """
    if not (request.pack / "config.json").is_file():
        raise InputError("the seat's pack is missing", where=str(request.pack), expected="a folder with config.json")
    home = home_of(request.folder)
    home.mkdir(parents=True, exist_ok=True)
    (home / PACK).symlink_to(request.pack.resolve(), target_is_directory=True)


def argv(request: BootRequest, port: int) -> list[str]:
    """The engine's command line."""
    fixed = {"{pack}": PACK, "{port}": str(port)}
    traces = str(traces_of(home_of(request.folder.resolve())))
    command = [fixed.get(word, word).replace("{traces}", traces) for word in request.manifest.command]
    return [sys.executable, "-P", *command, *flags(arguments_of(request))]


def engine_cache(request: BootRequest, sandbox: Sandbox) -> Path:
    """What the engine keeps between boots. Patched code never finds what unpatched code compiled: a tree has a cache of
    its own. Code of a candidate in a sandbox gets a copy, so that it can leave nothing there for the boots after it.
    """
    patched = f"-{sha256_file(request.tree / PROVENANCE)[:16]}" if request.tree else ""
    kept = cache_home() / f"engine{patched}"
    kept.mkdir(parents=True, exist_ok=True)
    if sandbox.tool == "none" or not (request.planned.libraries or request.tree):
        return kept
    return Path(shutil.copytree(kept, home_of(request.folder.resolve()) / ".cache"))


def reach_of(request: BootRequest, cache: Path, *, network: bool) -> Reach:
    """What a sandboxed engine may reach: its pack, its libraries and its own folders."""
    pack = request.pack.resolve()
    linked = [path.resolve() for path in pack.iterdir() if path.is_symlink()]  # an overlay's untouched files
    named = [path.resolve() for path in (*request.libraries.values(), witness_of(request))]
    named += incumbent_of(request.manifest).values()
    tree = [request.tree.resolve()] if request.tree else []
    return Reach(
        reads=tuple(dict.fromkeys([pack, *linked, *named, *tree])),
        writes=(home_of(request.folder.resolve()), cache),
        network=network,
        devices=devices(),
    )


def environment(request: BootRequest, cache: Path) -> dict[str, str]:
    """The manifest's environment (``{cache}`` is the engine's kept cache) and the witness's own variables."""
    manifest = request.manifest
    host = {name: os.environ[name] for name in _HOST_OF_A_GPU if name in os.environ} if manifest.gpu else {}
    declared = {name: value.replace("{cache}", str(cache)) for name, value in manifest.environment.items()}
    libraries = {name: str(path) for name, path in (incumbent_of(manifest) | request.libraries).items()}
    own = carve_variables(request, libraries) | {"CARVE_WITNESS_LIBRARY": str(witness_of(request))}
    return host | declared | import_path(request.tree) | _own_bytecode(request) | own


def _own_bytecode(request: BootRequest) -> dict[str, str]:
    """Patched code is compiled anew by each boot: bytecode that lies beside a file runs without a look at the file."""
    if request.tree is None:
        return {}
    return {BYTECODE: str(home_of(request.folder.resolve()) / "bytecode")}


def incumbent_of(manifest: SeatManifest) -> dict[str, Path]:
    """The incumbent's operators where the host of a GPU has them compiled. Raises SeatError where it has not."""
    if manifest.incumbent is None:
        return {}
    return {"incumbent": incumbent_library(manifest.incumbent.partition("==")[2]).resolve()}


def witness_of(request: BootRequest) -> Path:
    """The native witness: built here, or what travelled with the libraries."""
    return request.witness.resolve() if request.witness else witness_library(gpu=request.manifest.gpu)


def label_of(resolved: dict[str, Any], engine: dict[str, str]) -> Label:
    """The label of what answered, from the distribution that the live engine says it runs. Raises SeatError."""
    return booted.label_of(resolved, {"distribution": engine["name"], "distribution_record": engine["record"]})
