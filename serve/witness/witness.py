"""One rank's witness: opens the variant libraries, runs every call through the native counters, and reads them back."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import torch
from carve_kernels.abi import DECLINES, MAX_LAYERS, CLayerCounters
from carve_kernels.parallel import host, single

from runner.model.evidence import CounterRow, DeclineRow, RankCounters
from serve.witness import abi
from serve.witness.modules import PROJECTIONS, ExpertsModule, LinearModule, Matrix


class RefusedError(RuntimeError):
    """Strict mode ends the engine; the adapter finds the reason by ``MARK`` in the engine's output."""

    MARK = "carve strict "

    def __init__(self, level: int, reason: str) -> None:
        super().__init__(f"{self.MARK}{level}: {reason}")


class ArgumentError(ValueError):
    """An argument of a witness call does not fit this engine; ``MARK`` survives the engine's own wrapping."""

    MARK = "carve argument: "

    def __init__(self, reason: str) -> None:
        super().__init__(self.MARK + reason)


class Witness:
    """Everything that counts on one rank. Create once per worker process, before its modules load."""

    def __init__(self, environment: Mapping[str, str], *, rank: int, ranks: int, threads: int) -> None:
        self.rank, self.ranks = rank, ranks
        self.variant = environment.get("CARVE_VARIANT", abi.INCUMBENT)
        self.libraries: dict[str, abi.VariantLibrary] = {}
        self.faults: dict[str, str] = {}
        """Variant name to the reason why its library could not be opened."""
        self.experts: list[ExpertsModule] = []
        self.linears: list[LinearModule] = []
        self._payload: dict[str, bytes] = {}
        self.noted_bytes: dict[str, int] = {}
        """Size of everything noted while it loaded, by name."""
        self._native = abi.NativeWitness(Path(environment["CARVE_WITNESS_LIBRARY"]))
        self._parallel = host(threads) if threads > 1 else single()
        self._numbers: dict[str, int] = {}
        for number, (name, path) in enumerate(sorted(json.loads(environment["CARVE_LIBRARIES"]).items())):
            self._numbers[name] = number
            try:
                library = abi.VariantLibrary(Path(path))
            except (OSError, AttributeError) as error:
                self.faults[name] = str(error)
                continue
            self.libraries[name] = library
            self._native.set(number, library.moe, library.linear)
        if abi.INCUMBENT not in self.libraries:
            fault = self.faults.get(abi.INCUMBENT, "not named in CARVE_LIBRARIES")
            raise RuntimeError(f"no incumbent library: {fault}")

    # Registration, while the model loads

    def register_experts(
        self, prefix: str, experts: Sequence[tuple[Matrix, Matrix, Matrix]], *, topk: int, limit: float
    ) -> ExpertsModule:
        """A layer's routed experts on this rank, in the order of the layers."""
        module = ExpertsModule(
            prefix, self._index(self.experts), experts, topk=topk, limit=limit, parallel=self._parallel
        )
        self.experts.append(module)
        for number, expert in enumerate(experts):
            for projection, matrix in zip(PROJECTIONS, expert, strict=True):
                self.note_payload(f"{prefix}.{number}.{projection}", matrix.payload())
        return module

    def register_linear(self, prefix: str, matrices: Sequence[Matrix]) -> LinearModule:
        """A linear module on this rank."""
        module = LinearModule(prefix, self._index(self.linears), matrices, parallel=self._parallel)
        self.linears.append(module)
        for number, matrix in enumerate(matrices):
            self.note_payload(f"{prefix}.{number}", matrix.payload())
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
        self, variant: str, module: ExpertsModule, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor
    ) -> tuple[torch.Tensor | None, str]:
        """One counted call: (output float32 [rows, hidden], "") or (None, decline reason).

        ``x`` float32 [rows, hidden], ``ids`` int32 [rows, topk], ``weights`` float32 [rows, topk], all contiguous.
        """
        out = torch.empty_like(x)
        module.point(x, ids, weights, out)
        number = self._numbers.get(variant)
        status = self._native.moe(number, module.address) if number is not None else DECLINES.index("not-ready")
        return (out, "") if status == abi.OK else (None, DECLINES[status])

    def run_linear(self, module: LinearModule, x: torch.Tensor) -> torch.Tensor:
        """One counted call of the incumbent: float32 [rows, in] contiguous to float32 [rows, out]."""
        outs = module.outputs(x)
        status = self._native.linear(self._numbers[abi.INCUMBENT], module.index, len(module.matrices), module.address)
        if status != abi.OK:
            raise RuntimeError(f"the incumbent cannot run {module.prefix} with {x.shape[0]} rows: {DECLINES[status]}")
        return outs[0] if len(outs) == 1 else torch.cat(outs, dim=1)

    # Reading back

    def counters(self) -> RankCounters:
        """Everything counted since this process started."""
        witness: list[CounterRow] = []
        candidate: list[CounterRow] = []
        declines: list[DeclineRow] = []
        for variant, number in self._numbers.items():
            witness += self._rows("routed_experts", variant, self._expert_prefix, self._native.experts(number))
            witness += self._rows("linear", variant, self._linear_prefix, self._native.linears(number))
            for reason, name in enumerate(DECLINES[1:], start=1):
                declines += [
                    DeclineRow(
                        variant=variant,
                        layer=self._expert_prefix(layer),
                        reason=name,
                        count=counted.launches,
                        rows=abi.histogram(counted),
                    )
                    for layer, counted in self._native.declines(number, reason)
                ]
            if variant != abi.INCUMBENT and variant in self.libraries:
                own = self.libraries[variant].counters()
                candidate += self._rows("routed_experts", variant, self._expert_prefix, own)
        return RankCounters(
            rank=self.rank,
            pid=os.getpid(),
            witness=tuple(witness),
            candidate=tuple(candidate),
            declines=tuple(declines),
        )

    def switch(self, variant: str) -> None:
        """Run routed experts with this variant from the next call on. Raises ArgumentError for one not loaded."""
        if variant not in self.libraries:
            raise ArgumentError(f"no library for variant {variant!r}; loaded: {sorted(self.libraries)}")
        self.variant = variant

    def find_experts(self, prefix: str) -> ExpertsModule:
        """The routed experts of a module prefix. Raises ArgumentError for an unknown one."""
        for module in self.experts:
            if module.prefix == prefix:
                return module
        raise ArgumentError(f"no routed experts at {prefix!r}; known: {[module.prefix for module in self.experts]}")

    def _expert_prefix(self, layer: int) -> str:
        """A library may count calls that the witness never made: those show under a name that no plan declares."""
        return self.experts[layer].prefix if layer < len(self.experts) else f"unregistered layer {layer}"

    def _linear_prefix(self, layer: int) -> str:
        return self.linears[layer].prefix

    @staticmethod
    def _rows(
        op: str, variant: str, prefix: Callable[[int], str], counted: Iterable[tuple[int, CLayerCounters]]
    ) -> list[CounterRow]:
        return [
            CounterRow.model_validate(
                {
                    "op": op,
                    "variant": variant,
                    "layer": prefix(layer),
                    "launches": counters.launches,
                    "rows": abi.histogram(counters),
                }
            )
            for layer, counters in counted
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
