"""The machine that measured a job which travelled."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Annotated

from pydantic import Field, JsonValue

from runner.digest import sha256_json
from runner.model.base import Digest, Record
from runner.model.scalars import Line, Whole

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Host(Record):
    """What a machine says of itself, from one start of it to the next."""

    boot: Line
    """Linux's ``boot_id``: another one after every start of the machine."""
    node: Line
    processors: Annotated[Whole, Field(gt=0)]
    machine: Line
    kernel: Line
    python: Line

    @property
    def identity(self) -> Digest:
        """SHA-256 of what tells machines and their starts apart; the Python that measures may be another one."""
        return sha256_json(self.model_dump(mode="json", exclude={"python"}))

    @property
    def environment(self) -> dict[str, JsonValue]:
        """What a report says of the machine."""
        return self.model_dump(mode="json", include={"machine", "kernel", "python", "processors"})


def this_host() -> Host:
    """The machine that this process runs on."""
    return Host(
        boot=_BOOT.read_text().strip(),
        node=platform.node() or "unnamed",
        processors=os.cpu_count() or 1,
        machine=platform.machine(),
        kernel=platform.release(),
        python=platform.python_version(),
    )


__all__ = ["Host", "this_host"]
