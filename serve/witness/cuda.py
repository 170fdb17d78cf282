"""The witness on a GPU: the house's libraries and exllamav3's operators, counted on the device behind every launch.

Everything here also runs while a graph is captured, and leaves in the graph the launches and the counts that belong to
them; a replay runs no Python. So what a capture would freeze must have run before: a call that is captured without
having been run eagerly with the same rows on the same stream (which loads code and makes scratch) is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch
from carve_kernels.abi import ROW_BINS
from carve_kernels.cuda import counters
from carve_kernels.cuda.dense import Counters, DenseGroup, DenseLibrary, Part
from carve_kernels.desk.gpu.moe import Layer, MoeLibrary, Projection

from runner.errors import SeatError
from runner.model.base import Operator
from serve.witness.device_counts import PREWARM, SERVED, Cuda, DeviceCounts, NativeCuda
from serve.witness.exllamav3 import Exllamav3
from serve.witness.modules import CODEBOOKS, PROJECTIONS, Matrix
from serve.witness.processor import INCUMBENT, Answer, Count
from serve.witness.refused import RefusedError
from serve.witness.streams import OneStream, SecondStreamError

HALVES = (torch.float16, torch.bfloat16)
_NO_POOL = (0, 0)
"""What torch calls the pool of everything that belongs to no graph."""
Tally = Counter[tuple[int, int]]
"""Launches by layer and rows."""


class CudaExperts:
    """Routed experts of one layer: each projection of all experts in one tensor, and tables of pointers into it.

    Every variant reads the same tables, also in a replay, so a perturbation reaches graphs that are captured already.
    """

    def __init__(
        self,
        prefix: str,
        index: int,
        experts: Sequence[tuple[Matrix, Matrix, Matrix]],
        device: torch.device,
        *,
        topk: int,
        limit: float,
    ) -> None:
        """Raises ValueError where the experts of a projection differ in shape, bits or codebook."""
        self.prefix, self.index, self.topk, self.limit = prefix, index, topk, limit
        self.experts = range(len(experts))
        books = {matrix.codebook for expert in experts for matrix in expert}
        if len(books) != 1:
            raise ValueError(f"{prefix}: codebooks {sorted(books)} in one layer, expected one")
        projections = [_stacked(prefix, name, [one[place] for one in experts], device) for place, name in _PLACES]
        self.layer = Layer(projections, CODEBOOKS[books.pop()])
        self.hidden = self.layer.hidden
        self._replaced: dict[tuple[int, int], torch.Tensor] = {}

    def perturb(self, expert: int, projection: str, factor: float) -> None:
        """Serve this expert with a float16-rounded copy of ``svh`` times ``factor``; the loaded tensor stays."""
        place = PROJECTIONS.index(projection)
        scaled = (self.layer.projections[place].svh[expert].float() * factor).to(torch.float16)
        self._replaced[place, expert] = scaled
        self.layer.tables[place][2][expert] = scaled.data_ptr()

    def unperturb(self) -> None:
        """Serve the loaded ``svh`` again."""
        for place, expert in self._replaced:
            self.layer.tables[place][2][expert] = self.layer.projections[place].svh[expert].data_ptr()
        self._replaced.clear()


_PLACES = tuple(enumerate(PROJECTIONS))


def _stacked(prefix: str, name: str, matrices: Sequence[Matrix], device: torch.device) -> Projection:
    shapes = {tuple(matrix.trellis.shape) for matrix in matrices}
    if len(shapes) != 1:
        raise ValueError(f"{prefix}: experts of {name} have trellises {sorted(shapes)}, expected one shape")
    return Projection(
        *(torch.stack([getattr(one, part) for one in matrices]).to(device) for part in ("trellis", "suh", "svh"))
    )


class CudaLinear:
    """One linear module: its matrices on the device, and for each house library the groups one launch takes."""

    def __init__(self, prefix: str, index: int, matrices: Sequence[Matrix], device: torch.device) -> None:
        self.prefix, self.index = prefix, index
        self.matrices = tuple(
            Matrix(one.trellis.to(device), one.suh.to(device), one.svh.to(device), one.codebook) for one in matrices
        )
        self.widths = tuple(one.out_features for one in self.matrices)
        self._groups: dict[str, tuple[list[tuple[DenseGroup, list[int]]], Counters]] = {}

    @property
    def inputs(self) -> int:
        """Width of what it reads."""
        return self.matrices[0].in_features

    def groups(self, variant: str, library: DenseLibrary) -> list[tuple[DenseGroup, list[int]]]:
        """Groups of matrices of one K and codebook, with their places; the library counts the module's first."""
        if variant not in self._groups:
            own = Counters(self.matrices[0].suh.device)
            places: dict[tuple[int, str], list[int]] = {}
            for place, one in enumerate(self.matrices):
                places.setdefault((one.bits, one.codebook), []).append(place)
            made = [
                (
                    DenseGroup(
                        library,
                        [Part(*self.matrices[place].payload()) for place in group],
                        CODEBOOKS[book],
                        counters=None if number else own,
                        one_stream=True,
                    ),
                    group,
                )
                for number, ((_, book), group) in enumerate(places.items())
            ]
            self._groups[variant] = (made, own)
        return self._groups[variant][0]

    def counted(self, variant: str) -> Tally:
        """What the library counted on this module."""
        if variant not in self._groups:
            return Tally()
        _, rows = self._groups[variant][1].read()
        return Tally({(self.index, count): number for count, number in rows.items()})

    def scratch_bytes(self) -> int:
        """What the groups hold."""
        return sum(group.scratch_bytes() for made, _ in self._groups.values() for group, _ in made)


class CudaProcessor:
    """One rank's GPU."""

    replays = True

    def __init__(self, library: Path, device: torch.device, *, strict: int, cuda: Cuda | None = None) -> None:
        """Raises SeatError where the native witness does not load."""
        self.device, self.strict = device, strict
        self.counts = DeviceCounts(device, cuda or NativeCuda(library, device))
        self.variants: dict[str, Exllamav3 | _Routed | _Dense] = {}
        self._streams = OneStream(self.counts.cuda.event)
        self._prewarmed: dict[tuple[str, str, int, int, int], str] = {}
        """What each call answered when it was run eagerly: an empty text, or the reason of its decline."""
        self._linears: list[CudaLinear] = []
        self._serving = False
        self._at_switch: dict[str, Tally] = {}
        self._warmed: dict[str, Tally] = {}
        """What each house library counted while the engine warmed up."""

    def open(self, name: str, path: Path) -> Exllamav3 | _Routed | _Dense:
        """Raises SeatError where the library is neither the incumbent's nor the house's."""
        if name == INCUMBENT:
            self.variants[name] = Exllamav3(path)
        else:
            self.variants[name] = _opened(path)
        return self.variants[name]

    def serves(self, variant: str, operator: Operator) -> bool:
        """A library of the house has one kind of kernel."""
        found = self.variants.get(variant)
        kind = _Dense if operator == "linear" else _Routed
        return isinstance(found, (Exllamav3, kind)) or (found is None and operator == "routed_experts")

    def experts(
        self, prefix: str, index: int, experts: Sequence[tuple[Matrix, Matrix, Matrix]], *, topk: int, limit: float
    ) -> CudaExperts:
        """The experts on the device."""
        return CudaExperts(prefix, index, experts, self.device, topk=topk, limit=limit)

    def linear(self, prefix: str, index: int, matrices: Sequence[Matrix]) -> CudaLinear:
        """The matrices on the device."""
        made = CudaLinear(prefix, index, matrices, self.device)
        self._linears.append(made)
        return made

    def run_experts(
        self, variant: str, module: CudaExperts, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor
    ) -> Answer:
        """One counted call; float16 and bfloat16 are read as they are, by exllamav3 as float16."""
        found = self.variants.get(variant)
        rows = x.contiguous() if x.dtype in HALVES else x.contiguous().half()
        ids32, weights32 = ids.contiguous().to(torch.int32), weights.contiguous().to(torch.float32)

        def call() -> Answer:
            if isinstance(found, Exllamav3):
                return found.routed(module.layer, rows.half(), ids32, weights32, module.limit).to(x.dtype), ""
            if not isinstance(found, _Routed):
                return None, "not-ready"
            out = torch.empty_like(rows)
            reason = found.library.forward(
                module.layer, rows, ids32, weights32, out, limit=module.limit, number=module.index
            )
            return (None, reason) if reason else (out.to(x.dtype), "")

        return self._counted("routed_experts", variant, module, x.shape[0], call)

    def run_linear(self, variant: str, module: CudaLinear, x: torch.Tensor) -> Answer:
        """One counted call."""
        found = self.variants[variant]

        def call() -> Answer:
            if isinstance(found, Exllamav3):
                rows = x.contiguous().half()
                parts = [found.linear(matrix, rows) for matrix in module.matrices]
                return (parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)).to(x.dtype), ""
            assert isinstance(found, _Dense), "serves() sends no other variant here"
            rows, outs = x.contiguous(), [x.new_empty((x.shape[0], width)) for width in module.widths]
            for group, places in module.groups(variant, found.library):
                if reason := group.forward(rows, [outs[place] for place in places]):
                    return None, reason
            return (outs[0] if len(outs) == 1 else torch.cat(outs, dim=1)), ""

        return self._counted("linear", variant, module, x.shape[0], call)

    def _counted(
        self,
        operator: Operator,
        variant: str,
        module: CudaExperts | CudaLinear,
        rows: int,
        call: Callable[[], Answer],
    ) -> Answer:
        """The call between the watch for a second stream and the count, all on the current stream."""
        stream = self.counts.cuda.stream()
        capture = self.counts.cuda.capture(stream)
        where = f"{variant} at {module.prefix}, {rows} rows"
        key = (operator, variant, module.index, rows, stream)
        if capture and key not in self._prewarmed:
            raise RefusedError(self.strict, f"captured without having been run first on this stream: {where}")
        try:
            self._streams.enter(stream, capture, where)
        except SecondStreamError as error:
            raise RefusedError(self.strict, str(error)) from error
        out, reason = call()
        self.counts.count((reason or operator, variant, module.index), rows, stream)
        self._streams.leave(stream, capture)
        if not capture:
            self._prewarmed[key] = reason
        elif not reason and self._prewarmed[key]:
            told = f"it declined {self._prewarmed[key]} whenever it was run"
            raise RefusedError(self.strict, f"captured without having been run first on this stream ({told}): {where}")
        return out, reason

    def ran(self, operator: Operator, variant: str, *, prewarm: bool = False) -> Iterable[Count]:
        """From the device."""
        return self.counts.read(PREWARM if prewarm else SERVED, operator, variant)

    def declined(self, variant: str, reason: str) -> Iterable[Count]:
        """From the device: a replay counts the declines of its capture again, as it runs their fallback again."""
        return self.counts.read(SERVED, reason, variant)

    def own(self, variant: str) -> Iterable[Count]:
        """What the house's library counted, less what it counted during warm-up: it knows no banks."""
        tally = self._tally(variant) - self._warmed.get(variant, Tally())
        layers = sorted({layer for layer, _ in tally})
        for layer in layers:
            rows = tuple(sorted((rows, number) for (one, rows), number in tally.items() if one == layer))
            yield Count(layer, sum(number for _, number in rows), rows)

    def _tally(self, variant: str) -> Tally:
        found = self.variants.get(variant)
        if isinstance(found, _Dense):
            return sum((linear.counted(variant) for linear in self._linears), Tally())
        return found.counted(self.device) if isinstance(found, _Routed) else Tally()

    def serve(self, serving: bool) -> None:
        """Count what follows in the other bank."""
        self.counts.serve(serving)
        if serving and not self._serving:
            for variant in self.variants:
                warmed = self._tally(variant) - self._at_switch.get(variant, Tally())
                self._warmed[variant] = self._warmed.get(variant, Tally()) + warmed
        elif self._serving and not serving:
            self._at_switch = {variant: self._tally(variant) for variant in self.variants}
        self._serving = serving

    def scratch_bytes(self) -> int:
        """Counters and what every open library holds."""
        held = sum(each.scratch_bytes() for each in self.variants.values() if not isinstance(each, _Dense))
        return self.counts.nbytes() + held + sum(linear.scratch_bytes() for linear in self._linears)

    def memory(self) -> dict[str, int]:
        """``graph_bytes``: pools of captured graphs. ``outside_bytes``: all that is in use beyond torch's allocator."""
        segments = torch.cuda.memory_snapshot()
        own = [one for one in segments if one["device"] == self.device.index]
        pools = sum(int(one["total_size"]) for one in own if tuple(one["segment_pool_id"]) != _NO_POOL)
        free, total = torch.cuda.mem_get_info(self.device)
        return {"graph_bytes": pools, "outside_bytes": total - free - torch.cuda.memory_reserved(self.device)}

    def uuids(self) -> tuple[str, ...]:
        """As the driver writes it."""
        return (f"GPU-{torch.cuda.get_device_properties(self.device).uuid}",)


class _Routed:
    """A library of routed experts. Streams share its scratch: the engine runs on one and captures graphs on others, one
    more at each capture, and :class:`OneStream` refuses two at once.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.library = path, MoeLibrary(path, one_stream=True)

    def counted(self, device: torch.device) -> Tally:
        """By layer and rows, as the kernels counted on the device."""
        table = counters.copied(self.library.cells(device))[:, 1 : 1 + ROW_BINS].tolist()
        return Tally(
            {(layer, rows): number for layer, bins in enumerate(table) for rows, number in enumerate(bins) if number}
        )

    def scratch_bytes(self) -> int:
        return self.library.scratch_bytes()


class _Dense:
    """A library of linears that share an input; its scratch belongs to the modules' groups."""

    def __init__(self, path: Path) -> None:
        self.path, self.library = path, DenseLibrary(path)


def _opened(path: Path) -> _Routed | _Dense:
    try:
        return _Routed(path)
    except SeatError:
        return _Dense(path)
