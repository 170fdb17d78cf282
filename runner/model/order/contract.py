"""The interface a candidate has to keep and the shape of the work: read by people, carried without loss."""

from __future__ import annotations

from typing import Literal

from runner.model.base import Record, Slug
from runner.model.scalars import Flag, Line, Whole


class Pointer(Record):
    """One argument of a native call."""

    name: Line
    shape: Line
    dtype: Line
    stride: Line | None = None
    align: Whole | None = None
    lifetime: Line | None = None


class Scratch(Record):
    """Working memory of a kernel."""

    bytes: Whole
    zeroed: Flag
    key: Line
    """What two calls must share to share the scratch, for example ``device``."""


class EnvironmentFlag(Record):
    """A switch of the engine's environment. Values are words: ``off`` is ``off``."""

    name: Line
    default: Line = "off"
    values: tuple[Line, ...]


class ConfigEdits(Record):
    """What a bake or overlay changes in the pack's configuration."""

    add: tuple[Line, ...] = ()
    remove: tuple[Line, ...] = ()
    keep: tuple[Line, ...] = ()


class Contract(Record):
    """What must stay as it is for callers and neighbours."""

    cli: tuple[Line, ...] = ()
    name_map: dict[str, Line] = {}
    file_outputs: tuple[Line, ...] = ()
    config_edits: ConfigEdits | None = None
    pointers: tuple[Pointer, ...] = ()
    scratch: Scratch | None = None
    numeric_boundaries: tuple[Line, ...] = ()
    out_dtype: dict[str, Line] = {}
    """By call site."""
    env_flags: tuple[EnvironmentFlag, ...] = ()
    invariants: tuple[Line, ...] = ()


class PriorArt(Record):
    """Something that does the work already, or nearly, and why it is not simply used."""

    what: Line
    where: Line
    verdict: Line
    """Used, built upon, or why not."""


class Design(Record):
    """How much of the design is given."""

    prior_art: tuple[PriorArt, ...] = ()
    """What a search of the existing code found; new code is not ordered without one."""
    baseline_design: tuple[Line, ...] = ()
    may_change: Literal["freely", "with-reason", "no"] = "with-reason"
    forbidden_designs: tuple[Line, ...] = ()
    new_kernel_requires: Line | None = None


class Axis(Record):
    """One axis of the required tests."""

    name: Slug
    values: tuple[Line, ...]
    coverage: Literal["full", "pairwise", "diagonal"] = "full"


class RequiredTests(Record):
    """Tests the work has to bring."""

    cases: tuple[Line, ...] = ()
    axes: tuple[Axis, ...] = ()
    sentinels: tuple[Line, ...] = ()


class ReportDuties(Record):
    """What the craftsperson's report must say."""

    sections: tuple[Line, ...] = ()
    labels_required: Flag = True
    paths_not_taken: Flag = True
    unmeasured: Flag = True
    deviations: Flag = True


class Card(Record):
    """What a model card says that no header can."""

    licence: Line
    """An identifier as the hub knows it, for example ``apache-2.0``."""
    base_model: Line | None = None
    credits: tuple[Line, ...] = ()


class Restore(Record):
    """The state the seat is left in."""

    mounts: tuple[Line, ...] = ()
    environment: dict[str, Line] = {}
    kv_tokens: Whole | None = None
    log_greps: tuple[Line, ...] = ()
    checks: tuple[Line, ...] = ()
