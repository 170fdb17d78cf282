"""The GPU variants by name: which source each is built from, and what part it plays."""

from __future__ import annotations

from pathlib import Path

from carve_kernels.registry import Role, Variant
from runner.errors import InputError
from runner.paths import source_root

_DESK = "carve_kernels/desk/gpu/native"
_WATERMARK, _NULL_DECODE, _PAIRED = "CARVE_WATERMARK", "CARVE_NULL_DECODE", "CARVE_PAIRED"

VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("lna2", Role.CANDIDATE, "cuda/lna2.cu", "tickets over chunks of experts, canonical weights"),
        Variant(
            "lna2-paired", Role.CANDIDATE, "cuda/lna2.cu", "lna2 with the half sum left to the accumulation", (_PAIRED,)
        ),
        Variant("lna2-watermark", Role.WATERMARK, "cuda/lna2.cu", "lna2 with an output 1 % too large", (_WATERMARK,)),
        Variant(
            "lna2-paired-watermark",
            Role.WATERMARK,
            "cuda/lna2.cu",
            "lna2-paired with an output 1 % too large",
            (_PAIRED, _WATERMARK),
        ),
        Variant("lna", Role.CANDIDATE, "cuda/lna.cu", "the first attempt: five phases with barriers over the grid"),
        Variant("lna-watermark", Role.WATERMARK, "cuda/lna.cu", "lna with an output 1 % too large", (_WATERMARK,)),
        Variant("lna-null-decode", Role.DESK, "cuda/lna.cu", "the same loads, nothing decoded", (_NULL_DECODE,)),
        Variant("lna-brief", Role.DESK, "cuda/lna.cu", "one instantiation", ("CARVE_ONE_INSTANTIATION",)),
        Variant("dense", Role.CANDIDATE, "cuda/dense.cu", "linears that share an input, in one launch"),
        Variant(
            "dense-watermark", Role.WATERMARK, "cuda/dense.cu", "dense with an output 1 % too large", (_WATERMARK,)
        ),
        Variant("dense-null-decode", Role.DESK, "cuda/dense.cu", "the same loads, nothing decoded", (_NULL_DECODE,)),
        Variant("dense-brief", Role.DESK, "cuda/dense.cu", "one instantiation", ("CARVE_ONE_INSTANTIATION",)),
        Variant("lna2-brief", Role.DESK, "cuda/lna2.cu", "the tuned instantiations", ("CARVE_TUNED_ONLY",)),
        Variant("ceilings", Role.DESK, f"{_DESK}/ceilings.cu", "how fast the card reads, and decodes without reading"),
        Variant("planted", Role.DESK, f"{_DESK}/planted.cu", "kernels with one fault each, for the sanitizer's tools"),
        Variant("knock-out-decline", Role.KNOCK_OUT, "cuda/knock_out.cu", "declines every call"),
        Variant("knock-out-zero", Role.KNOCK_OUT, "cuda/knock_out.cu", "writes zeros", ("CARVE_KNOCK_OUT_ZERO",)),
        Variant("lna2-null-decode", Role.DESK, "cuda/lna2.cu", "the same loads, nothing decoded", (_NULL_DECODE,)),
    )
}


def variant(name: str) -> Variant:
    """The GPU variant called ``name``; InputError with the known names otherwise."""
    if name not in VARIANTS:
        raise InputError("no such GPU kernel variant", expected=", ".join(VARIANTS), found=name)
    return VARIANTS[name]


def sources_folder() -> Path:
    """``kernels`` of the checkout this code runs from; sources are named below it."""
    return source_root() / "kernels"
