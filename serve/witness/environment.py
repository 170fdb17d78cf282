"""The engine's own environment, read back from inside it: an engine may reset what it was started with."""

from __future__ import annotations

import json
import os

NAMES = "CARVE_ENVIRONMENT"
"""Variable with the names (JSON) that are read back; absent where nobody asked."""
LIVE = "environment."
"""Before each name in the engine's answer."""
ABSENT = "(not there)"


def read_back() -> dict[str, str]:
    """The present value of each variable that the adapter named."""
    names: list[str] = json.loads(os.environ.get(NAMES, "[]"))
    return {f"{LIVE}{name}": os.environ.get(name, ABSENT) for name in names}


__all__ = ["ABSENT", "LIVE", "NAMES", "read_back"]
