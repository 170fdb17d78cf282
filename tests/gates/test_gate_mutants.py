"""A gate that is broken on purpose is noticed by one of the cases, every time."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from runner.gates import blocks, by_class, common, engagement, likelihood, paired, registry, shift
from runner.gates.base import GateInput
from runner.gates.selftest import folder_of
from runner.model.verdict import Verdict
from tests.gates.mutants import broken, mutants_of

FOLDER = Path(__file__).resolve().parent
SHARED = {
    blocks: ("speed",),
    by_class: ("kld@2", "ppl-prefill@2"),
    common: (),
    engagement: ("engaged", "speed", "watermark", "knock-out", "ppl-decode", "ppl-prefill"),
    likelihood: ("ppl-prefill", "ppl-decode", "ppl-prefill@2"),
    paired: ("needle", "score", "vision"),
    shift: ("watermark", "perturbation", "knock-out"),
}
"""Modules behind several gates, and whose cases notice (none named: everybody's)."""
THIN = ("ppl-prefill", "ppl-prefill@2", "ppl-decode@2", "watermark")
"""Gates whose own file only names what a shared module decides."""
NAMES = {folder_of(gate.NAME, gate.VERSION): gate for gate in registry.all_gates()}
GATES = {vars(registry)[name.replace("-", "_").replace("@", "_v")]: (name,) for name in NAMES if name not in THIN}


Expected = dict[str, Any]


@cache
def cases(gate: str) -> tuple[tuple[GateInput, Expected], ...]:
    return tuple(
        (
            GateInput.model_validate_json(path.read_bytes()),
            yaml.safe_load((path.parent / "expect.yaml").read_text(encoding="utf-8")),
        )
        for path in sorted((FOLDER / gate).glob("*/input.json"))
    )


def as_expected(verdict: Verdict, expected: Expected) -> bool:
    limits = {figure.name: figure.limit for figure in verdict.figures}
    return (
        verdict.status == expected["status"]
        and any(expected["reason"] in reason for reason in verdict.reasons)
        and limits.items() >= expected.get("figures", {}).items()
    )


def noticed(gates: tuple[str, ...]) -> bool:
    """Whether any case of these gates does not come out as it should; a gate that raises is noticed too."""
    for name in gates:
        judge = NAMES[name].judge
        for given, expected in cases(name):
            try:
                verdict = judge(given)
            except Exception:  # noqa: BLE001  # whatever a broken gate raises, its case did not come out as it should
                return True
            if not as_expected(verdict, expected):
                return True
    return False


@pytest.mark.parametrize(("module", "gates"), (GATES | SHARED).items(), ids=lambda part: getattr(part, "__name__", ""))
def test_every_mutant_is_noticed(module: ModuleType, gates: tuple[str, ...]) -> None:
    names = gates or tuple(NAMES)
    assert not noticed(names), "unbroken, every case comes out as it should"
    unnoticed, count = [], 0
    for mutant in mutants_of(module):
        count += 1
        with broken(module, mutant):
            if not noticed(names):
                unnoticed.append(f"{module.__name__}.{mutant.function} {mutant.what}")
    assert count, "nothing was broken"
    assert unnoticed == []
