"""A run between two steps."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from runner.draw import Draw
from runner.model.boot import BootRecord
from runner.model.order import OrderFile
from runner.model.plan import Plan, PlannedBoot, PlannedWindow
from runner.model.product import Product
from runner.model.run import SelfTest
from runner.model.sample import Sample
from runner.model.seat import SeatManifest
from runner.model.verdict import Verdict
from runner.steps.journal import Journal


class Progress(Protocol):
    """Where a person watches."""

    def expect(self, seconds: int) -> None:
        """The whole will take about this long."""
        ...

    def begin(self, what: str, seconds: int) -> None:
        """Something of about ``seconds`` starts."""
        ...

    def note(self, what: str) -> None:
        """Something worth a line happened."""
        ...


class Silent:
    """Nobody watches."""

    def expect(self, seconds: int) -> None:
        """Nothing."""

    def begin(self, what: str, seconds: int) -> None:
        """Nothing."""

    def note(self, what: str) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Built:
    """What the candidate and its knock-outs became."""

    libraries: dict[str, Path] = field(default_factory=dict)
    """Variant name to native library."""
    subjects: dict[str, str] = field(default_factory=dict)
    """Digests of what is judged and of the code that judges."""
    product: Product | None = None
    """What the order's recipe made."""


@dataclass(frozen=True)
class Sealed:
    """The plan and what keys its draws."""

    plan: Plan
    digest: str
    seed: bytes
    intent_digest: str

    @property
    def draw(self) -> Draw:
        return Draw(self.seed, self.digest)


@dataclass(frozen=True)
class Outcome:
    """What the seat gave."""

    boots: tuple[BootRecord, ...] = ()
    samples: tuple[Sample, ...] = ()
    self_tests: tuple[SelfTest, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    repeats: int = 0
    killed_by: str = ""
    """The kill line that stopped the run."""


@dataclass(frozen=True)
class Run:
    """Everything a step may need; each step fills in its part."""

    name: str
    folder: Path
    workspace: Path
    order: OrderFile
    manifest: SeatManifest
    journal: Journal
    progress: Progress
    started_at: str
    built: Built = field(default_factory=Built)
    seal: Sealed | None = None
    outcome: Outcome = field(default_factory=Outcome)
    report: Path | None = None
    host: str | None = None
    """Identity of the machine that a job which travelled is measured on."""
    deadline: float | None = None
    """Monotonic clock: no boot or block begins that would not end before."""

    def has_time_for(self, seconds: int) -> bool:
        """Whether something of about ``seconds`` ends before the deadline."""
        return self.deadline is None or time.monotonic() + seconds <= self.deadline

    @property
    def sealed(self) -> Sealed:
        """The sealed plan; there is none before the step ``seal``."""
        assert self.seal is not None, "steps run in order: seal comes before this one"
        return self.seal

    @property
    def plan(self) -> Plan:
        return self.sealed.plan

    def with_outcome(self, **changes: Any) -> Run:
        """The run with parts of its outcome replaced."""
        return replace(self, outcome=replace(self.outcome, **changes))

    def windows_of(self, boot: PlannedBoot) -> tuple[PlannedWindow, ...]:
        """The windows of one planned boot, in order."""
        return tuple(window for window in self.plan.windows if window.boot == boot.id)
