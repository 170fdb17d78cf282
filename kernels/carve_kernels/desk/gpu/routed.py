"""The routed experts at the desk: one rank's share of a DeepSeek-V4 layer, and small layers of every format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import numpy as np
import torch

from carve_kernels.abi import MAX_LAYERS
from carve_kernels.cuda.library import ABI_VERSION, MAX_EXPERTS, MAX_ROWS, MAX_TOPK
from carve_kernels.desk import layers
from carve_kernels.desk.gpu import incumbents, material, reference
from carve_kernels.desk.gpu.decoded import Decoder
from carve_kernels.desk.gpu.moe import PROJECTIONS, Layer, MoeLibrary, Projection
from carve_kernels.desk.gpu.real import real_layer
from carve_kernels.desk.gpu.recorded import TOPK, recorded
from carve_kernels.desk.gpu.workload import Chosen, Group, Problem
from carve_kernels.desk.gpu.wrong_calls import Wrong, answers
from carve_kernels.desk.layers import ROUTES, Route, Shape
from carve_kernels.exl3.codebook import Codebook
from runner.errors import InputError

SERVED = Shape(hidden=4096, intermediate=256, experts=256, topk=6)
"""One rank's share at tensor parallel 8 (campaign section 5.1)."""
SMALL = Shape(hidden=512, intermediate=256, experts=16, topk=4)
WIDE = Shape(hidden=2048, intermediate=256, experts=8, topk=4)
"""The smallest that a cluster of 16 blocks can share."""
ODD = Shape(hidden=640, intermediate=384, experts=12, topk=3)
MOST_SLOTS = Shape(hidden=512, intermediate=256, experts=32, topk=MAX_TOPK)
MOST_EXPERTS = Shape(hidden=256, intermediate=128, experts=MAX_EXPERTS, topk=6)
LIMIT = 10.0
SETS = 16
WHOLE_ROWS = (1, 2, 5, 8, 16, 17, 32)
"""Every route with every input; at the other counts each route with one input, another one at each count."""
BRIEF_ROWS = (1, 4, 16, 31)
PAIR_ROWS = (3, 12, 31)
"""Row counts at which the served shape is held to the reference of pairs as well."""
SMALL_ROUTES: tuple[tuple[int, Route], ...] = ((1, "unique"), (8, "zipf"), (17, "duplicates"), (32, "hot"))
FORMATS = (
    ((1, 1, 1), Codebook.MCG),
    ((4, 4, 4), Codebook.MCG),
    ((5, 5, 5), Codebook.MCG),
    ((6, 6, 6), Codebook.MCG),
    ((7, 7, 7), Codebook.MCG),
    ((8, 8, 8), Codebook.MCG),
    ((2, 3, 4), Codebook.MCG),
    ((2, 2, 2), Codebook.DEFAULT),
    ((3, 3, 3), Codebook.MUL1),
)
DECODED = (range(1, 9), tuple(Codebook))
"""Every K and codebook that the decoder is asked for."""
_INT_MAX = 2**31 - 1
_TENSORS = tuple(f"{part}.{tensor}" for part in PROJECTIONS for tensor in ("trellis", "suh", "svh"))
WRONG = (
    Wrong(["abi_version"], [0, ABI_VERSION + 1]),
    Wrong(["layer"], [-1, MAX_LAYERS]),
    Wrong(["rows", "topk", "experts"], [0, -1]),
    Wrong(["x_type"], [-1, 0, 3]),
    Wrong(["out_type"], [-1, 3]),
    Wrong(["rows"], [MAX_ROWS + 1, _INT_MAX], "rows-above-limit"),
    Wrong(["hidden", "intermediate"], [0, -128, 64, 192, _INT_MAX], "shape"),
    Wrong(["topk"], [MAX_TOPK + 1], "shape"),
    Wrong(["experts"], [MAX_EXPERTS + 1], "shape"),
    Wrong([f"{part}.bits" for part in PROJECTIONS], [0, 9, -1], "bits"),
    Wrong([f"{part}.codebook" for part in PROJECTIONS], [-1, 2, 3], "codebook"),
    Wrong(["x", "ids", "weights", "out", "scratch", *_TENSORS], [0]),
    Wrong(["x", "ids", "weights"], [2], added=True),
    Wrong(["out"], [4, 8], added=True),
    Wrong(["scratch"], [4, 64], added=True),
    Wrong(["scratch_bytes"], [0, 128, 65536]),
)


class Sources:
    """Everything random of a job: tensors on the device, routes on the host."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.torch, self.numpy = material.generator(seed, device), np.random.default_rng(seed)


class Experts:
    """A layer with its experts' decoded weights, which only the reference reads."""

    def __init__(self, layer: Layer, book: Codebook, topk: int) -> None:
        self.layer, self.book = layer, book
        self.shape = Shape(layer.hidden, layer.intermediate, layer.experts, topk)
        self.bits = tuple(part.bits for part in layer.projections)
        self._decoded: dict[tuple[int, bool], tuple[torch.Tensor, ...]] = {}

    @classmethod
    def made_up(cls, source: torch.Generator, shape: Shape, bits: tuple[int, int, int], book: Codebook) -> Experts:
        """Random experts."""
        widths = ((shape.hidden, shape.intermediate),) * 2 + ((shape.intermediate, shape.hidden),)
        scales = (2.0, 2.0, 1.0)  # of the order of 2, so that silu is curved where it is used
        parts = [
            [material.part(source, *width, count, scale=scale) for _ in range(shape.experts)]
            for width, count, scale in zip(widths, bits, scales, strict=True)
        ]
        projections = [
            Projection(
                torch.stack([one.trellis for one in part]),
                torch.stack([one.suh for one in part]),
                torch.stack([one.svh for one in part]),
            )
            for part in parts
        ]
        return cls(Layer(projections, book.abi), book, shape.topk)

    def decoded(self, expert: int, *, of_pairs: bool) -> tuple[torch.Tensor, ...]:
        """The three coded matrices of an expert, once decoded: halves, or floats where pairs are not rounded."""
        if (expert, of_pairs) not in self._decoded:
            kind = torch.float32 if of_pairs else torch.float16
            self._decoded[expert, of_pairs] = tuple(
                reference.rotated_weights(one.trellis[expert], self.book, of_pairs=of_pairs).to(kind)
                for one in self.layer.projections
            )
        return self._decoded[expert, of_pairs]

    def forward(
        self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, *, of_pairs: bool = False
    ) -> torch.Tensor:
        """In double precision, rounded only where campaign section 5.2 has a boundary: x, and the activation.

        ``of_pairs``: a weight is the exact sum of its two halves, which the format rounds.
        """
        entry, out = reference.at_entry(x), torch.zeros(x.shape, dtype=torch.float64, device=x.device)
        for expert in ids.unique().tolist():
            if not 0 <= expert < self.shape.experts:
                continue
            rows, slots = torch.nonzero(ids == expert, as_tuple=True)
            gate, up = (self._linear(number, expert, entry[rows], of_pairs) for number in (0, 1))
            gate, up = gate.clamp(max=LIMIT), up.clamp(-LIMIT, LIMIT)
            activation = (gate / (1.0 + torch.exp(-gate)) * up).half().double()
            part = self._linear(2, expert, activation, of_pairs) * weights[rows, slots].double().unsqueeze(1)
            out.index_add_(0, rows, part)
        return out

    def _linear(self, number: int, expert: int, x: torch.Tensor, of_pairs: bool) -> torch.Tensor:
        part, matrix = self.layer.projections[number], self.decoded(expert, of_pairs=of_pairs)[number].double()
        rotated = reference.transform(x * part.suh[expert].double())
        return reference.transform(rotated @ matrix) * part.svh[expert].double()

    def load(self, ids: torch.Tensor) -> tuple[int, int]:
        """(weights, trellis bytes) of the different experts that ``ids`` name."""
        count = sum(0 <= expert < self.shape.experts for expert in ids.unique().tolist())
        return count * self.shape.weights_per_expert, count * self.shape.weights_per_expert // 3 * sum(self.bits) // 8


@dataclass
class RoutedProblem:
    """One layer, one batch with its routes."""

    experts: Experts
    library: MoeLibrary
    x: torch.Tensor
    ids: torch.Tensor
    route_weights: torch.Tensor
    number: int = 0
    _expected: dict[bool, torch.Tensor] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return int(self.x.shape[0])

    @property
    def weights(self) -> int:
        return self.experts.load(self.ids)[0]

    @property
    def bytes(self) -> int:
        return self.experts.load(self.ids)[1]

    def outputs(self, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
        """One, full of NaN."""
        return [torch.full(self.x.shape, torch.nan, dtype=dtype, device=self.x.device)]

    def expected(self, *, of_pairs: bool = False) -> list[torch.Tensor]:
        """Computed once."""
        if of_pairs not in self._expected:
            self._expected[of_pairs] = self.experts.forward(self.x, self.ids, self.route_weights, of_pairs=of_pairs)
        return [self._expected[of_pairs]]

    def launch(self, outputs: Sequence[torch.Tensor]) -> str:
        """One call."""
        arguments = (self.experts.layer, self.x, self.ids, self.route_weights, outputs[0])
        return self.library.forward(*arguments, limit=LIMIT, number=self.number)

    def copy(self, dtype: torch.dtype | None = None) -> RoutedProblem:
        """Own rows and routes."""
        tensors = (self.x.to(dtype or self.x.dtype, copy=True), self.ids.clone(), self.route_weights.clone())
        return RoutedProblem(self.experts, self.library, *tensors, number=self.number)

    def variations(self, count: int) -> list[Problem]:
        """Other experts, rows rolled, weights scaled."""
        experts = self.experts.shape.experts
        return [
            RoutedProblem(
                self.experts,
                self.library,
                self.x.roll(number, dims=1).contiguous(),
                torch.where(self.ids < 0, self.ids, (self.ids + 5 * number) % experts).int().contiguous(),
                self.route_weights * (1.0 + 0.25 * number),
                self.number,
            )
            for number in range(count)
        ]

    def take(self, other: Problem) -> None:
        """The other's rows and routes."""
        assert isinstance(other, RoutedProblem)
        self.x.copy_(other.x)
        self.ids.copy_(other.ids)
        self.route_weights.copy_(other.route_weights)

    def renew(self, source: torch.Generator) -> None:
        """Other rows, for the same experts."""
        self.x.copy_(material.inputs(source, "gaussian", *self.x.shape))
        self._expected.clear()

    def incumbents(self, module: ModuleType) -> Mapping[str, Callable[[], list[torch.Tensor]]]:
        """exllamav3's routed experts; the cooperative kernel where the version has it."""
        bits = self.experts.bits[0]
        batch = incumbents.Batch(self.x, self.ids, self.route_weights)
        return incumbents.routed(module, self.experts.layer, bits, batch, limit=LIMIT)


class RoutedWorkload:
    """``Workload`` of one built variant of the routed experts."""

    def __init__(self, library: Path, device: torch.device, kernel: str) -> None:
        self.library, self.device, self.kernel = MoeLibrary(library), device, kernel
        self.describe = self.library.native.describe()
        self.paired = "paired" in str(self.describe.get("name"))
        self._served: dict[tuple[int, int], Experts] = {}
        self._weights: int | None = None

    def parity(self, seed: int) -> Iterator[Group]:
        """Every row count for K 2 and K 3 at the served shape; other formats and an odd shape in brief."""
        source = Sources(seed, self.device)
        for bits in (2, 3):
            served = self.served(seed, bits)
            for rows in range(1, MAX_ROWS + 1):
                pairs = [(route, kind) for route in ROUTES for kind in material.INPUTS]
                if rows not in WHOLE_ROWS:
                    pairs = [(route, material.INPUTS[(place + rows) % 4]) for place, route in enumerate(ROUTES)]
                of_pairs = self.paired and rows in PAIR_ROWS
                yield self._group(f"served-k{bits}-m{rows}", served, rows, pairs, source, of_pairs=of_pairs)
        for shape in (SMALL, ODD):
            for each, book in FORMATS:
                made = Experts.made_up(source.torch, shape, each, book)
                name = f"{book.value}-h{shape.hidden}-k{''.join(map(str, each))}"
                yield from self._brief(name, made, source)
        for shape in (MOST_SLOTS, MOST_EXPERTS):
            for bits in (2, 3):
                made = Experts.made_up(source.torch, shape, (bits,) * 3, Codebook.MCG)
                yield from self._brief(f"topk{shape.topk}-of-{shape.experts}-k{bits}", made, source)
        for bits in (2, 3, 4):
            made = Experts.made_up(source.torch, SMALL, (bits,) * 3, Codebook.MCG)
            yield from self._brief(f"bfloat16-k{bits}", made, source, torch.bfloat16)
        layer, book = real_layer(self.device)
        yield from self._brief("real", Experts(layer, book, TOPK), source)

    def _brief(self, name: str, made: Experts, source: Sources, dtype: torch.dtype = torch.float16) -> Iterator[Group]:
        """Every route with one input, at a few row counts."""
        for rows in BRIEF_ROWS:
            pairs = [(route, material.INPUTS[place % 4]) for place, route in enumerate(ROUTES)]
            yield self._group(f"{name}-m{rows}", made, rows, pairs, source, of_pairs=self.paired, dtype=dtype)

    def served(self, seed: int, bits: int) -> Experts:
        """The served layer at one K, made once."""
        if (seed, bits) not in self._served:
            self._served[seed, bits] = Experts.made_up(
                material.generator(seed + bits, self.device), SERVED, (bits,) * 3, Codebook.MCG
            )
        return self._served[seed, bits]

    def rotating(self, seed: int, bits: int, rows: int, routes: Chosen = "uniform") -> list[Problem]:
        """Sets of routes over a layer of 201 MB (K 2); weights that a half can hold, for incumbents.

        Sixteen uniform random sets; of few rows as many as it takes until every expert has been dealt once, because
        sixteen would fit into the cache.
        """
        self._weights = self._weights if self._weights is not None else seed  # a layer for all cases of a job
        source, made = material.generator(seed + 7, self.device), self.served(self._weights, bits)
        a_set = rows * SERVED.topk
        sets = max(SETS, SERVED.experts // a_set)
        told = recorded(rows, sets, SERVED.experts, self.device) if routes == "recorded" else None
        dealt = torch.rand(SERVED.experts, generator=source, device=self.device).argsort() if sets > SETS else None
        problems = []
        for place in range(sets):
            order = torch.rand(rows, SERVED.experts, generator=source, device=self.device).argsort(dim=1)
            if dealt is not None:
                order = dealt[place * a_set : (place + 1) * a_set].reshape(rows, SERVED.topk)
            weights = torch.rand(rows, SERVED.topk, generator=source, device=self.device).half().float()
            x = material.inputs(source, "gaussian", rows, SERVED.hidden)
            ids = told[place] if told else order[:, : SERVED.topk].int().contiguous()
            problems.append(RoutedProblem(made, self.library, x, ids, weights))
        return list(problems)

    def small(self, seed: int) -> list[Problem]:
        """Two formats, two shapes, four row counts, hot and spread routes."""
        source = Sources(seed, self.device)
        made: list[Problem] = []
        for bits in ((2, 2, 2), (3, 3, 3)):
            for shape in (SMALL, WIDE):
                experts = Experts.made_up(source.torch, shape, bits, Codebook.MCG)
                made += [self._problem(experts, rows, (route, "gaussian"), source) for rows, route in SMALL_ROUTES]
        return made

    def refusals(self) -> Mapping[str, tuple[str, str]]:
        """Too many rows are declined; flat ids and other widths are errors."""
        source = Sources(1, self.device)
        experts = Experts.made_up(source.torch, SMALL, (2, 2, 2), Codebook.MCG)
        many = self._problem(experts, MAX_ROWS + 1, ("unique", "gaussian"), source)
        few = self._problem(experts, 2, ("unique", "gaussian"), source)

        def call(x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, out: torch.Tensor) -> str:
            try:
                return self.library.forward(experts.layer, x, ids, weights, out, limit=LIMIT)
            except InputError:
                return "error"

        out = few.outputs()[0]
        flat = (few.ids.flatten(), few.route_weights.flatten())
        return {
            "rows-33": ("rows-above-limit", many.launch(many.outputs())),
            "flat-ids": ("error", call(few.x, *flat, out)),
            "float32-x": ("error", call(few.x.float(), few.ids, few.route_weights, out)),
            "another-width": (
                "error",
                call(few.x[:, : SMALL.hidden // 2].contiguous(), few.ids, few.route_weights, out),
            ),
        }

    def wrong_calls(self) -> Mapping[str, tuple[str, str]]:
        """``WRONG`` of a small layer."""
        source = Sources(2, self.device)
        experts = Experts.made_up(source.torch, SMALL, (2, 2, 2), Codebook.MCG)
        problem = self._problem(experts, 2, ("unique", "gaussian"), source)
        out = problem.outputs()[0]
        call = self.library.call(experts.layer, problem.x, problem.ids, problem.route_weights, out, limit=LIMIT)
        return answers(call, WRONG, self.library.native.forward)

    def questions(self, seed: int) -> Mapping[str, tuple[str, str]]:
        """The decoder's operands bit by bit, and whether the experts are multiplied by pairs or by their rounded sums.

        The second is seen in the sums alone: how far an output lies on the way from one reference to the other.
        """
        source = Sources(seed, self.device)
        decoder = Decoder(self.library.native.path, paired=self.paired)
        asked = {name: ("", found) for name, found in decoder.questions(source.torch, *DECODED)}
        experts = Experts.made_up(source.torch, SMALL, (2, 2, 2), Codebook.MCG)
        problem = self._problem(experts, MAX_ROWS, ("unique", "gaussian"), source)
        (out, *_), (rounded, *_) = problem.outputs(), problem.expected()
        way = problem.expected(of_pairs=True)[0] - rounded
        declined = problem.launch([out])
        share = float(((out.double() - rounded) * way).sum() / way.square().sum())
        form = "pairs" if 0.7 < share < 1.3 else "rounded sums" if -0.3 < share < 0.3 else f"neither ({share:.3f})"
        return asked | {"operands": ("pairs" if self.paired else "rounded sums", declined or form)}

    def poison_scratch(self) -> None:
        """NaN in all but the control words; nothing where the library does not say how many bytes they are."""
        if control := int(self.describe.get("control_bytes", 0)):
            self.library.poison(control)

    def addresses(self) -> tuple[int, ...]:
        """Of each shape and stream."""
        return self.library.addresses()

    def counted(self) -> tuple[int, dict[int, int]]:
        """As the kernel counted on the device."""
        return self.library.counted(self.device)

    def _group(
        self,
        name: str,
        experts: Experts,
        rows: int,
        pairs: Sequence[tuple[Route, str]],
        source: Sources,
        *,
        of_pairs: bool = False,
        dtype: torch.dtype = torch.float16,
    ) -> Group:
        problems = tuple(self._problem(experts, rows, pair, source).copy(dtype) for pair in pairs)
        return Group(name, experts.bits[0], rows, problems, of_pairs)

    def _problem(self, experts: Experts, rows: int, pair: tuple[Route, str], source: Sources) -> RoutedProblem:
        ids = torch.from_numpy(layers.routes(source.numpy, pair[0], experts.shape, rows)).to(self.device)
        weights = torch.from_numpy(source.numpy.uniform(0.05, 1.0, ids.shape).astype(np.float32)).to(self.device)
        x = material.inputs(source.torch, pair[1], rows, experts.shape.hidden)
        return RoutedProblem(experts, self.library, x, ids, weights)
