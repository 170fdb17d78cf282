"""Runs the planted fault that one tool has to find: ``python -m carve_kernels.desk.gpu.planted LIBRARY TOOL``."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """The library's own answer: 0, or 2 for a tool that no fault is planted for."""
    library, tool = arguments
    return int(ctypes.CDLL(library).carve_planted(tool.encode()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
