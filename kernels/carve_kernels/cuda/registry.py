"""The GPU variants by name: which source each is built from, and what part it plays."""

from __future__ import annotations

from pathlib import Path

from carve_kernels.registry import Role, Variant
from runner.errors import InputError
from runner.paths import source_root

_DESK = "carve_kernels/desk/gpu/native"
_WATERMARK, _NULL_DECODE, _PAIRED = "CARVE_WATERMARK", "CARVE_NULL_DECODE", "CARVE_PAIRED"
_TUNED_ONLY = "CARVE_TUNED_ONLY"

FAULTY = {
    "prewarm-only": "runs while the engine warms up, and in no capture",
    "untuned": "runs for the first time inside a capture",
    "one-rank": "declines every call where CARVE_RANK is 1",
    "scratch-per-layer": "asks for scratch 72 times over",
    "never-released": "keeps 256 MiB for each layer and row count",
    "stale": "its file is another one once it is loaded",
}
"""Demonstration candidates that a gate must refuse: lna2 but for what is said here."""

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
        Variant("dense-knock-out-decline", Role.KNOCK_OUT, "cuda/knock_out_dense.cu", "declines every call"),
        Variant(
            "dense-knock-out-zero", Role.KNOCK_OUT, "cuda/knock_out_dense.cu", "writes zeros", ("CARVE_KNOCK_OUT_ZERO",)
        ),
        *(
            Variant(name, Role.FAULTY, f"cuda/faulty/{name.replace('-', '_')}.cu", fault, (_TUNED_ONLY,))
            for name, fault in FAULTY.items()
        ),
        Variant("lna2-null-decode", Role.DESK, "cuda/lna2.cu", "the same loads, nothing decoded", (_NULL_DECODE,)),
        Variant(
            "lna2-paired-null-decode",
            Role.DESK,
            "cuda/lna2.cu",
            "the same loads as lna2-paired, nothing decoded",
            (_PAIRED, _NULL_DECODE),
        ),
    )
}

_OVERLAP, _CLOCKS = "CARVE_OVERLAP", "CARVE_CLOCKS"
_CLUSTER = {size: f"CARVE_CLUSTER={size}" for size in (4, 8, 16)}

TRIALS = {
    variant.name: variant
    for variant in (
        Variant(name, Role.DESK, "cuda/lna2.cu", description, (_TUNED_ONLY, *defines))
        for name, description, defines in (
            ("lna2-paired-tickets", "the kernel as it is, tuned instantiations", (_PAIRED,)),
            ("lna2-paired-overlap", "a launch starts while the one before it ends", (_PAIRED, _OVERLAP)),
            ("lna2-paired-cluster16", "an expert a cluster of 16", (_PAIRED, _CLUSTER[16])),
            ("lna2-paired-cluster8", "an expert a cluster of 8", (_PAIRED, _CLUSTER[8])),
            ("lna2-paired-cluster4", "an expert a cluster of 4, for tests of small layers", (_PAIRED, _CLUSTER[4])),
            ("lna2-paired-cluster16-overlap", "both", (_PAIRED, _CLUSTER[16], _OVERLAP)),
            ("lna2-cluster16", "an expert a cluster of 16, canonical weights", (_CLUSTER[16],)),
            ("lna2-paired-cluster16-null-decode", "the same loads", (_PAIRED, _CLUSTER[16], _NULL_DECODE)),
            ("lna2-paired-tickets-null-decode", "the same loads, nothing decoded", (_PAIRED, _NULL_DECODE)),
            ("lna2-paired-tickets-clocks", "with phase clocks", (_PAIRED, _CLOCKS)),
            ("lna2-paired-cluster16-clocks", "with phase clocks", (_PAIRED, _CLUSTER[16], _CLOCKS)),
        )
    )
}
"""Designs that are build options until they have been measured: sm_90a, tuned instantiations."""


def variant(name: str) -> Variant:
    """The GPU variant or trial called ``name``; InputError with the known names otherwise."""
    known = VARIANTS | TRIALS
    if name not in known:
        raise InputError("no such GPU kernel variant", expected=", ".join(known), found=name)
    return known[name]


def sources_folder() -> Path:
    """``kernels`` of the checkout this code runs from; sources are named below it."""
    return source_root() / "kernels"
