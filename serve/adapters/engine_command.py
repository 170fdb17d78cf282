"""What every adapter that starts vLLM tells it: options, and the variables that the plugin and the witness read."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import JsonValue

from serve.seat import BootRequest

BYTECODE = "PYTHONPYCACHEPREFIX"
"""Variable with the one folder where Python keeps and looks for bytecode: an empty one where patched code is served."""


def arguments_of(request: BootRequest) -> dict[str, JsonValue]:
    """The seat's engine arguments with the boot's own over them."""
    return request.manifest.arguments | request.planned.arguments


def requested(request: BootRequest) -> dict[str, JsonValue]:
    """What the live engine's configuration is compared with."""
    return arguments_of(request) | {"variant": request.variant, "strict": request.planned.strict}


def flags(arguments: Mapping[str, JsonValue]) -> list[str]:
    """Engine arguments as vLLM's options: ``max_model_len: 4096`` is ``--max-model-len 4096``, null leaves one out.

    A list is one option with a word for each entry, an object is one word of JSON.
    """
    options: list[str] = []
    for name, value in arguments.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            options.append(f"--{option}" if value else f"--no-{option}")
        elif value is not None:
            options += [f"--{option}", *map(_word, value if isinstance(value, list) else [value])]
    return options


def _word(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def carve_variables(request: BootRequest, libraries: Mapping[str, str]) -> dict[str, str]:
    """Environment of the plugin; ``libraries`` are paths as the engine sees them, by variant."""
    return {
        "CARVE_LIBRARIES": json.dumps(dict(libraries)),
        "CARVE_VARIANT": request.variant,
        "CARVE_STRICT": str(request.planned.strict),
        "CARVE_ALLOWED_DECLINES": json.dumps(list(request.allowed_declines)),
    }


__all__ = ["BYTECODE", "arguments_of", "carve_variables", "flags", "requested"]
