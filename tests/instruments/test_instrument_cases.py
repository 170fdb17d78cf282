"""Every instrument against its cases, and every way of breaking one against some case."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from runner.errors import EvidenceError
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import DivergenceMeasure
from serve.instruments import (
    answers,
    base,
    engagement,
    kld,
    likelihood,
    machine,
    metrics,
    registry,
    shift,
    streams,
    traces,
)
from serve.instruments.base import Instrument
from serve.instruments.extract import extract
from tests.gates.mutants import broken, mutants_of

FOLDER = Path(__file__).resolve().parent
NAMES = tuple(known.NAME for known in registry.all_instruments())
MODULES: dict[ModuleType, tuple[str, ...]] = {
    vars(registry)[name.replace("-", "_")]: (name,)
    for name in NAMES
    if name not in ("watermark", "perturbation", "knock-out-zero", "ppl-decode", "ppl-prefill", "finish", "pack")
    and name not in ("kernel-speed", "pressure", "sanitizer", "ttft")
}
"""Instruments that decide something in their own file; the rest only name what a shared module does."""
SHARED: dict[ModuleType, tuple[str, ...]] = {
    answers: NAMES,
    base: ("kld", "speed"),
    engagement: ("speed", "ppl-decode"),
    likelihood: ("ppl-prefill", "ppl-decode", "kld", "speed"),
    machine: ("speed",),
    metrics: ("speed", "ppl-prefill", "acceptance"),
    shift: ("watermark",),
    streams: ("speed", "finish"),
    traces: ("launches", "rank-skew"),
}


@dataclass(frozen=True)
class Case:
    """A window's evidence and what must be made of it."""

    name: str
    window: PlannedWindow
    evidence: tuple[Evidence, ...]
    expected: dict[str, Any]

    def extracted(self) -> Case:
        """The same case with the committed extract of its evidence."""
        return replace(self, evidence=tuple(extract(one) for one in self.evidence))

    def comes_out(self) -> bool:
        """Whether the instrument makes of it what it should."""
        known = registry.instrument(*registry.parse(self.window.instrument))
        try:
            sample = known.reduce(self.evidence, self.window)
        except EvidenceError as error:
            return bool(self.expected.get("fault")) and str(self.expected["fault"]) in str(error)
        if words := self.expected.get("fault"):
            return any(words in one for one in (*sample.faults, *sample.disturbed))
        told = sample.model_dump(mode="json", include={"measure", "engagement", "faults", "disturbed"})
        return told == self.expected


@cache
def cases(name: str) -> tuple[Case, ...]:
    found = []
    for path in sorted((FOLDER / name).glob("*/input.json")):
        data = json.loads(path.read_bytes())
        found.append(
            Case(
                path.parent.name,
                PlannedWindow.model_validate_json(json.dumps(data["window"])),
                tuple(Evidence.model_validate_json(json.dumps(one)) for one in data["evidence"]),
                yaml.safe_load((path.parent / "expect.yaml").read_text(encoding="utf-8")),
            )
        )
    return tuple(found)


ALL = [(name, case) for name in NAMES for case in cases(name)]


@pytest.mark.parametrize(("name", "case"), ALL, ids=lambda part: getattr(part, "name", part))
def test_case(name: str, case: Case) -> None:
    assert case.comes_out()
    ending = case.name.rpartition("_")[2]
    assert ending == ("fail" if "fault" in case.expected else "pass")
    if ending == "pass":
        assert case.expected["faults"] == case.expected["disturbed"] == []


@pytest.mark.parametrize(
    ("name", "case"),
    [(name, case) for name, case in ALL if name != "kld"],
    ids=lambda part: getattr(part, "name", part),
)
def test_an_instrument_reads_the_same_from_the_committed_extract(name: str, case: Case) -> None:
    assert case.extracted().comes_out()


@pytest.mark.parametrize(
    "case", [one for one in cases("kld") if one.name.endswith("_pass")], ids=lambda case: case.name
)
def test_the_divergence_of_drawn_positions_is_read_the_same_from_the_extract(case: Case) -> None:
    measure = registry.instrument("kld", 1).reduce(case.evidence, case.window).measure
    assert isinstance(measure, DivergenceMeasure)
    for document in measure.documents:
        positions = [each.position for each in document.drawn]
        assert positions
        assert kld.read_drawn(case.extracted().evidence, document.id, positions) == document.drawn


@pytest.mark.parametrize("known", registry.all_instruments(), ids=lambda known: known.NAME)
def test_every_instrument_brings_its_cases(known: Instrument) -> None:
    endings = [case.name.rpartition("_")[2] for case in cases(known.NAME)]
    assert endings.count("fail") >= 3
    assert endings.count("pass") >= 1


def noticed(names: tuple[str, ...]) -> bool:
    """Whether some case of these instruments does not come out; one that raises anything else is noticed too."""
    for name in names:
        for case in cases(name):
            try:
                if not case.comes_out():
                    return True
            except Exception:  # noqa: BLE001  # whatever a broken instrument raises, its case did not come out
                return True
    return False


@pytest.mark.parametrize(
    ("module", "names"), (MODULES | SHARED).items(), ids=lambda part: getattr(part, "__name__", "")
)
def test_every_mutant_is_noticed(module: ModuleType, names: tuple[str, ...]) -> None:
    assert not noticed(names), "unbroken, every case comes out as it should"
    unnoticed, count = [], 0
    for mutant in mutants_of(module):
        count += 1
        with broken(module, mutant):
            if not noticed(names):
                unnoticed.append(f"{module.__name__}.{mutant.function} {mutant.what}")
    assert count, "nothing was broken"
    assert unnoticed == []


def test_the_committed_cases_are_what_the_script_writes(tmp_path: Path) -> None:
    root = FOLDER.parent.parent
    subprocess.run(
        [sys.executable, "-m", "tests.instruments.make_cases", str(tmp_path)], cwd=root, check=True, timeout=120
    )
    written = sorted(path.relative_to(tmp_path) for path in tmp_path.glob("*/*/*"))
    committed = sorted(path.relative_to(FOLDER) for path in FOLDER.glob("*/*/*") if path.is_file())
    assert written == committed
    assert [path for path in written if (tmp_path / path).read_bytes() != (FOLDER / path).read_bytes()] == []
