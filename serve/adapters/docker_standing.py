"""The container that stands on a seat now, whoever's command started it, beside the canonical manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import JsonValue

from runner.errors import SeatError
from runner.model.seat import SeatManifest
from serve.adapters.booted import kv_tokens_in
from serve.adapters.docker_client import Docker
from serve.adapters.docker_host import image_environment, places_of
from serve.adapters.docker_launch import LABEL, LIBRARIES, SITE, WITNESS, Launch, container_of, launch_of
from serve.adapters.docker_readback import canonical, found, wanted, with_unasked
from serve.seat import BootRequest
from serve.witness.environment import LIVE

Facts = dict[str, JsonValue]


def standing(request: BootRequest) -> tuple[str, Facts, Facts]:
    """(container, canonical, found): mounts, environment, command and log lines of what stands, counted.

    ``request`` is the canonical boot. Its native libraries may lie anywhere; the engine's own environment and
    configuration are not asked. Raises SeatError where nothing stands, or more than one container.
    """
    docker, manifest, container = Docker.find(), request.manifest, container_of(request)
    name = _only(docker, manifest)
    inspected = docker.container(name)
    if inspected is None:
        raise SeatError("the container is gone", where=name)
    launch = _as_mounted(launch_of(request, places_of(manifest), "standing", _mounted_libraries(inspected)), inspected)
    log = docker.logs(name)
    counted, counts = canonical(container.canonical, log, kv_tokens_in(log))
    asked = {name: value for name, value in wanted(launch).items() if not name.startswith(LIVE)}
    answer = found(inspected, launch, image_environment(docker, container))
    return name, with_unasked(asked | counted, answer | counts), answer | counts


def _only(docker: Docker, manifest: SeatManifest) -> str:
    running = {str(one["Name"]).lstrip("/") for one in docker.running() if _is_of(one, manifest.name)}
    if len(running) != 1:
        raise SeatError(
            "not one container stands on this seat",
            where=manifest.name,
            expected="one running container with the seat's label",
            found=", ".join(sorted(running)) or "none",
            next_step="`runner seat up` starts the canonical one" if not running else "",
        )
    return running.pop()


def _is_of(inspected: Mapping[str, Any], seat: str) -> bool:
    labels = inspected["Config"].get("Labels") or {}
    return bool(labels.get(f"{LABEL}.seat") == seat)


def _sources(inspected: Mapping[str, Any]) -> dict[str, str]:
    return {str(one["Destination"]): str(one["Source"]) for one in inspected["Mounts"]}


def _mounted_libraries(inspected: Mapping[str, Any]) -> dict[str, str]:
    """Native libraries of the incumbent, wherever they were mounted from; another variant's is a difference."""
    return {"incumbent": _sources(inspected).get(f"{LIBRARIES}/incumbent.so", "{library incumbent}")}


def _as_mounted(launch: Launch, inspected: Mapping[str, Any]) -> Launch:
    """The launch with what the runner makes for each start (witness, entry points) where this start had it."""
    sources = _sources(inspected)
    bounds = [
        replace(bound, host=sources.get(bound.inside, bound.host)) if bound.word in (WITNESS, SITE) else bound
        for bound in launch.bounds
    ]
    return replace(launch, bounds=tuple(bounds))


__all__ = ["standing"]
