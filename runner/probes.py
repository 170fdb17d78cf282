"""Derives facts again: one function a probe, from the order alone or from files of the checkout."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from fractions import Fraction
from pathlib import Path

from runner.arithmetic import evaluate, names_in
from runner.errors import InputError
from runner.model.order import Fact
from runner.model.order.probe import Calculation, ExpertBytes, LinearBytes, PackCensus, Quote, UniqueExperts
from runner.paths import source_root
from runner.roofline import agrees, expert_bytes, linear_bytes, rank_shape, unique_experts

_LARGEST_QUOTED = 4 << 20
BYTES = {"bytes": 1, "byte": 1, "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}
"""Units of bytes, and how many they are."""
OTHER_UNITS = frozenset({"ns", "us", "µs", "ms", "s", "MB/s", "GB/s", "TB/s", "GiB/s", "tok/s", "%", "ratio", "×"})
"""Units of what no probe but a calculation or a quote comes to."""
_NUMBER = re.compile(r"((?:(?<!\w)-)?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?)\s*([A-Za-zµ%×]+(?:/[a-z]+)?)?")
_NOT_INSIDE_A_NUMBER = r"(?<!\d)(?<!\d[.,]){}(?![.,]?\d)"


@dataclass(frozen=True)
class Finding:
    """What a probe came to."""

    fact: str
    agrees: bool | None
    """None where the probe could not look: the pack or file is not on this machine."""
    found: str


def findings(facts: tuple[Fact, ...]) -> tuple[Finding, ...]:
    """One finding for each fact that has a probe, in order."""
    return tuple(_finding(fact, facts) for fact in facts if fact.probe is not None)


def operands(fact: Fact, facts: tuple[Fact, ...]) -> tuple[Fact, ...]:
    """Facts that a calculation reckons with; none of another probe."""
    names = names_in(fact.probe.expression) if isinstance(fact.probe, Calculation) else frozenset()
    return tuple(one for one in facts if _name(one) in names)


def _name(fact: Fact) -> str:
    """The name of a fact in expressions."""
    return fact.id.replace("-", "_").replace(".", "_")


def _finding(fact: Fact, facts: tuple[Fact, ...]) -> Finding:
    probe = fact.probe
    computed: Fraction | float
    try:
        if isinstance(probe, Quote):
            return _quoted(fact, probe)
        if isinstance(probe, PackCensus):
            folder = source_root() / probe.pack
            if not folder.is_dir():
                return Finding(fact.id, None, f"pack {probe.pack} is not on this machine")
            computed = _census(folder, probe)
        elif isinstance(probe, Calculation):
            computed = _calculated(fact, probe, facts)
        elif isinstance(probe, ExpertBytes):
            computed = expert_bytes(probe.hidden, probe.intermediate, probe.bits)
        elif isinstance(probe, LinearBytes):
            shape = rank_shape(probe.in_features, probe.out_features, probe.ranks, probe.split)
            computed = linear_bytes(*shape, probe.bits)
        else:
            assert isinstance(probe, UniqueExperts), "every probe has its function here"
            computed = unique_experts(probe.experts, probe.top_k, probe.rows)
        computed = _in_unit(computed, fact)
    except ValueError as error:
        return Finding(fact.id, False, str(error))
    if fact.value is None:
        return Finding(fact.id, False, f"the fact states no value to compare with {float(computed):.12g}")
    return Finding(fact.id, agrees(fact.value, computed), f"{float(computed):.12g}")


def _calculated(fact: Fact, probe: Calculation, facts: tuple[Fact, ...]) -> Fraction:
    """Raises ValueError for a fact that would prove itself, and for one whose name is that of another."""
    used = operands(fact, facts)
    if circle := _circle(fact, facts):
        raise ValueError(f"nothing: the fact is derived from itself ({' from '.join(circle)})")
    names = [_name(one) for one in used]
    if twice := next((one for one in used if names.count(_name(one)) > 1), None):
        raise ValueError(f"nothing: {_name(twice)} may be any of {', '.join(one.id for one in used)}")
    if len(used) == 1 and probe.expression.strip() == names[0] and used[0].unit != fact.unit:
        raise ValueError(
            f"{used[0].value} {used[0].unit or ''} ({used[0].id}), which is no {fact.unit or 'bare number'}"
        )
    return evaluate(probe.expression, {_name(one): Decimal(one.value) for one in used if one.value})


def _circle(fact: Fact, facts: tuple[Fact, ...]) -> tuple[str, ...]:
    """The way by which a fact is derived from itself; empty where it is not."""
    ways = list(operands(fact, facts))
    trails: dict[str, tuple[str, ...]] = {one.id: (fact.id, one.id) for one in ways}
    seen: set[str] = set()
    while ways:
        last = ways.pop()
        if last.id == fact.id:
            return trails[last.id]
        if last.id in seen:
            continue
        seen.add(last.id)
        for one in operands(last, facts):
            trails.setdefault(one.id, (*trails[last.id], one.id))
            ways.append(one)
    return ()


def _in_unit(computed: Fraction | float, fact: Fact) -> Fraction | float:
    """What a probe came to in the fact's unit. Raises ValueError for a unit of another kind."""
    words = (fact.unit or "").split()
    word = words[0] if words else ""
    of_bytes = isinstance(fact.probe, ExpertBytes | LinearBytes) or getattr(fact.probe, "quantity", "") == "bytes"
    if isinstance(fact.probe, Calculation) or not word:
        return computed
    if of_bytes and word not in BYTES:
        raise ValueError(f"{float(computed):.12g} bytes, and {fact.unit} is no unit of them")
    if not of_bytes and word in {*BYTES, *OTHER_UNITS}:
        raise ValueError(f"{float(computed):.12g}, a count, and not {fact.unit}")
    return Fraction(computed) / BYTES[word] if of_bytes else computed


def _quoted(fact: Fact, probe: Quote) -> Finding:
    """Whether the words stand where they are said to stand, and say the value in the fact's unit."""
    root = source_root().resolve()
    path = (root / probe.file).resolve()
    if not path.is_relative_to(root):
        return Finding(fact.id, False, f"{probe.file} leaves the checkout")
    if path.is_relative_to(root / "orders"):
        return Finding(fact.id, False, f"{probe.file} is an order: its facts are cited (evidence: order and fact)")
    if fact.value is not None and (wrong := _says_another(fact.value, fact.unit or "", probe.text)):
        return Finding(fact.id, False, wrong)
    if not path.is_file():
        return Finding(fact.id, None, f"{probe.file} is not in this checkout")
    if path.stat().st_size > _LARGEST_QUOTED:
        return Finding(fact.id, False, f"{probe.file} is too large to quote from")
    whole = re.compile(_NOT_INSIDE_A_NUMBER.format(re.escape(probe.text)))
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    hits = [number for number, line in enumerate(lines, 1) if whole.search(line)]
    if probe.line is None and hits:
        return Finding(fact.id, True, f"{probe.file}:{hits[0]}")
    if probe.line in hits:
        return Finding(fact.id, True, f"{probe.file}:{probe.line}")
    moved = f"; the words are at line {hits[0]} now" if hits else "; nowhere else either"
    return Finding(fact.id, False, f"{probe.file} does not say {probe.text!r}" + (moved if probe.line else ""))


def _says_another(value: str, unit: str, text: str) -> str:
    """What is wrong with words that should say a value; empty where they do."""
    if not any(letter.isalpha() for letter in text):
        return f"only {text!r}: words that say what the number is belong to it"
    said = [(number.replace(",", ""), word) for number, word in _NUMBER.findall(text)]
    units = [word for number, word in said if Decimal(number) == Decimal(value)]
    if not units:
        return f"{text!r}, which does not say {value}"
    known = {*BYTES, *OTHER_UNITS}
    word = unit.split(maxsplit=1)[0] if unit else ""
    if all(one in known and one != word for one in units) or (word in known and word not in units):
        return f"{text!r}, which does not say {value} {unit}"
    return ""


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
    if halves := [name for name, one in modules.items() if one.bits != int(one.bits)]:
        raise ValueError(f"{halves[0]} is coded at a fraction of bits, which no fact can say")
    if probe.quantity == "bytes":
        return sum(linear_bytes(one.in_features, one.out_features, int(one.bits)) for one in modules.values())
    attribute = {"bits": "bits", "in-features": "in_features", "out-features": "out_features"}[probe.quantity]
    different = sorted({int(getattr(one, attribute)) for one in modules.values()})
    if len(different) > 1:
        raise ValueError(f"{probe.quantity} of {probe.modules!r} differ: {', '.join(map(str, different))}")
    return different[0]


__all__ = ["BYTES", "Finding", "findings", "operands"]
