"""One stream at a time: scratch and barriers of these kernels are one launch's; a second stream would share them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Event(Protocol):
    """What marks a place in a stream."""

    def record(self) -> None:
        """Mark the current stream's end."""
        ...

    def query(self) -> bool:
        """Whether everything before the mark has run."""
        ...


class SecondStreamError(RuntimeError):
    """Two streams would run kernels that share scratch."""


class OneStream:
    """Sees every launch of a device. Inside one capture all launches are on one stream; outside, another stream may
    launch only after everything of the one before has run.

    Replays need no watch: a graph keeps the order it was captured in, and the engine replays one graph at a time.
    """

    def __init__(self, event: Callable[[], Event]) -> None:
        self._event = event
        self._captured: tuple[int, int] = (0, 0)
        """Number and stream of the capture seen last."""
        self._eager = 0
        self._done: Event | None = None

    def enter(self, stream: int, capture: int, where: str) -> None:
        """Before a launch. Raises SecondStreamError naming the launch and both streams."""
        if capture:
            number, known = self._captured
            if number == capture and known != stream:
                raise SecondStreamError(
                    f"a second stream in one graph: {where} on stream {stream:#x}, before it {known:#x}"
                )
            self._captured = (capture, stream)
        elif self._done is not None and stream != self._eager and not self._done.query():
            raise SecondStreamError(
                f"a second stream while the first still runs: {where} on stream {stream:#x}, before it {self._eager:#x}"
            )

    def leave(self, stream: int, capture: int) -> None:
        """After a launch."""
        if capture:
            return
        self._eager = stream
        self._done = self._done or self._event()
        self._done.record()
