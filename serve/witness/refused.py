"""How strict mode ends the engine."""

from __future__ import annotations


class RefusedError(RuntimeError):
    """Strict mode ends the engine; the adapter finds the reason by ``MARK`` in the engine's output."""

    MARK = "carve strict "

    def __init__(self, level: int, reason: str) -> None:
        super().__init__(f"{self.MARK}{level}: {reason}")
