"""Who can be given a brief: one entry of ``orders/people/craftspeople.yaml``."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from runner.model.base import Record, Slug
from runner.model.scalars import Flag, Line, Whole

MAX_ATTEMPTS = 9
"""An order that takes more is wrong, and its history would not fit into a report."""


class Limits(Record):
    """Where a session ends, whatever the craftsperson thinks of it."""

    wall_seconds: Annotated[Whole, Field(gt=0)] = 3600
    output_bytes: Annotated[Whole, Field(gt=0)] = 20_000_000
    """Standard output and standard error together."""
    disk_bytes: Annotated[Whole, Field(gt=0)] = 2_000_000_000
    """Clone, home and temporary folder together."""
    network: Literal["none", "open"] = "none"
    """``open`` for an agent that calls its model over the network."""
    attempts: Annotated[Whole, Field(gt=0, le=MAX_ATTEMPTS)] = 3
    """Attempts on one version of one order."""


class CraftspersonEntry(Record):
    """How somebody is started and how far they reach."""

    kind: Literal["agent", "person"]
    argv: tuple[Line, ...] = ()
    """Command line of an agent; ``{brief}`` is the path of the brief, ``{clone}`` that of its clone."""
    brief: Literal["stdin", "file"] = "stdin"
    """Whether the brief is also given on standard input."""
    environment: tuple[Line, ...] = ()
    """Names of variables that are passed on; nothing else of the caller's environment is."""
    home: tuple[Line, ...] = ()
    """Files and folders below the caller's home that are copied into the session's own home and removed after it."""
    readable: tuple[Line, ...] = ()
    """Further folders that the sandbox shows read-only, for example where the agent itself is installed."""
    needs_sandbox: Flag = False
    """True for an agent that is told to ask nobody: it is not started without a sandbox."""
    limits: Limits = Limits()

    @model_validator(mode="after")
    def _an_agent_has_a_command(self) -> Self:
        if (self.kind == "agent") != bool(self.argv):
            raise ValueError("an agent needs argv, and a person has none")
        return self


class Crew(Record):
    """The whole file."""

    schema_version: Annotated[Whole, Field(ge=1, le=1)]
    craftspeople: dict[Slug, CraftspersonEntry]
