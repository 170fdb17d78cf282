"""The native variants by name: which source each is built from, and what part it plays."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from runner.errors import InputError
from runner.paths import source_root


class Role(StrEnum):
    """What a variant is for."""

    INCUMBENT = "incumbent"
    CANDIDATE = "candidate"
    WATERMARK = "watermark"
    """The same source with a deliberate error of 1 % of the output: it must be seen on every rank."""
    KNOCK_OUT = "knock-out"
    """The candidate's ABI without its work."""
    FAULTY = "faulty"
    """A demonstration candidate that a gate must refuse."""
    DESK = "desk"
    """For tests and measurements only; not a variant an engine can serve."""


@dataclass(frozen=True)
class Variant:
    """One shared library: a source file and the macros it is compiled with."""

    name: str
    role: Role
    source: str
    """Relative to ``kernels/cpu``; of a GPU variant (``carve_kernels.cuda.registry``) to ``kernels``."""
    description: str
    defines: tuple[str, ...] = ()


_WATERMARK = ("CARVE_WATERMARK",)

VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("incumbent", Role.INCUMBENT, "incumbent.cpp", "plain loop: every (row, expert) pair decodes its tiles"),
        Variant("lna2", Role.CANDIDATE, "lna2.cpp", "tickets over experts, weights decoded once for all rows"),
        Variant(
            "incumbent-watermark", Role.WATERMARK, "incumbent.cpp", "incumbent with an output 1 % too large", _WATERMARK
        ),
        Variant("lna2-watermark", Role.WATERMARK, "lna2.cpp", "lna2 with an output 1 % too large", _WATERMARK),
        Variant("knock-out-decline", Role.KNOCK_OUT, "knock_out.cpp", "declines every call"),
        Variant("knock-out-zero", Role.KNOCK_OUT, "knock_out.cpp", "writes zeros", defines=("CARVE_KNOCK_OUT_ZERO",)),
        Variant("silent-fallback", Role.FAULTY, "faulty/silent_fallback.cpp", "declines every call, claims to be lna2"),
        Variant("prefill-only", Role.FAULTY, "faulty/prefill_only.cpp", "declines calls of 64 rows or fewer"),
        Variant("half-k", Role.FAULTY, "faulty/half_k.cpp", "leaves out half of k of layer 0's down projection"),
        Variant(
            "idle-when-timed", Role.FAULTY, "faulty/idle_when_timed.cpp", "leaves work out in long runs of one row"
        ),
        Variant("one-rank", Role.FAULTY, "faulty/one_rank.cpp", "declines every call where CARVE_RANK is 1"),
        Variant("decode", Role.DESK, "decode.cpp", "decodes whole matrices, for tests and the decode rate"),
    )
}


def variant(name: str, source: str = "") -> Variant:
    """The variant called ``name``, or one that an order brings with its ``source``, and that one's watermark.

    Raises InputError with the known names for any other.
    """
    if name in VARIANTS:
        return VARIANTS[name]
    if not source:
        raise InputError(
            "no such kernel variant",
            expected=", ".join(VARIANTS),
            found=name,
            next_step="the order's candidate names its source below kernels/cpu in `sources`",
        )
    role, defines = (Role.WATERMARK, _WATERMARK) if name.endswith("-watermark") else (Role.CANDIDATE, ())
    return Variant(name, role, source, "brought by an order", defines)


def sources_folder() -> Path:
    """``kernels/cpu`` of the checkout this code runs from."""
    return source_root() / "kernels" / "cpu"
