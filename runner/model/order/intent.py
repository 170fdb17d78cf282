"""Who wants what, why, and who does it."""

from __future__ import annotations

from typing import Literal

from runner.model.base import Record, Slug
from runner.model.scalars import Flag, Inside, Line, Number, Whole


class Approval(Record):
    """The approver's own words."""

    quote: Line
    date: Line


class Craftsperson(Record):
    """Somebody who may take the order on."""

    name: Line
    max: Whole = 1
    """How many of this name may work at once."""


class Reviewer(Record):
    """Somebody who reads the order before work or the report after it."""

    name: Line
    lens: Line
    """What this reviewer looks for."""
    when: Literal["before-work", "after-report"] = "after-report"


class People(Record):
    """Roles around the order."""

    issuer: Line
    approver: Line
    approval: Approval | None = None
    craftspeople: tuple[Craftsperson, ...] = ()
    reviewers: tuple[Reviewer, ...] = ()
    synthesizer: Line | None = None
    seat_operator: Line | None = None


class ExpectedGain(Record):
    """What the issuer hopes for; never a threshold."""

    low: Number
    high: Number
    unit: Line
    basis: Line
    label: Literal["measured", "estimate", "assumed"] = "estimate"
    share: Number | None = None
    """Share of the whole that the work touches, 0 to 1: the gain of the whole cannot exceed 1 / (1 − share)."""
    rests_on: tuple[Slug, ...] = ()
    """Facts behind the hope."""


class Ceiling(Record):
    """An upper bound worth knowing that passes or fails nothing."""

    what: Line
    value: Number
    unit: Line
    rests_on: tuple[Slug, ...] = ()


class Intent(Record):
    """What the order is for."""

    goal: Line
    why: Line
    definition_of_done: Line
    """In the approver's words."""
    expected_gain: ExpectedGain | None = None
    ceiling_not_for_verdict: tuple[Ceiling, ...] = ()


class Scope(Record):
    """What belongs to the order and in which stages."""

    includes: tuple[Line, ...] = ()
    excludes: tuple[Line, ...] = ()
    stages: tuple[Stage, ...] = ()
    files_allowed: tuple[Inside, ...] = ()
    """Of a patch order: the only files taken from a craftsperson; globs relative to the checkout. A kernel order names
    its own under ``candidate``."""
    files_forbidden: tuple[Line, ...] = ()
    """Files that must not change; globs relative to the checkout."""
    only_after: tuple[Slug, ...] = ()
    """Orders that have to be finished first."""


class Stage(Record):
    """One step of staged work."""

    id: Slug
    content: Line
    state_risk: Line | None = None
    launches: Whole | None = None


class Capability(Record):
    """What the work needs, whether it is there, and what stands in where it is not."""

    name: Literal["gpu", "network", "docker", "sanitizer", "profiler"]
    available: Literal["yes", "no", "unknown"]
    substitute_if_absent: Line | None = None


class Constraints(Record):
    """Limits on the craftsperson's work."""

    ram_gb_max: Number | None = None
    network: Literal["none", "index-only", "open"] = "none"
    gpu_allow: tuple[Line, ...] = ()
    gpu_deny: tuple[Line, ...] = ()
    ports_deny: tuple[Whole, ...] = ()
    commands_deny: tuple[Line, ...] = ()
    no_new_image_tags: Flag = True
    commit_branch: Line | None = None
    otherwise: Line | None = None
    """What to do where that branch, or a file of the engine's image, cannot be reached."""
    notes: tuple[Line, ...] = ()


Scope.model_rebuild()
