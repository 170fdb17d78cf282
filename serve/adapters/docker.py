"""The ``docker`` adapter: an engine in a container, started by its image's digest and read back before it measures.

runner ── watchdog ── docker run (attached) ┄ daemon ── container

The client is supervised as an engine would be: where the runner dies, the watchdog ends the client, which hands the
signal on to the container. The ended container stays, so that a resumed run finds it by its labels and removes it.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from dataclasses import dataclass, field, replace
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import httpx

from runner.boots import new_record
from runner.errors import InputError, SeatError
from runner.model.boot import IN_A_CONTAINER, BootRecord, Label
from runner.model.scalars import UNKNOWN
from runner.model.seat import SeatManifest
from serve.adapters import booted
from serve.adapters.booted import HEALTH_SECONDS, OURS, POLL_SECONDS, BootedEngine
from serve.adapters.docker_client import STOP_SECONDS, Docker, holds
from serve.adapters.docker_host import image_environment, places_of, require_mounts
from serve.adapters.docker_launch import Launch, Places, bears, container_of, launch_of
from serve.adapters.docker_readback import found, wanted
from serve.adapters.engine_command import requested
from serve.adapters.process import incumbent_of, witness_of
from serve.adapters.supervisor import Supervised, free_port, home_of, reserve, traces_of
from serve.seat import STANDING, BootRequest

DRAIN_SECONDS = 30.0
"""For requests that are in flight when a container is to end."""
_IN_FLIGHT = re.compile(r"^vllm:num_requests_(?:running|waiting)(?:\{.*\})? ([0-9.eE+]+)$", re.MULTILINE)
_SITE = "site"
_CLIENT = ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH")


@dataclass
class Contained:
    """``serve.adapters.booted.Running``: a container and the client attached to it."""

    docker: Docker
    launch: Launch
    client: Supervised
    _ended: str = field(default="", init=False)
    _left: tuple[str, ...] | None = field(default=None, init=False)

    def inspected(self) -> dict[str, Any] | None:
        """What docker knows of the container; None where none of the name is of this start."""
        found = self.docker.container(self.launch.name)
        return found if found is not None and bears(found, start=self.launch.labels["start"]) else None

    def poll(self) -> int | None:
        """The container's exit code, which is the client's (125: docker itself could not start it)."""
        code = self.client.poll()
        if code is not None and not self._ended:
            self._ended = self._how_it_ended()
        return code

    def text(self) -> str:
        """What the engine and docker's client have printed, and how the container ended where it has by itself."""
        return self.client.text() + self._ended

    def stop(self) -> tuple[str, ...]:
        """Let the engine finish, end it, remove the container; what is left, in words. Idempotent."""
        if self._left is None:
            self.poll()
            try:
                left = self._end()
            except SeatError as error:
                left = (f"container {self.launch.name}: {error.what}",)
            self._left = (*left, *self.client.stop())
        return self._left

    def _end(self) -> tuple[str, ...]:
        if self.inspected() is None:
            return ()
        self.docker.stop(self.launch.name)
        self._await_the_last_words()
        self.client.stop()
        self.docker.remove(self.launch.name)
        return () if self.inspected() is None else (f"container {self.launch.name}",)

    def _await_the_last_words(self) -> None:
        """The client ends by itself once it has passed on all that the ended container printed."""
        limit = time.monotonic() + STOP_SECONDS
        while self.client.poll() is None and time.monotonic() < limit:
            time.sleep(POLL_SECONDS)

    def _how_it_ended(self) -> str:
        try:
            container = self.inspected()
        except SeatError as error:
            return f"\nContainerError: {error.what}\n"
        if container is None:
            return "\nContainerError: docker made no container\n"
        state = container["State"]
        how = "killed for memory (OOMKilled)" if state["OOMKilled"] else state["Error"]
        told = f"exit code {state['ExitCode']}"
        return f"\nContainerError: {how}, {told}\n" if how else f"\nthe container ended, {told}\n"


class ContainedEngine(BootedEngine):
    """An engine in a container, which people may be talking to when it ends."""

    def stop(self) -> BootRecord:
        """Let what is in flight finish, then end it. Idempotent."""
        if self.record.ended == "running" and self.process.poll() is None:
            self._drain(time.monotonic() + DRAIN_SECONDS)
        return super().stop()

    def _drain(self, limit: float) -> None:
        """Wait for the last request, or for ``limit``; an engine that does not say is ended as it is."""
        while time.monotonic() < limit:
            try:
                counts = _IN_FLIGHT.findall(self.http.get("/metrics", timeout=HEALTH_SECONDS).text)
            except httpx.HTTPError:
                return
            if not any(map(float, counts)):
                return
            time.sleep(POLL_SECONDS)


class DockerSeat:
    """Starts containers on this machine, and ends none but its own."""

    def boot(self, request: BootRequest) -> ContainedEngine:
        """Reserve, start, wait for readiness, read back.

        What the readback finds goes into the record, where the gate ``resolved`` compares it. Raises SeatError where
        docker, image, devices or a mount are not as the manifest says, or with the engine's last words.
        """
        docker, manifest, container = Docker.find(), request.manifest, container_of(request)
        if container.digest == UNKNOWN:
            raise SeatError(
                "nobody recorded the image's digest", where=manifest.name, expected="a digest", found=UNKNOWN
            )
        started, places = time.monotonic(), places_of(manifest, request.pack)
        require_mounts(manifest, places)
        image = image_environment(docker, container)
        _remove_leftovers(docker, request)
        _reserve_devices(docker, manifest)
        port = free_port()
        launch = _launch(request, places, port)
        process = Supervised.start([docker.program, *launch.argv()], _client_environment(), request.folder, port=port)
        record = new_record(
            request.planned.id,
            label="real",
            pid=process.pid,
            engine=_engine(manifest),
            requested=requested(request) | wanted(launch),
            sandbox=IN_A_CONTAINER.model_copy(update={"version": docker.version()}),
        )
        contained = Contained(docker, launch, process)
        boot = ContainedEngine(record, f"http://127.0.0.1:{port}", contained, started, traces_of(process.home))
        boot.come_up(manifest, lambda resolved: label_of(resolved, manifest.distribution))
        with boot.ended_on_failure():
            inspected = contained.inspected()
            if inspected is None:
                raise SeatError("the container is gone", where=launch.name)
            resolved = boot.record.resolved | found(inspected, launch, image)
            # The client's processor time is not the engine's: what the machine's state counts as ours is the container.
            changes = {"resolved": resolved, "pid": inspected["State"]["Pid"]}
            boot.record = boot.record.model_copy(update=changes)
        return boot


def _remove_leftovers(docker: Docker, request: BootRequest) -> None:
    """Remove what an earlier process of this run left: a run has one process at a time, so that process is gone.

    Raises SeatError where the seat stands already, outside any run: whoever holds it may still be there.
    """
    for name in docker.labelled(run=request.run, seat=request.manifest.name):
        found = docker.container(name)
        if request.run == STANDING and found is not None and found["State"]["Running"]:
            raise SeatError(
                "the seat stands already",
                where=request.manifest.name,
                found=name,
                next_step="`runner seat status` counts it; whoever started it ends it",
            )
        docker.remove(name)


def _launch(request: BootRequest, places: Places, port: int) -> Launch:
    for mount in container_of(request).mounts:
        if mount.writable:
            Path(places.of(mount)).mkdir(parents=True, exist_ok=True)
    home = home_of(request.folder.resolve())  # removed when the client ends
    traces = traces_of(home)
    traces.mkdir(parents=True, exist_ok=True)
    here = replace(
        places,
        witness=str(witness_of(request)),
        site=str(_entry_points(home / _SITE)),
        tree=str(request.tree.resolve()) if request.tree else "",
        traces=str(traces),
        port=str(port),
        start=secrets.token_hex(8),
    )
    libraries = incumbent_of(request.manifest) | request.libraries
    missing = [f"{name}: {path}" for name, path in libraries.items() if not path.is_file()]
    if missing:
        raise InputError("a library to mount is missing", where=request.planned.id, found=", ".join(missing))
    return launch_of(request, here, request.run, {name: str(path.resolve()) for name, path in libraries.items()})


def _entry_points(folder: Path) -> Path:
    """A folder that tells the engine's Python of our plugins; their code is the mounted checkout's."""
    ours = distribution(OURS)
    place = folder / f"{OURS.replace('-', '_')}-{ours.version}.dist-info"
    place.mkdir(parents=True, exist_ok=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {OURS}\nVersion: {ours.version}\n")
    (place / "entry_points.txt").write_text(ours.read_text("entry_points.txt") or "")
    return folder


def _reserve_devices(docker: Docker, manifest: SeatManifest) -> None:
    """Raises SeatError where another run or a container of somebody else's holds one of the seat's devices."""
    devices = frozenset(map(str, manifest.machine.devices if manifest.machine else ()))
    taken = [device for device in sorted(devices) if not reserve(f"device-{device}")]
    if taken:
        raise SeatError("another run holds devices of this seat", where=manifest.name, found=", ".join(taken))
    others = [one["Name"].lstrip("/") for one in docker.running() if devices and holds(one, devices)]
    if others:
        raise SeatError(
            "a container that is not ours holds devices of this seat",
            where=manifest.name,
            found=", ".join(sorted(others)),
            next_step="whoever started it stops it; the runner ends only what it started",
        )


def _client_environment() -> dict[str, str]:
    """What docker's client needs; its HOME is the boot's private folder."""
    kept = {name: os.environ[name] for name in _CLIENT if name in os.environ}
    return {"DOCKER_CONFIG": os.environ.get("DOCKER_CONFIG", str(Path.home() / ".docker")), **kept}


def _engine(manifest: SeatManifest) -> dict[str, str]:
    name, _, version = manifest.distribution.partition("==")
    image = manifest.container.digest if manifest.container else ""
    return {"name": name, "version": version, "image": image}


def label_of(resolved: dict[str, Any], distribution: str) -> Label:
    """The label of what answered, by the distribution (``name==version``) that the engine says it runs. SeatError."""
    name, _, version = distribution.partition("==")
    return booted.label_of(resolved, {"distribution": name, "distribution_version": version})
