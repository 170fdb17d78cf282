"""The trees of this checkout whose code plans, serves, measures and judges, and their digests."""

from __future__ import annotations

from pathlib import Path

from runner.digest import sha256_package, sha256_tree
from runner.paths import source_root

GRADERS = ("runner", "serve", "recipe", "kernels/carve_kernels")

IN_THE_ENGINE = ("plugin", "witness")
"""Trees below ``serve`` that every rank imports and answers for."""


NATIVE = ("cpu", "cuda")
"""Folders below ``kernels`` that libraries are compiled from; what a compiler makes of them is not twice the same."""


def native_subjects() -> dict[str, str]:
    """Digest of each folder of native sources as they lie in this checkout, ``sources.<folder>``."""
    root = source_root() / "kernels"
    return {f"sources.{name}": sha256_tree(root, filter(_native, (root / name).rglob("*"))) for name in NATIVE}


def _native(path: Path) -> bool:
    return path.suffix in (".cu", ".cuh", ".cpp", ".h")


def tree_subjects() -> dict[str, str]:
    """Digest of each grader's sources, ``tree.<grader>``."""
    root = source_root()
    subjects = {f"tree.{Path(tree).name}": sha256_tree(root, (root / tree).rglob("*.py")) for tree in GRADERS}
    return subjects | {f"tree.{tree}": sha256_package(root / "serve" / tree) for tree in IN_THE_ENGINE}
