"""Raw evidence of one measured window: what was asked, what came back, when, and what the counters said."""

from __future__ import annotations

from pydantic import JsonValue

from runner.model.base import DecimalText, Digest, Instant, Operator, Record, Slug, later

ROWS_EXACT = 64
"""Row counts 0..64 have a histogram bin each; the bin 65 holds every larger launch."""

POSITIONS = "positions"
"""Material of forced documents: document id → positions whose top logprobs are kept with the report."""

EVERY_POSITION = "every_position"
"""Argument of a window: true where its extract keeps the divergence at every position, so that its mean follows."""


class CounterRow(Record):
    """Launches of one operator, variant and layer on one rank since the process started."""

    op: Operator
    variant: Slug
    layer: str
    """Module prefix in the served model, for example ``model.layers.1.mlp.experts``."""
    launches: int
    rows: tuple[tuple[int, int], ...]
    """(rows, launches) pairs, sorted; 65 stands for more than 64 rows."""


class DeclineRow(Record):
    """How often a variant declined, by layer and typed reason."""

    variant: Slug
    layer: str
    reason: Slug
    count: int
    rows: tuple[tuple[int, int], ...]


class RankCounters(Record):
    """One rank's counters at one moment. The witness counts every dispatch; the candidate counts for itself."""

    rank: int
    pid: int
    witness: tuple[CounterRow, ...]
    candidate: tuple[CounterRow, ...]
    declines: tuple[DeclineRow, ...]
    prewarm: tuple[CounterRow, ...] = later(())
    """What the witness counted while the engine warmed up and captured its graphs; no window's work."""


class MachineState(Record):
    """The machine once a second while the window was open."""

    at_ns: int
    """Monotonic clock of the runner."""
    load1_milli: int
    steal_ticks: int
    """Cumulative steal time of all processors, in kernel ticks."""
    busy_ticks: int
    """Cumulative non-idle time of all processors."""
    own_ticks: int
    """Cumulative processor time of the runner and of the processes it started."""
    foreign_ticks: int | None = later(None)
    """Cumulative processor time of all other processes that can be seen; None in evidence from before it was kept.

    What of the busy time is in neither is unexplained: of the kernel, of another container or machine, or of children
    that ended unnoticed.
    """


class Exchange(Record):
    """One HTTP request and its answer."""

    id: str
    """Prompt, document or trial id of the plan's drawn material."""
    path: str
    request: dict[str, JsonValue]
    status: int
    sent_ns: int
    """Monotonic clock of the runner when the request left."""
    done_ns: int
    events: tuple[tuple[int, str], ...] = ()
    """(monotonic ns, data text) of each server-sent event, for a streamed answer."""
    body: JsonValue = None
    """The decoded JSON answer, for an answer that is not streamed."""


class Call(Record):
    """One witness call made inside the window (switch, perturb, readback ...) with each rank's answer."""

    method: Slug
    arguments: dict[str, JsonValue]
    results: tuple[JsonValue, ...]
    at_ns: int


class Divergences(Record):
    """One document against the reference window at every position, as an extract keeps it beside the drawn ones."""

    kl: tuple[DecimalText, ...]
    """KL divergence in nats, to four significant digits."""
    disagree: tuple[int, ...]
    """Positions at which the two name another most likely token, in order."""


class Evidence(Record):
    """Everything an instrument may read about one window."""

    window: Slug
    boot: str
    instrument: str
    """``name@version``."""
    variant: Slug
    opened_at: Instant
    opened_ns: int
    closed_ns: int
    exchanges: tuple[Exchange, ...] = ()
    calls: tuple[Call, ...] = ()
    counters_before: tuple[RankCounters, ...] = ()
    counters_after: tuple[RankCounters, ...] = ()
    metrics_before: str = ""
    metrics_after: str = ""
    machine: tuple[MachineState, ...] = ()
    material: dict[str, JsonValue] = {}
    """What the runner drew for this window from the sealed seed (ids, needles, expected answers)."""
    facts: dict[str, JsonValue] = {}
    """Readings of instruments that do not talk to a server (desk parity tables, pack census)."""
    plan: Digest | None = later(None)
    """SHA-256 of the sealed plan that the window is of; evidence of before it was written down lacks it."""
    divergences: dict[str, Divergences] | None = later(None)
    """Only in extracts, and only where the plan asks for it: document id to its divergence at every position."""
