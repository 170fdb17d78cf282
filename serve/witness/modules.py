"""Served modules as the native side sees them: one rank's shards and the call structures that point into them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from carve_kernels.exl3.codebook import Codebook
from carve_kernels.library import ABI_VERSION, CExpert, CMatrix, LinearCall, MoeCall
from carve_kernels.parallel import Parallel

TILE = 16
BLOCK = 128

PROJECTIONS = ("gate", "up", "down")
CODEBOOKS = {book.value: book.abi for book in Codebook}


@dataclass
class Matrix:
    """One rank's shard of an EXL3 matrix, contiguous, owned by this process.

    ``trellis`` int16 [in/16, out/16, 16·bits], ``suh`` float16 [in], ``svh`` float16 [out].
    """

    trellis: torch.Tensor
    suh: torch.Tensor
    svh: torch.Tensor
    codebook: str

    @property
    def in_features(self) -> int:
        """Input width of the shard."""
        return int(self.trellis.shape[0]) * TILE

    @property
    def out_features(self) -> int:
        """Output width of the shard."""
        return int(self.trellis.shape[1]) * TILE

    @property
    def bits(self) -> int:
        """K, from the trellis itself."""
        return int(self.trellis.shape[2]) // TILE

    def native(self) -> CMatrix:
        """The C view; valid while this object lives."""
        return CMatrix(
            self.trellis.data_ptr(),
            self.suh.data_ptr(),
            self.svh.data_ptr(),
            self.in_features,
            self.out_features,
            self.bits,
            CODEBOOKS[self.codebook],
        )

    def payload(self) -> tuple[torch.Tensor, ...]:
        """What the weights digest covers, in order."""
        return (self.trellis, self.suh, self.svh)


class ExpertsModule:
    """Routed experts of one layer on this rank."""

    def __init__(
        self,
        prefix: str,
        index: int,
        experts: Sequence[tuple[Matrix, Matrix, Matrix]],
        *,
        topk: int,
        limit: float,
        parallel: Parallel,
    ) -> None:
        self.prefix = prefix
        self.index = index
        self.experts = tuple(experts)
        self.hidden, self.topk = experts[0][0].in_features, topk
        self.table = (CExpert * len(experts))(*(CExpert(*(matrix.native() for matrix in expert)) for expert in experts))
        self._replaced: dict[tuple[int, str], torch.Tensor] = {}
        self.call = MoeCall(
            abi_version=ABI_VERSION,
            layer=index,
            hidden=self.hidden,
            intermediate=experts[0][0].out_features,
            topk=topk,
            experts=len(experts),
            limit=limit,
            table=self.table,
            parallel=ctypes.pointer(parallel),
        )
        self.address = ctypes.addressof(self.call)

    def point(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, out: torch.Tensor) -> None:
        """Aim the call at float32 [rows, hidden], int32 and float32 [rows, topk], float32 [rows, hidden]."""
        call = self.call
        call.rows = x.shape[0]
        call.x = x.data_ptr()
        call.ids = ids.data_ptr()
        call.weights = weights.data_ptr()
        call.out = out.data_ptr()

    def perturb(self, expert: int, projection: str, factor: float) -> None:
        """Serve this expert with a float16-rounded copy of ``svh`` times ``factor``; the loaded tensor stays."""
        matrix = self.experts[expert][PROJECTIONS.index(projection)]
        scaled = (matrix.svh.float() * factor).to(torch.float16)
        self._replaced[expert, projection] = scaled
        getattr(self.table[expert], projection).svh = scaled.data_ptr()

    def unperturb(self) -> None:
        """Serve the loaded ``svh`` again."""
        for expert, projection in self._replaced:
            matrix = self.experts[expert][PROJECTIONS.index(projection)]
            getattr(self.table[expert], projection).svh = matrix.svh.data_ptr()
        self._replaced.clear()


class LinearModule:
    """One linear module on this rank; a merged module holds several matrices side by side."""

    def __init__(self, prefix: str, index: int, matrices: Sequence[Matrix], *, parallel: Parallel) -> None:
        self.prefix = prefix
        self.index = index
        self.matrices = tuple(matrices)
        self.widths = tuple(matrix.out_features for matrix in matrices)
        self.table = (CMatrix * len(matrices))(*(matrix.native() for matrix in matrices))
        self.calls = (LinearCall * len(matrices))()
        for call, native in zip(self.calls, self.table, strict=True):
            call.matrix = ctypes.pointer(native)
            call.parallel = ctypes.pointer(parallel)
        self.address = ctypes.addressof(self.calls)

    @property
    def inputs(self) -> int:
        """Width of what it reads."""
        return self.matrices[0].in_features

    def outputs(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Aim the calls at float32 ``x`` [rows, in] and fresh float32 [rows, out] tensors, one for each matrix."""
        rows = int(x.shape[0])
        outs = [torch.empty((rows, width), dtype=torch.float32) for width in self.widths]
        for call, out in zip(self.calls, outs, strict=True):
            call.rows = rows
            call.x = x.data_ptr()
            call.out = out.data_ptr()
        return outs
