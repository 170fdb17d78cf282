"""The fake seat: real processes, a real port and shared memory, a toy distribution. What it measures is *simulated*."""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from typing import Any

from recipe.pack import read_pack
from runner.boots import new_record
from runner.digest import sha256_bytes, sha256_tree
from runner.errors import SeatError
from runner.model.boot import Label
from runner.paths import source_root
from serve.adapters.booted import OURS, BootedEngine
from serve.adapters.engine_command import arguments_of, carve_variables, requested
from serve.adapters.supervisor import Supervised, free_port, home_of, traces_of
from serve.seat import BootRequest


class FakeSeat:
    """Starts fake engines."""

    def boot(self, request: BootRequest) -> BootedEngine:
        """Start and wait for readiness. Raises SeatError with the engine's last words."""
        manifest, planned = request.manifest, request.planned
        started, port = time.monotonic(), free_port()
        configuration = arguments_of(request) | {
            "served_model_name": manifest.served_name,
            "weights": _weights(request),
        }
        argv = [sys.executable, "-P", "-m", "serve.adapters.fake_engine", "--port", str(port)]
        argv += ["--traces", str(traces_of(home_of(request.folder.resolve())))]
        libraries = {name: str(path) for name, path in request.libraries.items()}
        environment = manifest.environment | carve_variables(request, libraries)
        process = Supervised.start(
            [*argv, "--configuration", json.dumps(configuration)], environment, request.folder, port=port
        )
        record = new_record(
            planned.id,
            label="simulated",
            pid=process.pid,
            engine={"name": OURS, "version": version(OURS), "record": toy_record()},
            requested=requested(request),
        )
        boot = BootedEngine(record, f"http://127.0.0.1:{port}", process, started, traces_of(process.home))
        boot.come_up(manifest, label_of)
        return boot


def label_of(resolved: dict[str, Any]) -> Label:
    """The label of what answered. Raises SeatError where it is not this project's toy."""
    found = str(resolved.get("distribution", ""))
    if found != OURS:
        raise SeatError("another engine answers on the fake seat's port", expected=OURS, found=found)
    return "simulated"


def _weights(request: BootRequest) -> str:
    """What the toy would have loaded: a recipe's pack by its headers, or always the same; it serves no pack."""
    if not request.planned.product or request.tree is not None:
        return sha256_bytes(b"toy distribution 20")
    return read_pack(request.pack).header_digest()


def toy_record() -> str:
    """Digest of the fake engine's own source: it has no distribution of its own."""
    root = source_root()
    return sha256_tree(root, (root / "serve" / "adapters").glob("fake*.py"))
