"""No gate raises, whatever finite figures a sample holds: the worst candidate gets a verdict too."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from pydantic import ValidationError

from runner.gates import registry, selftest
from runner.gates.base import Gate, GateInput
from runner.model.verdict import Status

FOLDER = Path(__file__).resolve().parent
NUMBERS = ("0", "-1", "710", "2500", "1e-308", "-1e-308", "1e308", "-1e308")
"""Decimal texts of a record: small, beyond what has an exponential, and the ends of binary64."""
WHOLES = (0, -1, 1, 10**18, -(10**18), 10**400)


@cache
def inputs(gate: str, ending: str) -> tuple[str, ...]:
    return tuple(path.read_text() for path in sorted((FOLDER / gate).glob(f"*_{ending}/input.json")))


def leaves(value: Any, within: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to all numbers, whole ones and those in decimal text."""
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(part, (*within, key))
    elif not isinstance(value, bool) and re.fullmatch(r"-?[0-9.]+(e-?[0-9]+)?", str(value)):
        yield within


def put(data: Any, path: tuple[Any, ...], number: str, whole: int) -> None:
    for key in path[:-1]:
        data = data[key]
    data[path[-1]] = whole if isinstance(data[path[-1]], int) else number


@pytest.mark.parametrize("gate", registry.all_gates(), ids=lambda gate: f"{gate.NAME}@{gate.VERSION}")
@settings(max_examples=30)
@drawn(st.data())
def test_no_gate_raises(gate: Gate, data: st.DataObject) -> None:
    own = selftest.folder_of(gate.NAME, gate.VERSION)
    case = json.loads(data.draw(st.sampled_from(inputs(own, "pass") + inputs(own, "fail"))))
    paths = [("samples", index, "measure") for index in range(len(case["samples"]))]
    found = [path for start in paths for path in leaves(case["samples"][start[1]]["measure"], start)]
    if not found:
        return
    every = data.draw(st.booleans())
    chosen = found if every else data.draw(st.lists(st.sampled_from(found), min_size=1, unique=True))
    same = data.draw(st.booleans())
    number, whole = data.draw(st.sampled_from(NUMBERS)), data.draw(st.sampled_from(WHOLES))
    for path in chosen:
        if not same:
            number, whole = data.draw(st.sampled_from(NUMBERS)), data.draw(st.sampled_from(WHOLES))
        put(case, path, number, whole)
    try:
        asked = GateInput.model_validate_json(json.dumps(case))
    except ValidationError:
        return  # no record holds this
    verdict = gate.judge(asked)
    assert verdict.reasons


@pytest.mark.parametrize("name", ["ppl-prefill", "ppl-decode"])
@pytest.mark.parametrize("nats", [700, 710, 9998])
def test_the_worst_candidate_fails(name: str, nats: int) -> None:
    """A head of the wrong scale: the exponential of such a loss is no binary64 number."""
    case = json.loads((FOLDER / name / "no-worse_pass/input.json").read_text())
    for sample in case["samples"]:
        for document in sample["measure"]["documents"] if sample["variant"] != "incumbent" else ():
            document["nll"] = str(nats * document["tokens"])
    verdict = registry.gate(name, 1).judge(GateInput.model_validate_json(json.dumps(case)))
    assert verdict.status is Status.FAIL
    assert "half of the documents are worse" in verdict.reasons[0]
