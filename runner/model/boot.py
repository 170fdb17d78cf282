"""What one boot said of itself, read back live."""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue

from runner.model.base import Digest, Instant, Record, Slug, later

Label = Literal["none", "simulated", "attached", "cpu", "real"]
"""What answered; ``none`` where no engine did (before it existed such reports said ``simulated``)."""


Isolation = Literal["sandboxed", "open", "no-candidate"]
"""Whether every boot that loaded native code of a candidate ran in a sandbox."""


class Sandbox(Record):
    """What stood between the processes of one boot and the rest of the machine."""

    tool: Literal["bubblewrap", "docker", "none"]
    version: str = ""
    network: Literal["own", "host"]
    """``own``: no network but a loopback of its own, and the client over a unix socket; ``host``: the machine's."""
    reason: str = ""
    """Why there is no sandbox, or why the network is the machine's."""


NO_SANDBOX = Sandbox(tool="none", network="host", reason="nothing of a candidate was loaded")

IN_A_CONTAINER = Sandbox(
    tool="docker", network="host", reason="a network of the container's own has a way out; published on the loopback"
)


NO_WEIGHTS = "0" * 64
"""Of a process that loaded no pack."""


class RankIdentity(Record):
    """One rank as the witness saw it from inside the worker."""

    rank: int
    pid: int
    libraries: dict[str, Digest]
    """Native variant libraries mapped into the process, by variant name."""
    trees: dict[str, Digest]
    """Digests of the plugin and witness source trees that were imported."""
    weights: Digest
    """Digest over the payload bytes this rank loaded."""
    devices: tuple[str, ...] = ()
    """Device UUIDs; empty on a CPU."""


class BootRecord(Record):
    """One start of the engine, from launch to end."""

    id: str
    """Unique: the plan's boot id, a dash and eight random hex digits."""
    planned: Slug
    label: Label
    """Computed from what answered."""
    engine: dict[str, str]
    """Distribution name, version and RECORD digest."""
    started_at: Instant
    ready_ms: int
    pid: int
    ranks: tuple[RankIdentity, ...]
    requested: dict[str, JsonValue]
    resolved: dict[str, JsonValue]
    kv_tokens: int
    canary: bool
    """The plugin's known log line was seen on every rank."""
    ended: Literal["running", "stopped", "refused", "died", "aborted"]
    ended_reason: str = ""
    """For ``refused`` and ``died``: the engine's own words."""
    leftovers: tuple[str, ...] = ()
    """Processes, ports, shared memory or temporary folders of ours that outlived the boot."""
    sandbox: Sandbox = NO_SANDBOX
    seconds: int = 0
    """Seat time from launch to end."""
    product: dict[str, Digest] = later({})
    """Of a boot that served what a recipe made: its digests as they were read again once the boot had ended."""
    product_changes: tuple[str, ...] = later(())
    """What of it was written, exchanged, added or removed between the first boot of the run and the end of this one."""
    host: Digest | None = later(None)
    """Of a boot in a job that travelled: identity of the machine that it ran on."""
