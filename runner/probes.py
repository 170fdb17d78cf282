"""Derives facts again: one function a probe, from the order alone or from files of the checkout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from fractions import Fraction
from pathlib import Path

from runner.arithmetic import evaluate
from runner.errors import InputError
from runner.model.order import Fact
from runner.model.order.probe import Calculation, ExpertBytes, LinearBytes, PackCensus, Quote, UniqueExperts
from runner.paths import source_root
from runner.roofline import agrees, expert_bytes, linear_bytes, rank_shape, unique_experts

_LARGEST_QUOTED = 4 << 20


@dataclass(frozen=True)
class Finding:
    """What a probe came to."""

    fact: str
    agrees: bool | None
    """None where the probe could not look: the pack or file is not on this machine."""
    found: str


def findings(facts: tuple[Fact, ...]) -> tuple[Finding, ...]:
    """One finding for each fact that has a probe, in order."""
    values = {fact.id.replace("-", "_").replace(".", "_"): Decimal(fact.value) for fact in facts if fact.value}
    return tuple(_finding(fact, values) for fact in facts if fact.probe is not None)


def _finding(fact: Fact, values: Mapping[str, Decimal]) -> Finding:
    probe = fact.probe
    computed: Fraction | float
    try:
        if isinstance(probe, Quote):
            return _quoted(fact.id, probe)
        if isinstance(probe, PackCensus):
            folder = source_root() / probe.pack
            if not folder.is_dir():
                return Finding(fact.id, None, f"pack {probe.pack} is not on this machine")
            computed = _census(folder, probe)
        elif isinstance(probe, Calculation):
            others = {name: value for name, value in values.items() if name != fact.id.replace("-", "_")}
            computed = evaluate(probe.expression, others)
        elif isinstance(probe, ExpertBytes):
            computed = expert_bytes(probe.hidden, probe.intermediate, probe.bits)
        elif isinstance(probe, LinearBytes):
            shape = rank_shape(probe.in_features, probe.out_features, probe.ranks, probe.split)
            computed = linear_bytes(*shape, probe.bits)
        else:
            assert isinstance(probe, UniqueExperts), "every probe has its function here"
            computed = unique_experts(probe.experts, probe.top_k, probe.rows)
    except ValueError as error:
        return Finding(fact.id, False, str(error))
    if fact.value is None:
        return Finding(fact.id, False, f"the fact states no value to compare with {float(computed):.12g}")
    return Finding(fact.id, agrees(fact.value, computed), f"{float(computed):.12g}")


def _quoted(fact: str, probe: Quote) -> Finding:
    """Whether the words stand where they are said to stand."""
    root = source_root().resolve()
    path = (root / probe.file).resolve()
    if not path.is_relative_to(root):
        return Finding(fact, False, f"{probe.file} leaves the checkout")
    if not path.is_file():
        return Finding(fact, None, f"{probe.file} is not in this checkout")
    if path.stat().st_size > _LARGEST_QUOTED:
        return Finding(fact, False, f"{probe.file} is too large to quote from")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    hits = [number for number, line in enumerate(lines, 1) if probe.text in line]
    if probe.line is None and hits:
        return Finding(fact, True, f"{probe.file}:{hits[0]}")
    if probe.line in hits:
        return Finding(fact, True, f"{probe.file}:{probe.line}")
    moved = f"; the words are at line {hits[0]} now" if hits else "; nowhere else either"
    return Finding(fact, False, f"{probe.file} does not say {probe.text!r}" + (moved if probe.line else ""))


def _census(folder: Path, probe: PackCensus) -> int:
    from recipe.pack import read_pack  # noqa: PLC0415  (numpy is needed only by orders that read a pack)

    try:
        modules = {name: one for name, one in read_pack(folder).modules.items() if fnmatchcase(name, probe.modules)}
    except InputError as error:
        raise ValueError(" ".join(str(error).split())) from None
    if not modules:
        raise ValueError(f"no coded module is called {probe.modules!r}")
    if probe.quantity == "modules":
        return len(modules)
    if probe.quantity == "bytes":
        return sum(linear_bytes(one.in_features, one.out_features, one.bits) for one in modules.values())
    attribute = {"bits": "bits", "in-features": "in_features", "out-features": "out_features"}[probe.quantity]
    different = sorted({int(getattr(one, attribute)) for one in modules.values()})
    if len(different) > 1:
        raise ValueError(f"{probe.quantity} of {probe.modules!r} differ: {', '.join(map(str, different))}")
    return different[0]


__all__ = ["Finding", "findings"]
