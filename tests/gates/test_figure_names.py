"""The names that a kill line may rest on, against the figures that the gates' own cases give."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from runner.gates import figure_names, registry
from runner.gates.base import GateInput
from runner.gates.figure_names import FIGURES, figure
from runner.gates.selftest import folder_of
from runner.model.verdict import Status

FOLDER = Path(__file__).resolve().parent


@cache
def given(gate: str) -> dict[str, str]:
    """Figures of every case of the gate that passes."""
    found: dict[str, str] = {}
    for known in (known for known in registry.all_gates() if gate == known.NAME):
        for case in sorted(FOLDER.glob(f"{folder_of(gate, known.VERSION)}/*_pass/input.json")):
            verdict = known.judge(GateInput.model_validate_json(case.read_bytes()))
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
    values = [value for each, value in given(gate).items() if figure(gate, each) is not None]
    assert values
    assert all(float(value) == float(value) for value in values)


def test_a_name_says_whose_figure_it_is() -> None:
    assert figure("kld", "kld-candidate mean KL, worst end") == {}
    assert figure("four-streams", "ja ratio") == {"language": "ja"}
    assert figure("knock-out", "knock-out-zero rank 1") == {"rank": "1"}
    assert figure("acceptance", "acceptance-en-candidate length") == {"language": "en", "arm": "candidate"}


@pytest.mark.parametrize(
    ("gate", "name"),
    [
        ("kld", "perplexity"),
        ("kld", "kld mean KL, worst end"),
        ("kld", "kld-incumbent mean KL, worst end"),
        ("knock-out", "knock-out-decline floor"),
        ("watermark", "watermark rank 01"),
        ("launches", "launches-again steps"),
        ("rank-skew", "rank-skew-candidate skew"),
        ("greedy-band", "greedy-band-reference widest gap"),
        ("four-streams", "fr ratio"),
        ("ppl-prefill", "perplexit"),
        ("no", "x"),
    ],
)
def test_names_of_other_gates_and_windows_and_slips_are_none(gate: str, name: str) -> None:
    assert figure(gate, name) is None
