"""The host process's own OpenMP pool as the ABI's ``carve_parallel``.

torch's CPU kernels run on libgomp's threads, which spin for a while after each region. A library with a pool of its
own would spin against them on the same cores, so a variant is given libgomp's ``GOMP_parallel`` instead, of the copy
that is already mapped into this process (torch's wheels bundle one).
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
from functools import cache
from pathlib import Path

Run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
ThreadId = ctypes.CFUNCTYPE(ctypes.c_int)


class Parallel(ctypes.Structure):
    """``carve_parallel`` of ``abi.h``."""

    _fields_ = (("run", ctypes.c_void_p), ("thread_id", ctypes.c_void_p), ("threads", ctypes.c_int32))


def mapped_libgomp(maps: str) -> list[str]:
    """Paths of the libgomp copies in the text of ``/proc/self/maps``, in order of appearance."""
    paths = (line.split(maxsplit=5)[5] for line in maps.splitlines() if len(line.split(maxsplit=5)) == 6)
    return list(dict.fromkeys(path for path in paths if Path(path).name.startswith("libgomp")))


@cache
def _libgomp(path: str) -> ctypes.CDLL:
    return ctypes.CDLL(path)


def libgomp() -> str | None:
    """The libgomp to use: the mapped copy (torch's first, if there are several), else the system's, else None."""
    maps = Path("/proc/self/maps")
    mapped = mapped_libgomp(maps.read_text()) if maps.exists() else []
    torch_copies = [path for path in mapped if "torch" in path]
    return next(iter(torch_copies or mapped), None) or ctypes.util.find_library("gomp")


def single() -> Parallel:
    """No threads: the caller does all work."""
    return Parallel(None, None, 1)


def host(threads: int | None = None) -> Parallel:
    """The host's pool with ``threads`` threads (default: ``omp_get_max_threads`` of that pool, as torch uses it).

    Falls back to :func:`single` where the process has no libgomp.
    """
    path = libgomp()
    if path is None:
        return single()
    gomp = _libgomp(path)
    count = threads or int(gomp.omp_get_max_threads()) or os.cpu_count() or 1
    run, thread_id = (
        ctypes.cast(gomp[name], ctypes.c_void_p).value for name in ("GOMP_parallel", "omp_get_thread_num")
    )
    return Parallel(run, thread_id, count)
