"""The witness on processors: libraries with the C ABI of ``kernels/cpu``, called through the native witness."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from carve_kernels.abi import DECLINES
from carve_kernels.parallel import host, single

from runner.model.base import Operator
from serve.witness import abi
from serve.witness.modules import ExpertsModule, LinearModule, Matrix
from serve.witness.processor import INCUMBENT, Answer, Count


class CpuProcessor:
    """Nothing is captured here, so warm-up counts as served; float32 throughout."""

    replays = False
    device = torch.device("cpu")

    def __init__(self, library: Path, *, threads: int) -> None:
        self._native = abi.NativeWitness(library)
        self._parallel = host(threads) if threads > 1 else single()
        self._numbers: dict[str, int] = {}
        self._libraries: dict[str, abi.VariantLibrary] = {}

    def open(self, name: str, path: Path) -> abi.VariantLibrary:
        """Raises OSError or AttributeError where the library cannot serve."""
        self._numbers[name] = number = len(self._numbers)
        library = self._libraries[name] = abi.VariantLibrary(path)
        self._native.set(number, library.moe, library.linear)
        return library

    def serves(self, variant: str, operator: Operator) -> bool:
        """Linears are always the incumbent's."""
        return operator == "routed_experts" or variant == INCUMBENT

    def experts(
        self, prefix: str, index: int, experts: Sequence[tuple[Matrix, Matrix, Matrix]], *, topk: int, limit: float
    ) -> ExpertsModule:
        """Tables that point into the loaded tensors."""
        return ExpertsModule(prefix, index, experts, topk=topk, limit=limit, parallel=self._parallel)

    def linear(self, prefix: str, index: int, matrices: Sequence[Matrix]) -> LinearModule:
        """Tables that point into the loaded tensors."""
        return LinearModule(prefix, index, matrices, parallel=self._parallel)

    def run_experts(
        self, variant: str, module: ExpertsModule, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor
    ) -> Answer:
        """One counted call in float32."""
        number = self._numbers.get(variant)
        if number is None:
            return None, "not-ready"
        x32 = x.contiguous().to(torch.float32)
        out = torch.empty_like(x32)
        ids32, weights32 = ids.contiguous().to(torch.int32), weights.contiguous().to(torch.float32)
        module.point(x32, ids32, weights32, out)
        status = self._native.moe(number, module.address)
        return (out.to(x.dtype), "") if status == abi.OK else (None, DECLINES[status])

    def run_linear(self, variant: str, module: LinearModule, x: torch.Tensor) -> Answer:
        """One counted call in float32."""
        x32 = x.contiguous().to(torch.float32)
        outs = module.outputs(x32)
        status = self._native.linear(self._numbers[variant], module.index, len(module.matrices), module.address)
        if status != abi.OK:
            return None, DECLINES[status]
        return (outs[0] if len(outs) == 1 else torch.cat(outs, dim=1)).to(x.dtype), ""

    def ran(self, operator: Operator, variant: str, *, prewarm: bool = False) -> Iterable[Count]:
        """Everything since the process started."""
        if prewarm:
            return ()
        number = self._numbers[variant]
        return self._native.experts(number) if operator == "routed_experts" else self._native.linears(number)

    def declined(self, variant: str, reason: str) -> Iterable[Count]:
        """Declines of routed experts."""
        return self._native.declines(self._numbers[variant], DECLINES.index(reason))

    def own(self, variant: str) -> Iterable[Count]:
        """What the library kept for itself."""
        return self._libraries[variant].counters() if variant in self._libraries else ()

    def serve(self, serving: bool) -> None:
        """Nothing is replayed: a window's own difference leaves the warm-up out."""

    def scratch_bytes(self) -> int:
        """Libraries keep theirs to themselves here."""
        return 0

    def memory(self) -> dict[str, int]:
        """Nothing is captured, and a process has no memory but its own."""
        return {}

    def uuids(self) -> tuple[str, ...]:
        """None."""
        return ()
