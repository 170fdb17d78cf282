"""The dense kernel at the desk: fans of linears, first among them that of a DeepSeek-V4 layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

from carve_kernels.cuda.dense import DENSE_ABI, PARTS, ROWS, Counters, DenseCall, DenseGroup, DenseLibrary
from carve_kernels.desk.gpu import incumbents, material
from carve_kernels.desk.gpu.material import Fan
from carve_kernels.desk.gpu.workload import Chosen, Group, Problem
from carve_kernels.desk.gpu.wrong_calls import Wrong, answers
from carve_kernels.exl3.codebook import Codebook
from runner.errors import InputError

SERVED_INPUT, SERVED_WIDTHS = 4096, (1024, 1024, 512, 512)
"""The fan of a DeepSeek-V4 layer at tensor parallel 8 (campaign section 5.6)."""
OTHER_FANS = ((1024, (8192,)), (256, (4096,)), (4096, (1024, 1024, 512, 512, 256, 256)), (384, (128, 384)))
"""Other widths of the model, a fan of six, and one of odd block counts."""
COPIES = 16
SERVED_ROWS = (1, 2, 5, 8, 16, 17, 32)
BRIEF_ROWS = (1, 7, 16, 25)
WRONG = (
    Wrong(["abi_version"], [0, DENSE_ABI + 1]),
    Wrong(["rows"], [0, -1], "rows-below-limit"),
    Wrong(["rows"], [ROWS + 1, 2**31 - 1], "rows-above-limit"),
    Wrong(["parts"], [0, -1, PARTS + 1]),
    Wrong(["passes"], [-1]),
    Wrong(["x_type", "out_type"], [-1, 3]),
    Wrong(["in_features", "part.0.out_features", "part.1.out_features"], [0, -128, 64, 192], "shape"),
    Wrong(["bits"], [0, 9, -1], "bits"),
    Wrong(["codebook"], [-1, 3], "codebook"),
    Wrong(
        ["x", "scratch", *(f"part.{part}.{name}" for part in (0, 1) for name in ("trellis", "suh", "svh", "out"))], [0]
    ),
    Wrong(["x", "scratch", "part.0.trellis", "part.1.out"], [4, 8], added=True),
    Wrong(["part.0.suh", "part.1.svh"], [2, 4], added=True),
    Wrong(["scratch_bytes"], [0, 256], "not-ready"),
)


@dataclass
class FanProblem:
    """One fan, one batch."""

    fan: Fan
    group: DenseGroup
    x: torch.Tensor

    @property
    def rows(self) -> int:
        return int(self.x.shape[0])

    @property
    def weights(self) -> int:
        return self.fan.weights

    @property
    def bytes(self) -> int:
        return self.fan.bytes

    def outputs(self, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
        """One a part."""
        return self.fan.outputs(self.rows, dtype)

    def expected(self, *, of_pairs: bool = False) -> list[torch.Tensor]:
        """One a part."""
        return self.fan.reference(self.x, of_pairs=of_pairs)

    def launch(self, outputs: Sequence[torch.Tensor]) -> str:
        """One launch for all parts."""
        return self.group.forward(self.x, outputs)

    def copy(self, dtype: torch.dtype | None = None) -> FanProblem:
        """Own rows."""
        return FanProblem(self.fan, self.group, self.x.to(dtype or self.x.dtype, copy=True))

    def variations(self, count: int) -> list[Problem]:
        """The rows scaled and rolled."""
        return [
            FanProblem(self.fan, self.group, (self.x * (1.0 + 0.25 * number)).roll(number, dims=1).contiguous())
            for number in range(count)
        ]

    def take(self, other: Problem) -> None:
        """The other's rows."""
        assert isinstance(other, FanProblem)
        self.x.copy_(other.x)

    def renew(self, source: torch.Generator) -> None:
        """Other rows."""
        self.x.copy_(material.inputs(source, "gaussian", *self.x.shape))

    def incumbents(self, module: ModuleType) -> Mapping[str, Callable[[], list[torch.Tensor]]]:
        """exllamav3's single launches, and its grouped one."""
        return incumbents.dense(module, self.fan, self.x)


class FanWorkload:
    """``Workload`` of one built variant of ``dense``."""

    kernel = "dense_kernel"

    def __init__(self, library: Path, device: torch.device) -> None:
        self.library, self.device = DenseLibrary(library), device
        self.describe = self.library.describe
        self.counters = Counters(device)
        self._groups: list[DenseGroup] = []

    def parity(self, seed: int) -> Iterator[Group]:
        """Every row count for K 6 at the served fan; other K, codebooks and widths in brief."""
        source = material.generator(seed, self.device)
        served = self._group(material.fan(source, SERVED_INPUT, SERVED_WIDTHS, 6, Codebook.MCG))
        for rows in range(1, ROWS + 1):
            yield self._case(source, served, rows, "served")
        for bits in (2, 3, 4, 5, 7, 8):
            other = self._group(material.fan(source, 1024, (512, 256), bits, Codebook.MCG))
            for rows in BRIEF_ROWS:
                yield self._case(source, other, rows, "mcg")
        for book in (Codebook.DEFAULT, Codebook.MUL1):
            for bits in (3, 6):
                other = self._group(material.fan(source, 512, (256, 128), bits, book))
                for rows in BRIEF_ROWS:
                    yield self._case(source, other, rows, book.value)
        for number, (inputs, widths) in enumerate(OTHER_FANS):
            other = self._group(material.fan(source, inputs, widths, 6, Codebook.MCG))
            for rows in SERVED_ROWS:
                yield self._case(source, other, rows, f"fan{number + 1}")
        for dtype in (torch.bfloat16, torch.float32):
            other = self._group(material.fan(source, 1024, (512, 256), 6, Codebook.MCG))
            for rows in BRIEF_ROWS:
                yield self._case(source, other, rows, str(dtype).removeprefix("torch."), dtype)

    def rotating(self, seed: int, bits: int, rows: int, routes: Chosen = "uniform") -> list[Problem]:
        """The served fan, sixteen times over: 151 MB at K 6."""
        if routes != "uniform":
            raise InputError("linears have no routes", expected="uniform", found=routes)
        source = material.generator(seed, self.device)
        made = []
        for _ in range(COPIES):
            fan, group = self._group(material.fan(source, SERVED_INPUT, SERVED_WIDTHS, bits, Codebook.MCG))
            made.append(FanProblem(fan, group, material.inputs(source, "gaussian", rows, SERVED_INPUT)))
        return list(made)

    def small(self, seed: int) -> list[Problem]:
        """Two K, four row counts."""
        source = material.generator(seed, self.device)
        made = []
        for bits in (3, 6):
            fan, group = self._group(material.fan(source, 640, (256, 128), bits, Codebook.MCG))
            made += [FanProblem(fan, group, material.inputs(source, "gaussian", rows, 640)) for rows in (1, 8, 17, 32)]
        return list(made)

    def refusals(self) -> Mapping[str, tuple[str, str]]:
        """Too many rows are declined; parts that do not fit each other and flat inputs are errors."""
        source = material.generator(1, self.device)
        fan, group = self._group(material.fan(source, 256, (128,), 6, Codebook.MCG))
        wide = material.fan(source, 384, (128,), 6, Codebook.MCG)
        x = material.inputs(source, "gaussian", ROWS + 1, 256)
        return {
            "rows-33": ("rows-above-limit", group.forward(x, fan.outputs(ROWS + 1))),
            "flat-input": ("error", _error(lambda: group.forward(x[:2].flatten(), fan.outputs(2)))),
            "another-width": ("error", _error(lambda: group.forward(x[:2], wide.outputs(3)))),
            "parts-disagree": ("error", _error(lambda: DenseGroup(self.library, [*fan.parts, *wide.parts], 1))),
        }

    def wrong_calls(self) -> Mapping[str, tuple[str, str]]:
        """``WRONG`` of a small fan."""
        source, made = material.generator(2, self.device), []

        class Kept(DenseLibrary):
            """Keeps the calls that a group makes, in place of handing them on."""

            def forward(self, call: DenseCall) -> str:
                made.append(DenseCall.from_buffer_copy(call))
                return ""

        fan = material.fan(source, 256, (128, 256), 6, Codebook.MCG)
        group = DenseGroup(Kept(self.library.path), fan.parts, fan.book.abi, counters=self.counters)
        problem = FanProblem(fan, group, material.inputs(source, "gaussian", 2, 256))
        outs = problem.outputs()
        problem.launch(outs)
        return answers(made[0], WRONG, self.library.forward)

    def questions(self, seed: int) -> Mapping[str, tuple[str, str]]:
        """None."""
        return {}

    def addresses(self) -> tuple[int, ...]:
        """Of each group, stream and capture."""
        return tuple(held.data_ptr() for group in self._groups for held in group.scratches())

    def poison_scratch(self) -> None:
        """NaN in every partial sum; nothing else may run."""
        for group in self._groups:
            for held in group.scratches():
                held[group.control_bytes :].fill_(0xFF)

    def counted(self) -> tuple[int, dict[int, int]]:
        """As the kernel counted on the device."""
        return self.counters.read()

    def _group(self, fan: Fan) -> tuple[Fan, DenseGroup]:
        group = DenseGroup(self.library, fan.parts, fan.book.abi, counters=self.counters)
        self._groups.append(group)
        return fan, group

    def _case(
        self,
        source: torch.Generator,
        made: tuple[Fan, DenseGroup],
        rows: int,
        name: str,
        dtype: torch.dtype = torch.float16,
    ) -> Group:
        fan, group = made
        problems = tuple(
            FanProblem(fan, group, material.inputs(source, kind, rows, fan.in_features).to(dtype))
            for kind in material.INPUTS
        )
        return Group(f"{name}-k{group.bits}-m{rows}", group.bits, rows, problems)


def _error(call: Callable[[], object]) -> str:
    try:
        return str(call())
    except InputError:
        return "error"
