"""Counters on a device, read without stopping the streams that count."""

from __future__ import annotations

import torch


def copied(cells: torch.Tensor, *, queued: bool = True) -> torch.Tensor:
    """A copy of ``cells`` in host memory, made on a stream of its own: nothing is put into any other stream.

    With ``queued`` it has what the current stream has been given so far, and this call waits for that; without it has
    what has run by now, however much still runs.
    """
    stream = torch.cuda.Stream(cells.device)
    if queued:
        stream.wait_stream(torch.cuda.current_stream(cells.device))
    host = torch.empty(cells.shape, dtype=cells.dtype, pin_memory=True)
    with torch.cuda.stream(stream):
        host.copy_(cells, non_blocking=True)
    stream.synchronize()
    return host


def at(address: int, shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """int64 counters of a library as torch sees them, where they lie."""
    return torch.as_tensor(_Memory(address, shape), device=device)


class _Memory:
    def __init__(self, address: int, shape: tuple[int, ...]) -> None:
        self.__cuda_array_interface__ = {"shape": shape, "typestr": "<i8", "data": (address, False), "version": 3}
