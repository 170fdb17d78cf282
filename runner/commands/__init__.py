"""Commands by theme. Each module has ``register(app)`` and imports only Typer until a command runs."""

from __future__ import annotations

import importlib.util
from importlib import import_module
from types import ModuleType

_NAMES = ("orders", "execution", "evidence", "decisions")

COMMAND_GROUPS: tuple[ModuleType, ...] = tuple(
    import_module(f"runner.commands.{name}") for name in _NAMES if importlib.util.find_spec(f"runner.commands.{name}")
)
