"""Scratch of launches: a captured launch has scratch that no other capture and no eager launch writes to.

A replay runs no Python, so nobody can ask then whether scratch is free: it must belong to the graph from the start.
What remains the caller's is one graph replayed twice at once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch

from runner.errors import SeatError

_ACTIVE = 1
"""``cudaStreamCaptureStatusActive``."""


def capture_of(stream: torch.cuda.Stream) -> int:
    """The number of the graph capture that the current ``stream`` takes part in, or 0.

    SeatError where the CUDA runtime does not tell.
    """
    if not torch.cuda.is_current_stream_capturing():
        return 0
    runtime = ctypes.CDLL(f"libcudart.so.{str(torch.version.cuda).split('.', maxsplit=1)[0]}")
    status, number = ctypes.c_int(), ctypes.c_uint64()
    # Graph, dependencies, edges and their number are optional; before CUDA 13 the function has the first three only.
    optional = (ctypes.c_void_p(),) * 4
    failed = runtime.cudaStreamGetCaptureInfo(
        ctypes.c_void_p(stream.cuda_stream), ctypes.byref(status), ctypes.byref(number), *optional
    )
    if failed or status.value != _ACTIVE:
        raise SeatError("a capture has no number", expected="an active capture", found=f"{failed}, {status.value}")
    return int(number.value)


class Captures:
    """One buffer for each graph capture and stream in it, kept as long as this object: a graph may run at any time."""

    def __init__(self, make: Callable[[], torch.Tensor]) -> None:
        """``make``: a zeroed buffer of the size that every launch fits in."""
        self._make = make
        self._spare: torch.Tensor | None = None
        self._held: dict[tuple[int, int], torch.Tensor] = {}

    def prepare(self) -> None:
        """At an eager launch: have a zeroed buffer at hand, so that the next capture need not make one.

        One made during the capture comes out of the graph's own memory, and each replay zeroes it anew.
        """
        if self._spare is None:
            self._spare = self._make()

    def take(self, capture: int, stream: torch.cuda.Stream) -> torch.Tensor:
        """The buffer of this stream's launches in this capture."""
        key = (capture, stream.cuda_stream)
        if key not in self._held:
            made, self._spare = (self._make() if self._spare is None else self._spare), None
            self._held[key] = made
        return self._held[key]

    def all(self) -> tuple[torch.Tensor, ...]:
        """Every buffer made so far."""
        spare = [] if self._spare is None else [self._spare]
        return (*spare, *self._held.values())

    def nbytes(self) -> int:
        """Memory held on the device so far."""
        return sum(int(memory.nbytes) for memory in self.all())
