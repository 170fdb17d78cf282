"""The docker command: questions with answers, and what it says when it refuses."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runner.errors import SeatError
from serve.adapters.docker_launch import LABEL

TIMEOUT_SECONDS = 120.0
STOP_SECONDS = 30
"""Between SIGTERM and SIGKILL: the engine finishes what is in flight."""
_NOT_THERE = ("no such object", "no such image", "no such container", "not found")
_REFUSALS = {
    "permission denied": ("this user may not talk to docker", "let an administrator give this user access to docker"),
    "cannot connect to the docker daemon": ("docker's daemon does not answer", "start it, or set DOCKER_HOST"),
    "is the docker daemon running": ("docker's daemon does not answer", "start it, or set DOCKER_HOST"),
}


@dataclass(frozen=True)
class Docker:
    """Answers of the docker command. Every method raises SeatError where docker cannot be asked."""

    program: str

    @classmethod
    def find(cls) -> Docker:
        """The client on the path. Raises SeatError where there is none."""
        program = shutil.which("docker")
        if program is None:
            raise SeatError(
                "docker is not installed here",
                expected="the command `docker`",
                found="none",
                next_step="run this on the seat's own machine",
            )
        return cls(program)

    def version(self) -> str:
        """Version of the daemon."""
        return self._ask("version", "--format", "{{.Server.Version}}").strip()

    def image(self, digest: str) -> dict[str, Any] | None:
        """What is known of an image by its own id; None where it is not here."""
        return self._one("image", "inspect", f"sha256:{digest}")

    def container(self, name: str) -> dict[str, Any] | None:
        """What is known of a container; None where there is none of that name."""
        return self._one("inspect", "--type", "container", name)

    def running(self) -> list[dict[str, Any]]:
        """Every running container, whoever started it."""
        names = self._ask("ps", "--quiet", "--no-trunc").split()
        found: list[dict[str, Any]] = json.loads(self._ask("inspect", "--type", "container", *names)) if names else []
        return found

    def labelled(self, **labels: str) -> list[str]:
        """Ids of the containers that bear these labels of ours, ended ones too."""
        filters = [word for name, value in labels.items() for word in ("--filter", f"label={LABEL}.{name}={value}")]
        return self._ask("ps", "--all", "--quiet", "--no-trunc", *filters).split()

    def logs(self, name: str) -> str:
        """Everything a container has printed."""
        return self._ask("logs", name, both=True)

    def stop(self, name: str) -> None:
        """SIGTERM, :data:`STOP_SECONDS`, SIGKILL; nothing where it has ended."""
        self._ask("stop", "-t", str(STOP_SECONDS), name)

    def remove(self, name: str) -> None:
        """Remove a container with its own volumes, ending it where it still runs."""
        self._ask("rm", "--force", "--volumes", name)

    def _one(self, *words: str) -> dict[str, Any] | None:
        try:
            found: list[dict[str, Any]] = json.loads(self._ask(*words))
        except SeatError as error:
            if any(word in error.found.lower() for word in _NOT_THERE):
                return None
            raise
        return found[0]

    def _ask(self, *words: str, both: bool = False) -> str:
        """Standard output of one command, with ``both`` standard error behind it."""
        try:
            done = subprocess.run(
                [self.program, *words], capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise SeatError("docker does not answer", where=" ".join(words[:2]), found=str(error)) from error
        except OSError as error:
            raise SeatError("docker cannot be started", where=self.program, found=str(error)) from error
        if done.returncode != 0:
            raise refusal(" ".join(words[:2]), done.stderr)
        return done.stdout + done.stderr if both else done.stdout


def refusal(command: str, words: str) -> SeatError:
    """What docker's own words mean."""
    for sign, (what, next_step) in _REFUSALS.items():
        if sign in words.lower():
            return SeatError(what, where=f"docker {command}", found=words.strip(), next_step=next_step)
    return SeatError("docker refused", where=f"docker {command}", found=words.strip() or "no words")


def holds(container: Mapping[str, Any], devices: frozenset[str]) -> bool:
    """Whether a running container was given one of these devices."""
    for request in container["HostConfig"].get("DeviceRequests") or ():
        if not request["DeviceIDs"] or devices & set(request["DeviceIDs"]):
            return True
    return False


__all__ = ["STOP_SECONDS", "Docker", "holds", "refusal"]
