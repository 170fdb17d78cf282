"""The same work over many items, on every processor where that is faster."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

ALONE = 128
"""Up to so many items one process is faster than several."""
_CHUNK = 64


@contextmanager
def collector_paused() -> Iterator[None]:
    """No garbage is collected while many records are read: they hold no cycles, and each round would walk them all."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


T = TypeVar("T")
R = TypeVar("R")


def each(work: Callable[[T], R], items: Sequence[T], *, alone: int = ALONE) -> Iterator[R]:
    """``work`` of every item, in order. Items, answers and errors must be picklable; an error ends it.

    Up to ``alone`` items stay in this process.
    """
    if len(items) <= alone:
        yield from map(work, items)
        return
    workers = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("fork"), initializer=gc.disable) as pool:
        yield from pool.map(work, items, chunksize=min(_CHUNK, -(-len(items) // (4 * workers))))


__all__ = ["ALONE", "collector_paused", "each"]
