"""Cutting EXL3 matrices for tensor parallelism.

The Hadamard transform works on independent blocks of 128, so a shard whose ends are multiples of 128 is itself an EXL3
matrix: the trellis is cut along its tiles, ``suh`` with the input and ``svh`` with the output (campaign section 5.1).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from serve.plugin.headers import CODEBOOK_MARKERS, PARTS
from serve.witness.modules import BLOCK, TILE, Matrix


@dataclass(frozen=True)
class Cut:
    """Which part of a matrix a rank keeps: share ``rank`` of ``ranks`` along the input or the output."""

    rank: int = 0
    ranks: int = 1
    along: str = "out"

    def apply(self, part: str, tensor: torch.Tensor, where: str) -> torch.Tensor:
        """This rank's own contiguous copy of one tensor. Raises ValueError where a shard is not a multiple of 128."""
        kept = {"trellis": 0 if self.along == "in" else 1, "suh": 0, "svh": 0}[part]
        shared = {"trellis": False, "suh": self.along == "out", "svh": self.along == "in"}[part]
        if self.ranks == 1 or shared:
            return tensor.detach().clone().contiguous()
        width = int(tensor.shape[kept])
        unit = BLOCK // TILE if part == "trellis" else BLOCK
        if width % (unit * self.ranks):
            raise ValueError(
                f"{where}.{part}: {width * BLOCK // unit} features over {self.ranks} ranks; "
                f"a shard must be a multiple of {BLOCK}"
            )
        share = width // self.ranks
        return tensor.detach().narrow(kept, self.rank * share, share).clone().contiguous()


def columns(matrix: Matrix, count: int, where: str) -> list[Matrix]:
    """``count`` matrices of equal width, side by side in ``matrix``. Raises ValueError where one is no EXL3 matrix."""
    if matrix.out_features % (BLOCK * count):
        raise ValueError(f"{where}: {matrix.out_features} outputs in {count} groups; a group is a multiple of {BLOCK}")

    def group(cut: Cut) -> Matrix:
        trellis, suh, svh = (cut.apply(part, getattr(matrix, part), where) for part in PARTS)
        return Matrix(trellis, suh, svh, matrix.codebook)

    return [group(Cut(number, count, "out")) for number in range(count)]


@dataclass
class Loading:
    """The tensors of one matrix as they arrive."""

    name: str
    cut: Cut
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    codebook: str = "default"

    def take(self, part: str, tensor: torch.Tensor) -> None:
        """Keep this rank's share of ``trellis``, ``suh`` or ``svh``, or note the codebook marker."""
        if part in CODEBOOK_MARKERS:
            self.codebook = part
        else:
            self.tensors[part] = self.cut.apply(part, tensor, self.name)

    def finish(self) -> Matrix:
        """The matrix. Raises ValueError naming the tensors that never came."""
        missing = [part for part in PARTS if part not in self.tensors]
        if missing:
            raise ValueError(f"{self.name}: the pack did not give {', '.join(missing)}")
        return Matrix(self.tensors["trellis"], self.tensors["suh"], self.tensors["svh"], self.codebook)
