"""``dense`` from Python: a group of linears that share an input, multiplied in one launch.

A group owns nothing that another group can write to: its table of parts travels with the launch, and each stream it is
used on and each graph that captures it have scratch of their own. So fans across modules need no shared pool, and two
streams or two graphs at once are safe; one graph replayed twice at once is not.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from carve_kernels.abi import DECLINES, ROW_BINS
from carve_kernels.cuda.counters import copied
from carve_kernels.cuda.scratch import Captures, capture_of
from runner.errors import InputError

ROWS, PARTS, BLOCK = 32, 8, 128
DENSE_ABI, _BAD_CALL = 1, 100
_TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


class DensePart(ctypes.Structure):
    """``carve_dense_part`` of ``abi_dense.h``: addresses of one linear and of its output ``[rows, out]``."""

    _fields_ = (
        ("trellis", ctypes.c_void_p),
        ("suh", ctypes.c_void_p),
        ("svh", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("out_features", ctypes.c_int32),
    )


class DenseCall(ctypes.Structure):
    """``carve_dense_call`` of ``abi_dense.h``."""

    _fields_ = (
        ("abi_version", ctypes.c_int32),
        *((name, ctypes.c_int32) for name in ("rows", "in_features", "parts", "bits", "codebook")),
        *((name, ctypes.c_int32) for name in ("x_type", "out_type", "passes")),
        ("x", ctypes.c_void_p),
        ("part", DensePart * PARTS),
        ("scratch", ctypes.c_void_p),
        ("scratch_bytes", ctypes.c_int64),
        ("counters", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class Part:
    """One linear on the device: ``trellis`` int16 ``[in/16, out/16, 16 K]``, halves ``suh [in]`` and ``svh [out]``."""

    trellis: torch.Tensor
    suh: torch.Tensor
    svh: torch.Tensor

    def __post_init__(self) -> None:
        tiles, words = tuple(self.trellis.shape[:2]), self.trellis.shape[-1]
        shapes = (tuple(self.suh.shape), tuple(self.svh.shape))
        if self.trellis.dtype != torch.int16 or self.suh.dtype != torch.float16 or self.svh.dtype != torch.float16:
            raise InputError("a part has the wrong types", expected="int16, half, half", found=str(self.trellis.dtype))
        if self.trellis.dim() != 3 or words % 16 or shapes != ((16 * tiles[0],), (16 * tiles[1],)):
            raise InputError(
                "a part's tensors disagree", expected=f"trellis {tuple(self.trellis.shape)}", found=str(shapes)
            )
        if not all(one.is_cuda and one.is_contiguous() for one in (self.trellis, self.suh, self.svh)):
            raise InputError("a part is not contiguous on a GPU", found=str(self.trellis.device))

    @property
    def in_features(self) -> int:
        return int(self.suh.shape[0])

    @property
    def out_features(self) -> int:
        return int(self.svh.shape[0])

    @property
    def bits(self) -> int:
        return int(self.trellis.shape[-1]) // 16


class DenseLibrary:
    """One built variant of ``dense.cu``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._native = ctypes.CDLL(str(path))
        self._native.carve_dense_describe.restype = ctypes.c_char_p
        self._native.carve_dense_scratch.restype = ctypes.c_int64
        self._native.carve_dense_forward.argtypes = (ctypes.POINTER(DenseCall),)
        self.describe: dict[str, Any] = json.loads(self._native.carve_dense_describe())

    def scratch_bytes(self, rows: int, in_features: int, out_features: int) -> int:
        """Bytes one call of these shapes needs, ``out_features`` being the sum over its parts."""
        return int(self._native.carve_dense_scratch(rows, in_features, out_features))

    def forward(self, call: DenseCall) -> str:
        """Empty, or the typed reason of a decline, which queued nothing. InputError where the call is malformed."""
        status = self._native.carve_dense_forward(ctypes.byref(call))
        if status >= len(DECLINES):
            what = "the call contradicts itself" if status == _BAD_CALL else "the CUDA runtime refused the launch"
            raise InputError(
                what, where=str(self.path), expected="a carve_dense_call as abi_dense.h has it", found=str(status)
            )
        return DECLINES[status]


class Counters:
    """The library's own count on the device: launches and a histogram of rows."""

    def __init__(self, device: torch.device) -> None:
        self.cells = torch.zeros(1 + ROW_BINS, dtype=torch.int64, device=device)

    def read(self, *, queued: bool = True) -> tuple[int, dict[int, int]]:
        """(launches, {rows: launches}), read beside running work; ``queued`` as in :func:`copied`."""
        launches, *rows = copied(self.cells, queued=queued).tolist()
        return launches, {count: number for count, number in enumerate(rows) if number}


class DenseGroup:
    """Parts with one input; every part has the same K and codebook. InputError where they do not fit each other."""

    def __init__(
        self,
        library: DenseLibrary,
        parts: Sequence[Part],
        codebook: int,
        *,
        counters: Counters | None = None,
        one_stream: bool = False,
    ) -> None:
        """``one_stream``: whoever calls lets no launch or graph begin while another one's still runs, so all of them
        share scratch.
        """
        kinds = {(part.in_features, part.bits) for part in parts}
        if not 1 <= len(parts) <= PARTS or len(kinds) != 1:
            raise InputError(
                "no group", expected=f"1 to {PARTS} parts of one width and K", found=f"{len(parts)}: {kinds}"
            )
        self.library, self.parts, self.codebook, self.counters = library, tuple(parts), codebook, counters
        self.in_features, self.bits = next(iter(kinds))
        self._out_features = sum(part.out_features for part in parts)
        self.device = parts[0].suh.device
        self._one_stream = one_stream
        self._scratch: dict[int, torch.Tensor] = {}
        self._captures = Captures(self._zeroed)

    def forward(self, x: torch.Tensor, outs: Sequence[torch.Tensor], *, passes: int = 0) -> str:
        """``x [rows, in]`` (float32, half, bfloat16) into ``outs``, one ``[rows, out]`` a part, on the current stream.

        Empty, or the typed reason of a decline. InputError where a tensor does not fit the group.
        """
        rows = x.shape[0]
        wanted = [(rows, part.out_features) for part in self.parts]
        if x.dim() != 2 or x.shape[1] != self.in_features or not x.is_contiguous() or x.dtype not in _TYPES:
            raise InputError(
                "x does not fit the group", expected=f"[rows, {self.in_features}]", found=str(tuple(x.shape))
            )
        if [tuple(out.shape) for out in outs] != wanted or len({out.dtype for out in outs}) != 1:
            raise InputError(
                "outs do not fit the group", expected=str(wanted), found=str([tuple(o.shape) for o in outs])
            )
        if not all(each.device == self.device for each in (x, *outs)):
            raise InputError("a tensor is not beside the group", expected=str(self.device), found=str(x.device))
        if not all(out.is_contiguous() and out.dtype in _TYPES for out in outs):
            raise InputError("outs are not contiguous", expected=str(list(_TYPES)), found=str(outs[0].dtype))
        if not 1 <= rows <= ROWS:
            return "rows-above-limit" if rows else "rows-below-limit"
        stream = torch.cuda.current_stream(x.device)
        scratch = self._of_launch(stream)
        call = DenseCall(DENSE_ABI, rows, self.in_features, len(self.parts), self.bits, self.codebook)
        call.x_type, call.out_type, call.passes = _TYPES[x.dtype], _TYPES[outs[0].dtype], passes
        call.x, call.scratch, call.scratch_bytes, call.stream = (
            x.data_ptr(),
            scratch.data_ptr(),
            scratch.numel(),
            stream.cuda_stream,
        )
        call.counters = self.counters.cells.data_ptr() if self.counters else None
        for place, part, out in zip(call.part, self.parts, outs, strict=False):
            place.trellis, place.suh, place.svh = part.trellis.data_ptr(), part.suh.data_ptr(), part.svh.data_ptr()
            place.out, place.out_features = out.data_ptr(), part.out_features
        return self.library.forward(call)

    @property
    def control_bytes(self) -> int:
        """Scratch begins with this many bytes of control words, which are zero between launches."""
        return self.library.scratch_bytes(0, self.in_features, self._out_features)

    def scratches(self) -> tuple[torch.Tensor, ...]:
        """All scratch made so far: of every stream and of every capture."""
        return (*self._scratch.values(), *self._captures.all())

    def scratch_bytes(self) -> int:
        """Memory held on the device so far."""
        return sum(int(each.nbytes) for each in self.scratches())

    def scratch(self, stream: int, device: torch.device) -> torch.Tensor:
        """What eager launches of this stream use, zeroed on first use."""
        key = 0 if self._one_stream else stream
        if key not in self._scratch:
            self._scratch[key] = self._zeroed()
        return self._scratch[key]

    def _of_launch(self, stream: torch.cuda.Stream) -> torch.Tensor:
        if self._one_stream:
            return self.scratch(stream.cuda_stream, self.device)
        if capture := capture_of(stream):
            return self._captures.take(capture, stream)
        self._captures.prepare()
        return self.scratch(stream.cuda_stream, self.device)

    def _zeroed(self) -> torch.Tensor:
        size = self.library.scratch_bytes(ROWS, self.in_features, self._out_features)
        return torch.zeros(size, dtype=torch.uint8, device=self.device)
