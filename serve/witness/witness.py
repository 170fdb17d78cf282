"""One rank's witness: opens the variant libraries, runs every call through the native counters, and reads them back."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from carve_kernels.abi import DECLINES, MAX_LAYERS

from runner.errors import CarveError
from runner.model.base import Operator
from runner.model.evidence import CounterRow, DeclineRow, RankCounters
from serve.witness.graphs import GraphSets
from serve.witness.modules import PROJECTIONS, Matrix
from serve.witness.processor import (
    INCUMBENT,
    Answer,
    Count,
    Experts,
    Linear,
    Processor,
    VariantFile,
)

OPERATORS: tuple[Operator, ...] = ("routed_experts", "linear")


class ArgumentError(ValueError):
    """An argument of a witness call does not fit this engine; ``MARK`` survives the engine's own wrapping."""

    MARK = "carve argument: "

    def __init__(self, reason: str) -> None:
        super().__init__(self.MARK + reason)


class Witness:
    """Everything that counts on one rank. Create once per worker process, before its modules load."""

    def __init__(self, environment: Mapping[str, str], processor: Processor, *, rank: int, ranks: int) -> None:
        self.rank, self.ranks, self.processor = rank, ranks, processor
        self.pattern = (environment.get("CARVE_VARIANT", INCUMBENT),) * ranks
        """The variant that is switched on, rank by rank: every rank hears of every switch."""
        self.libraries: dict[str, VariantFile] = {}
        self.faults: dict[str, str] = {}
        """Variant name to the reason why its library could not be opened."""
        self.experts: list[Experts] = []
        self.linears: list[Linear] = []
        self.graphs = GraphSets(self.pattern)
        self._payload: dict[str, bytes] = {}
        self.noted_bytes: dict[str, int] = {}
        """Size of everything noted while it loaded, by name."""
        for name, path in sorted(json.loads(environment["CARVE_LIBRARIES"]).items()):
            try:
                self.libraries[name] = processor.open(name, Path(path))
            except (OSError, AttributeError, CarveError) as error:
                self.faults[name] = str(error)
        if INCUMBENT not in self.libraries:
            fault = self.faults.get(INCUMBENT, "not named in CARVE_LIBRARIES")
            raise RuntimeError(f"no incumbent library: {fault}")

    @property
    def variant(self) -> str:
        """What is switched on here."""
        return self.pattern[self.rank]

    # Registration, while the model loads

    def register_experts(
        self, prefix: str, experts: Sequence[tuple[Matrix, Matrix, Matrix]], *, topk: int, limit: float
    ) -> Experts:
        """A layer's routed experts on this rank, in the order of the layers."""
        module = self.processor.experts(prefix, self._index(self.experts), experts, topk=topk, limit=limit)
        self.experts.append(module)
        for number, expert in enumerate(experts):
            for projection, matrix in zip(PROJECTIONS, expert, strict=True):
                self.note_payload(f"{prefix}.{number}.{projection}", matrix.payload())
        return module

    def register_linear(self, prefix: str, matrices: Sequence[Matrix]) -> Linear:
        """A linear module on this rank."""
        module = self.processor.linear(prefix, self._index(self.linears), matrices)
        self.linears.append(module)
        for number, matrix in enumerate(matrices):
            self.note_payload(f"{prefix}.{number}", matrix.payload())
        return module

    def register_fan(self, prefix: str, members: Sequence[Linear]) -> Linear:
        """Linears that read the same rows, as one module over their matrices: counted instead of its members.

        Raises ValueError where they read rows of other widths.
        """
        matrices = [matrix for member in members for matrix in member.matrices]
        if len({matrix.in_features for matrix in matrices}) != 1:
            raise ValueError(f"{prefix}: {', '.join(one.prefix for one in members)} read rows of other widths")
        module = self.processor.linear(prefix, self._index(self.linears), matrices)
        self.linears.append(module)
        return module

    def note_payload(self, name: str, tensors: Sequence[torch.Tensor]) -> None:
        """Add loaded bytes to the weights digest (before the engine may repack them)."""
        state = hashlib.sha256()
        for tensor in tensors:
            state.update(f"{tensor.dtype} {tuple(tensor.shape)}\n".encode())
            state.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
        self._payload[name] = state.digest()
        self.noted_bytes[name] = sum(int(tensor.nbytes) for tensor in tensors)

    def weights_digest(self, rest: Mapping[str, torch.Tensor]) -> str:
        """SHA-256 over all noted payload and the parameters in ``rest`` that were not noted (embeddings, norms)."""
        noted = dict(self._payload)
        for name, tensor in rest.items():
            if name.rpartition(".")[0] not in noted and tensor.numel():
                self.note_payload(name, [tensor])
                noted[name] = self._payload.pop(name)
        state = hashlib.sha256()
        for name in sorted(noted):
            state.update(name.encode() + b"\0" + noted[name])
        return state.hexdigest()

    # Calls

    def run_experts(
        self, variant: str, module: Experts, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor
    ) -> Answer:
        """One counted call: (output like ``x`` [rows, hidden], "") or (None, decline reason).

        ``ids`` and ``weights`` [rows, topk]. A variant without a kernel for this leaves it to the incumbent.
        """
        named = variant if self.processor.serves(variant, "routed_experts") else INCUMBENT
        return self.processor.run_experts(named, module, x, ids, weights)

    def run_linear(self, variant: str, module: Linear, x: torch.Tensor) -> Answer:
        """One counted call: (output [rows, out] of the type of ``x`` [rows, in], "") or (None, decline reason)."""
        named = variant if self.processor.serves(variant, "linear") else INCUMBENT
        return self.processor.run_linear(named, module, x)

    # Reading back

    def counters(self) -> RankCounters:
        """Everything counted since this process started."""
        witness: list[CounterRow] = []
        candidate: list[CounterRow] = []
        prewarm: list[CounterRow] = []
        declines: list[DeclineRow] = []
        for variant in (*self.libraries, *self.faults):
            for operator in OPERATORS:
                witness += self._rows(operator, variant, self.processor.ran(operator, variant))
                prewarm += self._rows(operator, variant, self.processor.ran(operator, variant, prewarm=True))
            own: Operator = "routed_experts" if self.processor.serves(variant, "routed_experts") else "linear"
            for name in DECLINES[1:]:
                declines += [
                    DeclineRow(
                        variant=variant,
                        layer=self._prefix(own, counted.layer),
                        reason=name,
                        count=counted.launches,
                        rows=counted.rows,
                    )
                    for counted in self.processor.declined(variant, name)
                ]
            if variant != INCUMBENT:
                candidate += self._rows(own, variant, self.processor.own(variant))
        return RankCounters(
            rank=self.rank,
            pid=os.getpid(),
            witness=tuple(witness),
            candidate=tuple(candidate),
            declines=tuple(declines),
            prewarm=tuple(prewarm),
        )

    def switch(self, variant: str, ranks: Sequence[int] | None = None) -> None:
        """Run this variant from the next call on, on the named ranks (None: all).

        Raises ArgumentError for one not loaded.
        """
        if variant not in self.libraries:
            raise ArgumentError(f"no library for variant {variant!r}; loaded: {sorted(self.libraries)}")
        named = range(self.ranks) if ranks is None else ranks
        self.pattern = tuple(variant if rank in named else old for rank, old in enumerate(self.pattern))

    def find_experts(self, prefix: str) -> Experts:
        """The routed experts of a module prefix. Raises ArgumentError for an unknown one."""
        for module in self.experts:
            if module.prefix == prefix:
                return module
        raise ArgumentError(f"no routed experts at {prefix!r}; known: {[module.prefix for module in self.experts]}")

    def _prefix(self, operator: Operator, layer: int) -> str:
        """A library may count calls that the witness never made: those show under a name that no plan declares."""
        modules: Sequence[Experts | Linear] = self.experts if operator == "routed_experts" else self.linears
        return modules[layer].prefix if layer < len(modules) else f"unregistered layer {layer}"

    def _rows(self, operator: Operator, variant: str, counted: Iterable[Count]) -> list[CounterRow]:
        return [
            CounterRow(
                op=operator,
                variant=variant,
                layer=self._prefix(operator, one.layer),
                launches=one.launches,
                rows=one.rows,
            )
            for one in counted
        ]

    @staticmethod
    def _index(modules: Sequence[object]) -> int:
        if len(modules) >= MAX_LAYERS:
            raise RuntimeError(f"more than {MAX_LAYERS} modules of one kind; the counters hold no more")
        return len(modules)


_current: list[Witness] = []


def install(witness: Witness) -> Witness:
    """Make this the process's witness. Raises RuntimeError when there is one already."""
    if _current:
        raise RuntimeError("this process has a witness already")
    _current.append(witness)
    return witness


def current() -> Witness:
    """The process's witness. Raises RuntimeError before a quantised module was loaded."""
    if not _current:
        raise RuntimeError("no witness: this process has loaded no EXL3 module")
    return _current[0]


def installed() -> bool:
    """Whether this process has a witness."""
    return bool(_current)
