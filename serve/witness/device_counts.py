"""Counters in a device's memory, which a one-thread kernel on the counted stream moves (``native/count.cu``)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import torch
from carve_kernels.abi import ROW_BINS

from runner.errors import SeatError
from serve.witness.processor import Count
from serve.witness.streams import Event

SLOTS = 8192
"""Different counters of a rank: a slot for each variant, operator and layer that runs, and each reason to decline."""
CELLS = 1 + ROW_BINS
PREWARM, SERVED = 0, 1

Key = tuple[str, str, int]
"""What is counted (an operator, or a decline's reason), the variant, and the layer's index."""


class Cuda(Protocol):
    """What of CUDA the witness itself needs."""

    def count(self, banks: torch.Tensor, serving: torch.Tensor, slot: int, rows: int, stream: int) -> None:
        """One more in ``slot`` of ``banks``, in the one that ``serving`` names when the stream gets there."""
        ...

    def capture(self, stream: int) -> int:
        """The number of the graph capture that a stream takes part in, or 0."""
        ...

    def stream(self) -> int:
        """The stream on which a launch would be queued now."""
        ...

    def event(self) -> Event:
        """A mark for the current stream."""
        ...


class NativeCuda:
    """The built ``count.cu`` and torch, on one device.

    Raises SeatError where the file is something else or the CUDA runtime refuses.
    """

    def __init__(self, path: Path, device: torch.device) -> None:
        self.path, self.device = path, device
        try:
            library = ctypes.CDLL(str(path))
            cells = int(library.carve_count_cells())
            self._count, self._capture = library.carve_count, library.carve_capture
        except (OSError, AttributeError) as error:
            raise SeatError("not the GPU's witness", where=str(path), found=str(error)) from error
        if cells != CELLS:
            raise SeatError(
                "the GPU's witness is of another version", where=str(path), expected=str(CELLS), found=str(cells)
            )
        number, pointer = ctypes.c_uint64, ctypes.c_void_p
        self._count.argtypes = [pointer, number, pointer, number, ctypes.c_int, pointer]
        self._capture.argtypes = [pointer, ctypes.POINTER(number)]

    def count(self, banks: torch.Tensor, serving: torch.Tensor, slot: int, rows: int, stream: int) -> None:
        """Queue one count."""
        self._check(self._count(banks.data_ptr(), banks.shape[1], serving.data_ptr(), slot, rows, stream))

    def capture(self, stream: int) -> int:
        """The capture's number, or 0."""
        found = ctypes.c_uint64()
        self._check(self._capture(stream, ctypes.byref(found)))
        return int(found.value)

    def stream(self) -> int:
        """torch's current stream."""
        return int(torch.cuda.current_stream(self.device).cuda_stream)

    def event(self) -> Event:
        """torch's."""
        made: Event = torch.cuda.Event()
        return made

    def _check(self, status: int) -> None:
        if status:
            raise SeatError("CUDA refused the witness", where=str(self.path), found=f"cudaError {status}")


class DeviceCounts:
    """All counters of one rank: int64 ``[2 banks, SLOTS, CELLS]`` on ``device``, and the word that names the bank."""

    def __init__(self, device: torch.device, cuda: Cuda) -> None:
        self.cuda, self.device = cuda, device
        self.banks = torch.zeros((2, SLOTS, CELLS), dtype=torch.int64, device=device)
        self.serving = torch.zeros(1, dtype=torch.int32, device=device)
        self._slots: dict[Key, int] = {}

    def count(self, key: Key, rows: int, stream: int) -> None:
        """Queue one count of ``rows`` rows behind what the stream holds. Raises SeatError past the last slot."""
        slot = self._slots.setdefault(key, len(self._slots))
        if slot >= SLOTS:
            raise SeatError("more different counters than the witness holds", expected=str(SLOTS), found=str(key))
        self.cuda.count(self.banks, self.serving, slot, rows, stream)

    def serve(self, serving: bool) -> None:
        """Count what follows as served, or as warm-up; waits until all that was queued before has been counted."""
        self._wait()
        self.serving.fill_(SERVED if serving else PREWARM)
        self._wait()

    def read(self, bank: int, what: str, variant: str) -> Iterator[Count]:
        """Counts of one kind and variant that are not zero, after everything queued has run."""
        keys = [(slot, key[2]) for key, slot in self._slots.items() if key[:2] == (what, variant)]
        if not keys:
            return
        self._wait()
        table = self.banks[bank, [slot for slot, _ in keys]].cpu().tolist()
        for (_, layer), (launches, *rows) in zip(keys, table, strict=True):
            if launches:
                yield Count(layer, launches, tuple((count, number) for count, number in enumerate(rows) if number))

    def nbytes(self) -> int:
        """Memory on the device."""
        return int(self.banks.nbytes + self.serving.nbytes)

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
