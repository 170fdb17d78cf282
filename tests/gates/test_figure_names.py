"""The names that a kill line may rest on, against the figures that the gates' own cases give."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from runner.gates import figure_names, registry
from runner.gates.base import GateInput
from runner.gates.figure_names import FIGURES, is_figure
from runner.model.verdict import Status

FOLDER = Path(__file__).resolve().parent


@cache
def given(gate: str) -> dict[str, str]:
    """Figures of every case of the gate that passes."""
    found: dict[str, str] = {}
    for case in sorted(FOLDER.glob(f"{gate}/*_pass/input.json")):
        verdict = registry.gate(gate, 1).judge(GateInput.model_validate_json(case.read_bytes()))
        assert verdict.status is Status.PASS
        found |= {figure.name: figure.value for figure in verdict.figures}
    return found


def test_every_gate_is_listed() -> None:
    assert FIGURES.keys() == {gate.NAME for gate in registry.all_gates()}


@pytest.mark.parametrize(("gate", "name"), [(gate, name) for gate, names in FIGURES.items() for name in names])
def test_each_name_is_one_that_the_gate_gives_and_a_number(
    monkeypatch: pytest.MonkeyPatch, gate: str, name: str
) -> None:
    monkeypatch.setattr(figure_names, "FIGURES", {gate: (name,)})
    values = [value for figure, value in given(gate).items() if is_figure(gate, figure)]
    assert values
    assert all(float(value) == float(value) for value in values)


def test_names_of_other_gates_and_slips_are_none() -> None:
    assert is_figure("kld", "kld-candidate mean KL, worst end")
    assert is_figure("four-streams", "ja ratio")
    for gate, name in (("kld", "perplexity"), ("four-streams", "fr ratio"), ("ppl-prefill", "perplexit"), ("no", "x")):
        assert not is_figure(gate, name)
