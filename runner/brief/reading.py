"""What everybody has to read who is given an order of a kind, besides what the order itself names."""

from __future__ import annotations

from carve_kernels.registry import VARIANTS

from runner.model.order import KernelOrder, WorkOrder, files_of
from runner.paths import source_root

READING = {
    "kernels/cpu/": (
        ("kernels/cpu/abi.h", "interface"),
        ("kernels/cpu/exports.h", "exports"),
        ("kernels/README.md", "kernels_readme"),
        ("kernels/cpu/README.md", "kernels_measured"),
    ),
    "kernels/cuda/": (
        ("kernels/cuda/abi.h", "interface"),
        ("kernels/cuda/abi_dense.h", "interface_dense"),
        ("kernels/README.md", "kernels_readme"),
        ("kernels/cuda/README.md", "kernels_measured"),
    ),
    "serve/plugin/": (
        ("serve/plugin/dispatch.py", "plugin_dispatch"),
        ("serve/plugin/linear.py", "plugin_linear"),
    ),
    "recipe/patches/": (("recipe/patches/README.md", "patches_readme"),),
}
"""Folder of what may be changed to files and the phrase that says why."""


def reading(order: WorkOrder) -> dict[str, str]:
    """File to phrase, each file once: borders first, then what it is compared with and what stands there now."""
    touched = (*files_of(order), *(order.candidate.sources if isinstance(order, KernelOrder) else ()))
    found = {
        file: phrase
        for folder, files in READING.items()
        if any(name.startswith(folder) for name in touched)
        for file, phrase in files
    }
    if isinstance(order, KernelOrder):
        incumbent = VARIANTS.get(order.candidate.incumbent)
        if incumbent and any(name.startswith("kernels/cpu/") for name in touched):
            found.setdefault(f"kernels/cpu/{incumbent.source}", "compared_source")
        for name in order.candidate.sources:
            if (source_root() / name).is_file():
                found.setdefault(name, "present_source")
    named = {item.file for item in order.reading}
    return {file: phrase for file, phrase in found.items() if file not in named}


__all__ = ["READING", "reading"]
