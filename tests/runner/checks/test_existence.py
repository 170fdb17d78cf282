"""What an order names and nobody has: named by check with its place, before plan or execute meet it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from runner.check import check_file
from runner.cli import run
from runner.paths import source_root

ORDERS = source_root() / "orders"
CREW = "schema_version: 1\ncraftspeople: {luna: {kind: person}}\n"


def faults(path: Path, text: str) -> dict[str, str]:
    """Dotted field to message, each with the line where the field is written."""
    path.write_text(text, encoding="utf-8")
    found = {}
    for one in check_file(path):
        field = ".".join(map(str, one.fault.path))
        assert text.splitlines()[one.place.line - 1].strip(), field
        found[field] = one.fault.message
    return found


def changed(name: str, old: str, new: str) -> str:
    text = (ORDERS / f"{name}.yaml").read_text(encoding="utf-8")
    assert old in text
    return text.replace(old, new)


class Edit(NamedTuple):
    """An order of the repository with one name in it changed, and where that is noticed."""

    order: str
    old: str
    new: str
    field: str
    words: str


FEW = "gates.4.windows.documents"
SOURCES = "candidate.sources.0"
DONOR = "generated: {tool: requantised-experts, layers: [1], bits: 2, seed: 1}"
HALF_K = "sources: [kernels/cpu/faulty/half_k.cpp]"
EDITS = [
    Edit("fake-lna2", 'date: "2026-11-30"', 'date: "30.11.2026"', "date", "is no day: write it as 2026-11-30"),
    Edit("fake-lna2", 'date: "2026-11-30"', 'date: "2026-02-30"', "date", "is no day"),
    Edit("fake-lna2", "variant: lna2", "variant: mine", "candidate.variant", "compiles nothing and has no mine"),
    Edit("mini-lna2", "sources: [kernels/cpu/lna2.cpp]", "sources: [kernels/cpu/no.cpp]", SOURCES, "does not exist"),
    Edit("mini-lna2", "sources: [kernels/cpu/lna2.cpp]", "sources: [kernels/cpu]", SOURCES, "no plain file"),
    Edit("mini-half-k", HALF_K, "sources: [kernels/cpu/faulty/no.cpp]", SOURCES, "does not exist"),
    Edit("kernel-lna2", "sources: [kernels/cuda/lna2.cu]", "sources: [kernels/cuda/no.cu]", SOURCES, "does not exist"),
    Edit("mini-half-k", "variant: half-k", "variant: lna2", "candidate.variant", "is built from kernels/cpu/lna2.cpp"),
    Edit("mini-half-k", "variant: half-k", "variant: half-k\n  incumbent: no", "candidate.incumbent", "incumbent no;"),
    Edit("fake-lna2", "variant: lna2", "variant: lna2\n  incumbent: no", "candidate.incumbent", "known: incumbent"),
    Edit("h200-lna2", "variant: lna2", "variant: lna3", "candidate.variant", "there is no GPU variant lna3"),
    Edit("mini-patch", "vllm-exl3-prewarm]", "no-such-patch]", "recipe", "no-such-patch"),
    Edit(
        "mini-overlay-layer", "unchanged: copy", "unchanged: link\n  store: packs", "recipe", "outside the pack store"
    ),
    Edit("mini-overlay-layer", "documents: 48, tokens: 192", "documents: 5, tokens: 192", FEW, "cannot decide"),
    Edit("mini-bake", "recipe/mini/calibration.jsonl", "recipe/mini/nope.jsonl", "recipe", "no such text"),
    Edit("mini-bake", "    documents: 36", "    documents: 37", "recipe", "too few calibration documents"),
    Edit("mini-bake", "  calibration:", "  quantiser: exllamav3\n  calibration:", "recipe.quantiser", "has no GPU"),
    Edit("mini-patch", "recipe:\n", f"recipe:\n  after: {{vllm/typo.py: '{64 * '0'}'}}\n", "recipe", "no patch edits"),
    Edit("mini-overlay-layer", DONOR, "pack: recipe/mini/other", "recipe", "recipe/mini/other"),
]


@pytest.mark.parametrize("edit", EDITS, ids=[f"{edit.order}-{edit.new}" for edit in EDITS])
def test_a_name_that_leads_nowhere_is_named(home: Path, edit: Edit) -> None:
    found = faults(home / "order.yaml", changed(edit.order, edit.old, edit.new))
    assert edit.words in found[edit.field], found


def test_the_place_is_a_line_and_a_column(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = home / "order.yaml"
    path.write_text(changed("mini-half-k", HALF_K, "sources: [kernels/cpu/faulty/no.cpp]"), encoding="utf-8")
    assert run(["check", str(path)]) == 3
    assert re.search(rf"{path}:\d+:\d+: candidate\.sources\.0: ", capsys.readouterr().out)


def test_a_pack_that_is_not_here_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seats = "runner.steps.seats.load_manifest"
    from runner.steps.seats import load_manifest  # noqa: PLC0415 (the one that is replaced)

    moved = load_manifest("cpu-mini").model_copy(update={"pack": "recipe/mini/moved"})
    for place in (seats, "runner.check.load_manifest"):
        monkeypatch.setattr(place, lambda _: moved)
    found = faults(home / "order.yaml", changed("mini-half-k", "pack: recipe/mini/pack", "pack: recipe/mini/moved"))
    assert "there is no config.json" in found["target.pack"]


def test_a_source_that_may_be_written_is_no_fault_and_is_said(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = home / "order.yaml"
    text = changed("mini-half-k", "kernels/cpu/faulty/half_k.cpp", "kernels/cpu/new.cpp")
    path.write_text(text.replace("variant: half-k", "variant: new"), encoding="utf-8")
    assert run(["check", str(path)]) == 0
    assert "kernels/cpu/new.cpp is still to be written" in capsys.readouterr().out
    assert run(["execute", str(path), "--quiet"]) == 2  # before an engine is installed or a run begins
    told = capsys.readouterr().err
    assert "kernels/cpu/new.cpp still to be written" in told
    assert "runner dispatch" in told
    assert not (home / "state" / "runs").exists()


def test_people_have_to_be_known_where_the_workspace_has_a_crew(home: Path) -> None:
    text = changed(
        "mini-half-k", "approver: maintainers", "approver: maintainers\n  craftspeople: [{name: luna}, {name: nobody}]"
    )
    assert faults(home / "order.yaml", text) == {}
    crew = home / "workspace" / "orders" / "people" / "craftspeople.yaml"
    crew.parent.mkdir(parents=True)
    crew.write_text(CREW, encoding="utf-8")
    found = faults(home / "order.yaml", text)
    assert list(found) == ["people.craftspeople.1.name"]
    assert "knows nobody called nobody; it knows luna" in found["people.craftspeople.1.name"]


@pytest.mark.parametrize("name", ["F1", "F2-T0", "lna2-T1", "T2", "T6"])
def test_an_order_for_another_machine_stays_a_draft(name: str) -> None:
    """Its pack, its people and its variant are not here, and its plan says what is missing."""
    assert check_file(ORDERS / f"{name}.yaml") == ()
