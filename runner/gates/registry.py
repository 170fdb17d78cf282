"""``name@version`` → gate, its parameters' schema, the digest of its source, and what has been withdrawn."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal

from runner.digest import sha256_tree
from runner.errors import InputError
from runner.gates import (
    acceptance,
    agreement,
    agreement_v2,
    claims,
    eager_gap,
    engaged,
    finish,
    four_streams,
    greedy_band,
    kernel_speed,
    kernel_speed_v2,
    kld,
    kld_v2,
    knock_out,
    kv_window,
    launches,
    memory,
    needle,
    pack,
    parity,
    perturbation,
    ppl_decode,
    ppl_decode_v2,
    ppl_prefill,
    ppl_prefill_v2,
    pressure,
    pressure_v2,
    product,
    rank_skew,
    resolved,
    restore,
    sanitizer,
    sanity,
    score,
    sensitivity,
    speed,
    speed_v2,
    ttft,
    vision,
    watermark,
)
from runner.gates.base import Gate
from runner.model.base import Record, Slug
from runner.yaml_strict import read

_GATES: tuple[Gate, ...] = (
    pack,
    product,
    claims,
    resolved,
    engaged,
    perturbation,
    watermark,
    knock_out,
    parity,
    kernel_speed,
    kernel_speed_v2,
    pressure,
    pressure_v2,
    sanitizer,
    kld,
    kld_v2,
    ppl_prefill,
    ppl_prefill_v2,
    ppl_decode,
    ppl_decode_v2,
    speed,
    speed_v2,
    four_streams,
    needle,
    score,
    ttft,
    kv_window,
    memory,
    launches,
    rank_skew,
    eager_gap,
    acceptance,
    greedy_band,
    finish,
    sanity,
    vision,
    agreement,
    agreement_v2,
    sensitivity,
    restore,
)

_WAIVABLE: tuple[Gate, ...] = (
    kernel_speed,
    pressure,
    ppl_prefill,
    ppl_decode,
    speed,
    needle,
    score,
    ttft,
    kv_window,
    memory,
    eager_gap,
    acceptance,
    finish,
    sanity,
    vision,
)
"""Gates that say how good something is, about which a person may decide. Every other gate proves that what was measured
is what is claimed, and no signature makes that true."""

_SHARED = (
    "base.py",
    "blocks.py",
    "by_class.py",
    "common.py",
    "engagement.py",
    "likelihood.py",
    "paired.py",
    "shift.py",
    "../stats.py",
)
"""Modules behind every gate: a change there changes every digest."""


_WITHDRAWN = Path(__file__).resolve().parent / "withdrawn.yaml"


def all_gates() -> tuple[Gate, ...]:
    """Every gate at every version, in the order in which a report lists them."""
    return _GATES


def gate(name: str, version: int) -> Gate:
    """One gate. Raises InputError where this checkout has no such name and version."""
    for known in _GATES:
        if (name, version) == (known.NAME, known.VERSION):
            return known
    raise InputError(
        "unknown gate",
        where=f"{name}@{version}",
        expected=", ".join(f"{known.NAME}@{known.VERSION}" for known in _GATES),
        found=f"{name}@{version}",
        next_step="`runner gates` lists the gates of this checkout",
    )


def waivable(name: str) -> bool:
    """Whether a person may let the gate stand open. A gate that nobody here knows may not."""
    return any(name == known.NAME for known in _WAIVABLE)


def parameter_schema(known: Gate) -> dict[str, Any]:
    """JSON Schema of the gate's parameters, with the field docstrings as descriptions."""
    return known.Parameters.model_json_schema()


def source_digest(known: Gate) -> str:
    """Digest of the gate's own source, a later version's with that of the first, and of the modules all gates share."""
    folder, first = Path(__file__).resolve().parent, f"{known.NAME.replace('-', '_')}"
    own = [f"{first}.py"] + ([f"{first}_v{known.VERSION}.py"] if known.VERSION > 1 else [])
    return sha256_tree(folder.parent, [(folder / name).resolve() for name in (*own, *_SHARED)])


class Withdrawn(Record):
    """A released version that was found wrong: its reports still verify, what rests on them says so."""

    kind: Literal["gate", "instrument"]
    name: Slug
    version: int
    date: str
    """UTC day, ``YYYY-MM-DD``."""
    reason: str


@cache
def withdrawn(path: Path = _WITHDRAWN) -> tuple[Withdrawn, ...]:
    """Versions withdrawn by ``runner/gates/withdrawn.yaml``, as a process first reads it.

    Raises InputError where the file is malformed, or withdraws a gate that there is none of: a name with a slip in it
    would withdraw nothing.
    """
    found: tuple[Withdrawn, ...] = read(path).validate(tuple[Withdrawn, ...])
    for one in found:
        if one.kind == "gate":
            gate(one.name, one.version)
    return found


def withdrawal(name: str, version: int, path: Path = _WITHDRAWN) -> Withdrawn | None:
    """Why a gate's version was withdrawn; None where it stands."""
    wanted = ("gate", name, version)
    return next((one for one in withdrawn(path) if (one.kind, one.name, one.version) == wanted), None)
