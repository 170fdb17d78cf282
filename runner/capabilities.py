"""What a seat cannot do: what its manifest says, and what its kind cannot have whatever the manifest says."""

from __future__ import annotations

from runner.model.seat import SeatManifest
from runner.plan_traces import has_profiler


def lacking(manifest: SeatManifest) -> frozenset[str]:
    """Capabilities that the seat does not have.

    An engine or a desk on this host runs in a network of its own; without a GPU there is no sanitizer of GPU kernels;
    a profiler is a word of the engine's command. The fake plays all of them.
    """
    found: set[str] = set(manifest.lacks)
    if manifest.adapter == "none":
        found |= {"gpu", "docker", "sanitizer", "profiler"}
    elif manifest.adapter in ("process", "desk"):
        found |= {"network", "docker"} | (set() if manifest.gpu else {"gpu", "sanitizer"})
        found |= set() if has_profiler(manifest) else {"profiler"}
    elif manifest.adapter == "attach":
        found |= set() if has_profiler(manifest) else {"profiler"}
    return frozenset(found)


__all__ = ["lacking"]
