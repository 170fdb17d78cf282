"""What a driver is given: the planned window, a running boot, and the sealed draw for its material."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from runner.draw import Draw
from runner.errors import InputError
from runner.model.plan import PlannedWindow
from runner.model.product import Verified
from runner.model.seat import SeatManifest
from serve.seat import Boot


@dataclass(frozen=True)
class WindowContext:
    """One window about to be measured. The workflow has already switched the boot to ``variant``."""

    window: PlannedWindow
    boot: Boot
    manifest: SeatManifest
    draw: Draw
    pools: Path
    """Folder with ``en.jsonl``, ``ja.jsonl`` and ``code.jsonl``."""
    variant: str
    """Switched on while the window is open; for a ``drawn`` arm the workflow has resolved it."""
    pack: Path
    """Folder of the pack that this boot serves."""
    drawn: dict[str, JsonValue] = field(default_factory=dict)
    """Filled as material is taken: which documents of each language's pool, for ``runner.material``."""
    verify: Callable[[], Verified] | None = None
    """Compares a recipe's product with its order; None where there is none."""

    @property
    def material_label(self) -> str:
        """Windows that are compared on the same material share ``arguments["material"]``; the rest draw their own."""
        return self.text("material", self.window.id)

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole-number window argument. Raises InputError naming the window and the argument."""
        value = self.window.arguments.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._malformed(name, "a whole number", value)
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """A text window argument. Raises InputError naming the window and the argument."""
        value = self.window.arguments.get(name, default)
        if not isinstance(value, str):
            raise self._malformed(name, "text", value)
        return value

    def texts(self, name: str, default: Sequence[str]) -> tuple[str, ...]:
        """A list-of-text window argument. Raises InputError naming the window and the argument."""
        value = self.window.arguments.get(name, list(default))
        if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
            raise self._malformed(name, "a list of text, not empty", value)
        return tuple(str(item) for item in value)

    def integers(self, name: str, default: Sequence[int]) -> tuple[int, ...]:
        """A list-of-integers window argument. Raises InputError naming the window and the argument."""
        value = self.window.arguments.get(name, list(default))
        if not isinstance(value, list) or not value:
            raise self._malformed(name, "a list of whole numbers, not empty", value)
        numbers = [item for item in value if isinstance(item, int) and not isinstance(item, bool)]
        if len(numbers) != len(value):
            raise self._malformed(name, "a list of whole numbers, not empty", value)
        return tuple(numbers)

    def _malformed(self, name: str, expected: str, found: object) -> InputError:
        return InputError(
            "a window argument cannot be used",
            where=f"window {self.window.id}, argument {name}",
            expected=expected,
            found=repr(found),
            next_step="correct the order's window arguments and plan again",
        )
