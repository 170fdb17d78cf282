"""The sealed plan: everything that decides, fixed before the first boot."""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue

from runner.model.base import ROUTED, Arm, Digest, Operator, Record, Slug, later

BootRole = Literal[
    "incumbent-only",
    "shared",
    "candidate-only",
    "forcing",
    "one-row",
    "knock-out-decline",
    "knock-out-zero",
    "traced",
    "speculating",
    "plain",
    "eager",
    "desk",
]


MANIFEST = "seat.manifest"
"""Subject of a plan whose report carries its seat's manifest."""


class Expectation(Record):
    """Which variant must run an operator at which rows inside a window, on every rank and layer that has it."""

    variant: Slug
    rows_min: int
    rows_max: int
    """Inclusive; launches with more than 64 rows are counted as 65."""
    decline: Slug | None = None
    """The declared reason, where the switched-on variant declines these rows and the incumbent runs them."""
    operator: Operator = later(ROUTED)


class PlannedBoot(Record):
    """One start of the engine."""

    id: Slug
    role: BootRole
    libraries: tuple[Slug, ...]
    """Variants whose native library is loaded in this boot; empty for an incumbent-only boot."""
    strict: Literal[0, 1, 2]
    arguments: dict[str, JsonValue] = {}
    """Engine arguments of this boot over the seat manifest's."""
    product: bool = later(False)
    """The recipe's product is booted: its pack instead of the standing one, or its tree before the installed one."""
    seconds: int
    """Expected duration of the boot itself."""


class PlannedWindow(Record):
    """One measured window inside a boot."""

    id: Slug
    boot: Slug
    instrument: str
    """``name@version``."""
    arm: Arm | Literal["drawn", "none"]
    """``drawn`` where the sealed seed decides (blocks of a quad); ``none`` where no variant is compared."""
    control: bool
    """A control window never enters the candidate and proves nothing about it."""
    expects: tuple[Expectation, ...]
    """Of a drawn window: as if the candidate were drawn; where the incumbent is drawn, every row is the incumbent's."""
    arguments: dict[str, JsonValue]
    seconds: int


class PlannedGate(Record):
    """A gate of the order with its sealed parameters."""

    name: Slug
    version: int
    windows: tuple[Slug, ...]
    """Windows whose samples the gate reads."""
    parameters: dict[str, JsonValue]


class Plan(Record):
    """Sealed: its digest keys every draw, so nothing in it can move afterwards."""

    schema_version: Literal[1] = 1
    order: Slug
    order_digest: Digest
    seat: Slug
    seat_digest: Digest
    subjects: dict[str, Digest]
    """Digests known before the run: pack headers and payload, libraries, source trees, engine distribution."""
    instruments: dict[str, Digest]
    """``name@version`` of each instrument and gate used and the digest of its source file."""
    variants: dict[Arm, Slug] = {}
    """The variant behind each arm; an A/A plan has the same one twice."""
    pairing: Literal["block", "boot", "none"]
    pairs: int
    seed_commitment: Digest
    """SHA-256 of the secret 256-bit seed, opened in the report."""
    boots: tuple[PlannedBoot, ...]
    windows: tuple[PlannedWindow, ...]
    gates: tuple[PlannedGate, ...]
    kill_lines: tuple[Slug, ...] = ()
    """Gates whose FAIL or INVALID stops the run."""
