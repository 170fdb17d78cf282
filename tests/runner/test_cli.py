"""The command line: quick help, one error printer, JSON everywhere, exit codes; starter orders."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from runner.check import check_file
from runner.cli import run
from runner.craft.crew import load_crew
from runner.errors import InputError
from runner.model.order import KernelOrder, load_order
from runner.paths import source_root
from runner.workspace import KINDS, SCHEMA, make_workspace, write_starter
from tests.runner.flow_orders import kernel_order, write_order
from tests.runner.test_workflow import ask

ORDER = source_root() / "orders" / "fake-lna2.yaml"


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, runner.cli\n"
        "runner.cli.run(['--help'])\n"
        "heavy = {'pydantic', 'numpy', 'httpx', 'yaml', 'rich', 'cryptography', 'jinja2', 'git'} & set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["check", "missing.yaml"], 3, "cannot be read"),
        (["plan", "missing.yaml"], 3, "cannot be read"),
        (["schema", "nothing"], 3, "no such record"),
        (["nonsense"], 3, "nonsense"),
        (["execute"], 3, "ORDER"),
        (["check", str(ORDER), "--seat", "moon"], 3, "no such seat"),
    ],
)
def test_errors_say_what_and_exit_with_their_code(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, words: str
) -> None:
    assert run(arguments) == code
    assert words in capsys.readouterr().err


def test_a_file_system_that_refuses_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert run(["init", str(tmp_path / "file" / "workspace")]) == 2
    assert "file system stands in the way" in capsys.readouterr().err


def test_an_interrupt_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("runner.gates.registry.all_gates", interrupted)
    assert run(["gates"]) == 2
    assert "runner status" in capsys.readouterr().err


def test_an_error_in_json_has_its_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "missing.yaml", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["error"]["where"] == "missing.yaml"


def test_every_command_answers_in_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for arguments in (
        ["check", str(ORDER)],
        ["schema", "seat"],
        ["schema", "craftspeople"],
        ["schema", "reviews"],
        ["schema", "open-items"],
        ["gates"],
        ["plan", str(ORDER)],
        ["brief", str(ORDER)],
        ["build", str(ORDER)],
        ["seat", "list"],
        ["init", str(tmp_path / "new")],
    ):
        assert run([*arguments, "--json"]) == 0, arguments
        json.loads(capsys.readouterr().out)


def test_the_plan_shows_steps_seconds_and_chances(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", str(ORDER)]) == 0
    text = capsys.readouterr().out
    assert re.search(r"shared-a +\d+ s", text)
    assert re.search(r"q6-b4 +\d+ s +speed@1 +drawn", text)
    assert re.search(r"speed +0\.\d\d% +\d", text)


def test_a_bad_order_is_told_with_its_lines(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write_order(tmp_path, kernel_order().replace("pack: toy", "pack: other"))
    assert run(["check", str(path), str(ORDER)]) == 3
    out = capsys.readouterr().out
    assert f"{path}:8:" in out
    assert f"{ORDER}: good" in out
    assert run(["plan", str(path)]) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_starter_order_is_short_and_lacks_only_what_a_person_knows(tmp_path: Path, kind: str) -> None:
    workspace = make_workspace(tmp_path / "w")
    path = write_starter(workspace, f"try-{kind}", kind, "fake")
    assert len(path.read_text(encoding="utf-8").splitlines()) < 30
    faults = check_file(path)
    assert faults
    assert all("still to be filled in" in one.fault.message for one in faults)
    assert json.loads((workspace / SCHEMA).read_text(encoding="utf-8"))["discriminator"]["propertyName"] == "kind"
    with pytest.raises(InputError, match="exists already"):
        write_starter(workspace, f"try-{kind}", kind, "fake")


@pytest.mark.parametrize("kind", KINDS)
def test_a_starter_that_was_filled_in_has_a_plan(tmp_path: Path, kind: str) -> None:
    path = write_starter(make_workspace(tmp_path / "w"), f"try-{kind}", kind, "cpu-mini")
    text = path.read_text(encoding="utf-8").replace("<words that stand there>", "work order")
    text = text.replace("<folder of the pack that gives its experts>", "recipe/mini/pack")
    text = text.replace("<names of modules, as globs>", "model.layers.1.self_attn.*_proj")
    path.write_text(re.sub(r"<[^>\n]+>", "something", text), encoding="utf-8")
    assert check_file(path) == ()
    assert run(["plan", str(path)]) == 0


def test_the_starter_of_a_simulated_seat_passes(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As it is written, but for words and for how long its blocks last; what is faster is the machine's affair."""
    path = write_starter(home / "workspace", "try-kernel", "kernel", "fake")
    text = re.sub(r"<[^>\n]+>", "something", path.read_text(encoding="utf-8"))
    text = text.replace("name: speed\n", "{name: speed, windows: {prompt_tokens: 16, block_seconds: 1}}\n")
    path.write_text(text.replace("pairs: 6}", "pairs: 6, languages: [en], tokens: 8}"), encoding="utf-8")
    _, answer = ask(capsys, "execute", str(path))
    verdicts = {one["gate"].partition("@")[0]: one["status"] for one in answer["verdicts"]}
    assert verdicts.pop("speed", "")
    assert set(verdicts.values()) == {"PASS"}, answer


def test_a_workspace_begins_with_a_crew_and_hints_are_for_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "my work"
    assert run(["init", str(folder)]) == 0
    crew = folder / "orders" / "people" / "craftspeople.yaml"
    assert "codex" in load_crew(folder).craftspeople
    crew.write_text("schema_version: 1\ncraftspeople: {me: {kind: person}}\n")
    assert run(["init", str(folder)]) == 0
    assert list(load_crew(folder).craftspeople) == ["me"]
    monkeypatch.setenv("CARVE_WORKSPACE", str(folder))
    capsys.readouterr()
    assert run(["new", "first"]) == 0
    hint = capsys.readouterr().out.rpartition("runner check ")[2]
    assert shlex.split(hint) == [str(folder / "orders" / "first.yaml")]


def test_a_starter_names_a_kernel_of_its_own(tmp_path: Path) -> None:
    order = load_order(write_starter(make_workspace(tmp_path / "w"), "my-kernel", "kernel", "cpu-mini-tp2")).order
    assert isinstance(order, KernelOrder)
    assert (order.candidate.variant, order.candidate.sources) == ("my-kernel", ("kernels/cpu/my_kernel.cpp",))


@pytest.mark.parametrize(
    ("seat", "source"),
    [("desk-h200", "cuda/lna2.cu"), ("h200-mini", "cuda/lna2.cu"), ("ohtani-tp8", "cuda/try.cu")],
)
def test_a_starter_fits_a_seat_of_another_kind(tmp_path: Path, seat: str, source: str) -> None:
    path = write_starter(make_workspace(tmp_path / "w"), "try", "kernel", seat)
    path.write_text(re.sub(r"<[^>\n]+>", "something", path.read_text(encoding="utf-8")), encoding="utf-8")
    assert check_file(path) == ()
    order = load_order(path).order
    assert isinstance(order, KernelOrder)
    assert order.candidate.sources == (f"kernels/{source}",), "a card runs what is written for it"


def test_only_a_survey_stands_nowhere(tmp_path: Path) -> None:
    path = write_starter(make_workspace(tmp_path / "w"), "try", "kernel", "none")
    path.write_text(re.sub(r"<[^>\n]+>", "something", path.read_text(encoding="utf-8")), encoding="utf-8")
    assert any("a survey stands there" in str(fault) for fault in check_file(path))


def test_what_no_starter_can_be(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "w")
    with pytest.raises(InputError, match="not a name"):
        write_starter(workspace, "../escape", "kernel", "fake")
    with pytest.raises(InputError, match="no starter"):
        write_starter(workspace, "other", "repair", "fake")


def test_a_workspace_is_not_made_over_other_files(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="not an empty folder"):
        make_workspace(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_an_unknown_seat_is_answered_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["seat", "noise", "nope"]) == 3
    assert "cpu-mini" in capsys.readouterr().err


def test_a_fault_of_the_program_is_never_a_failed_gate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(**_: object) -> int:
        raise ZeroDivisionError("no")

    monkeypatch.setattr("runner.cli.app", broken)
    assert run(["status"]) == 2
    assert "a fault of this program" in capsys.readouterr().err


def test_a_terminal_that_cannot_show_a_character_gets_it_written_out() -> None:
    words = [sys.executable, "-m", "runner.cli", "brief", str(ORDER), "--language", "ja"]
    told = subprocess.run(words, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}, check=True)
    assert b"\\u" in told.stdout
