"""``name@version`` → instrument, and the digest of its source that the plan seals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runner.digest import sha256_tree
from runner.errors import EvidenceError, InputError
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import Sample
from serve.instruments import (
    acceptance,
    agreement,
    claims,
    engaged,
    finish,
    greedy_band,
    kernel_speed,
    kld,
    knock_out_decline,
    knock_out_zero,
    kv_window,
    launches,
    memory,
    needle,
    pack,
    parity,
    perturbation,
    ppl_decode,
    ppl_prefill,
    pressure,
    product,
    rank_skew,
    resolved,
    restore,
    sanitizer,
    sanity,
    score,
    sensitivity,
    speed,
    ttft,
    vision,
    watermark,
)
from serve.instruments.base import Instrument

_INSTRUMENTS: tuple[Instrument, ...] = (
    acceptance,
    agreement,
    engaged,
    finish,
    greedy_band,
    kernel_speed,
    kld,
    knock_out_decline,
    knock_out_zero,
    kv_window,
    launches,
    memory,
    needle,
    pack,
    parity,
    perturbation,
    ppl_decode,
    ppl_prefill,
    pressure,
    product,
    rank_skew,
    claims,
    resolved,
    restore,
    sanitizer,
    sanity,
    score,
    sensitivity,
    speed,
    ttft,
    vision,
    watermark,
)

_SHARED = (
    "answers",
    "base",
    "engagement",
    "extract",
    "likelihood",
    "machine",
    "metrics",
    "shift",
    "streams",
    "traces",
)
"""Modules behind every instrument: a change there changes every digest."""


def all_instruments() -> tuple[Instrument, ...]:
    """Every instrument at every version, by name and version."""
    return _INSTRUMENTS


def parse(reference: str) -> tuple[str, int]:
    """``speed@1`` → ``("speed", 1)``. Raises InputError for anything else."""
    name, _, version = reference.partition("@")
    if not name or not version.isascii() or not version.isdigit():
        raise InputError(
            "an instrument is named with its version", where=reference, expected="name@version", found=reference
        )
    return name, int(version)


def instrument(name: str, version: int) -> Instrument:
    """One instrument. Raises InputError where this checkout has no such name and version."""
    for known in _INSTRUMENTS:
        if (name, version) == (known.NAME, known.VERSION):
            return known
    raise InputError(
        "unknown instrument",
        where=f"{name}@{version}",
        expected=", ".join(f"{known.NAME}@{known.VERSION}" for known in _INSTRUMENTS),
        found=f"{name}@{version}",
    )


def read(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """The window's sample by its own instrument.

    Raises EvidenceError where the evidence gives none, also where what an engine answered is of a form or size that
    nothing can be read from: such an answer is no reading, and no fault of the runner. InputError for an unknown
    instrument.
    """
    reader = instrument(*parse(window.instrument))
    try:
        return reader.reduce(evidence, window)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise EvidenceError(
            "evidence that its instrument cannot read",
            where=f"window {window.id}",
            expected=window.instrument,
            found=repr(error),
        ) from error


def source_digest(known: Instrument) -> str:
    """Digest of the instrument's own source file and of the modules all instruments share."""
    folder = Path(__file__).parent
    own = folder / f"{known.NAME.replace('-', '_')}.py"
    return sha256_tree(folder, [own, *(folder / f"{name}.py" for name in _SHARED)])
