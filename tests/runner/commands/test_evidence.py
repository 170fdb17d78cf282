"""``reports``, ``review`` and ``verify`` as a person types them."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from runner.attest.keys import PrivateKey
from runner.commands import canon, decisions, evidence
from runner.decide import Desk
from runner.errors import InputError, TrustError
from runner.gates.registry import Withdrawn
from runner.paths import source_root
from tests.runner.records import START, announce, make_run, make_workspace, publish, with_too_much_evidence

pytestmark = pytest.mark.usefixtures("rate_gate", "private_home")
APP = typer.Typer()
evidence.register(APP)
decisions.register(APP)
canon.register(APP)


def call(*arguments: str | Path, code: int = 0) -> str:
    """Output of a command that ends with ``code``; an error of ours is raised as it is."""
    result = CliRunner().invoke(APP, [str(each) for each in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def here(workspace: Path, demo_runner: PrivateKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One report that passes, one that fails, one intent without a report."""
    for number, rates in enumerate((("10", "20"), ("10", "9"))):
        run = make_run(run=f"r{number}", rates=rates, started=START + timedelta(hours=number))
        publish(workspace, demo_runner, run, tmp_path / "state")
    announce(workspace, make_run(run="r2", started=START + timedelta(hours=2)), demo_runner)
    monkeypatch.chdir(workspace)
    return workspace


def test_reports_are_listed_with_what_became_of_them(here: Path) -> None:
    listed = json.loads(call("reports", "--json"))
    assert [(each["run"], each["verdict"], each["state"], each["tries"]) for each in listed] == [
        ("r0", "PASS", "pending", 3),
        ("r1", "FAIL", "pending", 3),
        ("r2", "ABANDONED", "abandoned", 3),
    ]
    assert "r2" not in call("reports", "--pending")
    assert json.loads(call("reports", "--rejected", "--json")) == []
    assert here.exists()


def test_two_reports_exchanged_are_refused_by_every_reader(
    here: Path, demo_adopter: PrivateKey, tmp_path: Path
) -> None:
    first, second, aside = here / "reports/mini-lna2/r0", here / "reports/mini-lna2/r1", tmp_path / "aside"
    first.rename(aside)
    second.rename(first)
    aside.rename(second)
    for folder in (first, second, second / "report.dsse.json"):
        assert "in another place than its own" in call("verify", folder, code=3)
    for command in (("reports",), ("review", "r0")):
        with pytest.raises(TrustError, match="in another place than its own"):
            call(*command)
    with pytest.raises(TrustError, match="in another place than its own"):
        Desk.open(here, demo_adopter)
    second.rename(aside)
    assert "order mini-lna2, run r0, seat cpu-mini (cpu)" in call("verify", aside)


def test_a_run_at_work_is_running_and_not_abandoned(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARVE_STATE", str(tmp_path / "own"))
    lock = tmp_path / "own/runs/r2/lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        states = {each["run"]: (each["verdict"], each["state"]) for each in json.loads(call("reports", "--json"))}
    assert states["r2"] == ("RUNNING", "running")
    assert states["r0"] == ("PASS", "pending") and here.exists()


def test_a_place_that_is_not_there_is_named_and_not_made(here: Path, tmp_path: Path) -> None:
    for place in (tmp_path / "none/x.html", tmp_path):
        with pytest.raises(InputError, match="no place for a page"):
            call("review", "r0", "--html", place)
        with pytest.raises(InputError, match="no place for a card"):
            call("card", here, "--output", place)
    with pytest.raises(InputError, match="no place for a copy"):
        call("product", "r0", "--to", tmp_path / "none/pack")
    assert not (tmp_path / "none").exists()
    with pytest.raises(InputError, match="no file of signers"):
        call("verify", here / "reports", "--allowed-signers", tmp_path / "none")


def test_verify_says_whence_trust_comes(here: Path) -> None:
    text = call("verify", here / "reports/mini-lna2/r0")
    assert f"trusted by {here / 'canon/allowed_signers'}:1 (for everybody with that repository)" in text
    assert "verdict PASS" in text
    deep = call("verify", here / "reports", "--deep")
    assert deep.count("authentic") == 2 and "read again from the committed extracts: 24 samples" in deep


@pytest.mark.parametrize(("run", "code"), [("r0", 0), ("r1", 1)])
def test_require_pass_maps_the_verdict(here: Path, run: str, code: int) -> None:
    folder = here / "reports/mini-lna2" / run
    call("verify", folder)
    call("verify", folder, "--require", "pass", code=code)
    with pytest.raises(InputError, match="no such requirement"):
        call("verify", folder, "--require", "fail")


def test_one_bad_report_among_many_is_named_and_decides_the_exit(here: Path) -> None:
    path = here / "reports/mini-lna2/r0/report.dsse.json"
    path.write_bytes(path.read_bytes().replace(b"A", b"B", 1))
    answers = json.loads(call("verify", here / "reports", "--json", code=3))
    assert ["error" in each for each in answers] == [True, False]
    assert "REFUSED" in call("verify", path, code=3)


def test_verify_with_a_file_of_signers_and_a_named_workspace(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    signers = here / "canon/allowed_signers"
    (folder := tmp_path / "copied").mkdir()
    (folder / "report.dsse.json").write_bytes((here / "reports/mini-lna2/r0/report.dsse.json").read_bytes())
    (folder / "evidence.tar.xz").write_bytes((here / "reports/mini-lna2/r0/evidence.tar.xz").read_bytes())
    text = call("verify", folder, "--allowed-signers", signers, "--workspace", here)
    assert f"trusted by {signers}:1 (a file of yours, or named by you)" in text
    assert "intent is missing" in call("verify", folder, "--allowed-signers", signers, code=3)


def test_a_named_workspace_that_is_none_is_said_to_be_none(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = here / "reports/mini-lna2/r0"
    for named in (tmp_path, tmp_path / "none", here / "reports"):
        with pytest.raises(InputError, match="not a workspace"):
            call("verify", report, "--workspace", named)
    monkeypatch.setenv("CARVE_WORKSPACE", str(tmp_path))
    assert "not a workspace" in call("verify", report, code=3)
    for words in (("reports",), ("canon",)):
        with pytest.raises(InputError, match="not a workspace"):
            call(*words)
    assert not (tmp_path / "canon").exists()


def test_a_withdrawn_gate_is_said_and_still_verifies(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Withdrawn(kind="gate", name="speed", version=1, date="2026-11-20", reason="averaged warm-up blocks")
    monkeypatch.setattr("runner.judge.withdrawn", lambda: (gone,))
    assert "withdrawn since: gate speed@1: 2026-11-20, averaged" in call("verify", here / "reports/mini-lna2/r0")


def test_deep_without_all_evidence_is_undecided(workspace: Path, demo_runner: PrivateKey, tmp_path: Path) -> None:
    """Who trusts the exit code is not told that everything was read again."""
    run, name = with_too_much_evidence(make_run())
    folder = publish(workspace, demo_runner, run, tmp_path / "state")
    call("verify", folder, "--workspace", workspace)
    assert Path(name).stem in call("verify", folder, "--workspace", workspace, "--deep", code=2)


def test_verify_of_nothing_is_an_input_error(here: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no report here"):
        call("verify", tmp_path / "empty")
    assert here.exists()


def test_review_in_the_terminal_as_a_page_and_as_json(here: Path, tmp_path: Path) -> None:
    assert "page.html" in call("review", "r0", "--html", tmp_path / "page.html")
    text = call("review", "r0")
    assert "Verdicts" in text and "try 3" in text
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    content = json.loads(call("review", here / "reports/mini-lna2/r1", "--json"))
    assert (content["verdict"], content["tries"], len(content["record"]["samples"])) == ("FAIL", 3, 24)


def test_review_refuses_what_does_not_verify(here: Path) -> None:
    path = here / "reports/mini-lna2/r0/evidence.tar.xz"
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(TrustError, match="another evidence archive"):
        call("review", "r0")


def test_the_commands_import_nothing_but_typer() -> None:
    script = (
        "import sys, typer; before = set(sys.modules);"
        "from runner.commands import decisions, evidence;"
        "foreign = {name.split('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names;"
        "print(sorted(foreign - {'runner'}))"
    )
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, cwd=source_root(), check=True, capture_output=True, text=True)
    assert result.stdout.strip() == "[]"


def test_names_to_copy_are_whole_on_a_narrow_terminal(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    lines = call("reports").splitlines()
    assert lines[0].startswith("run  order ")
    assert [line.split()[0] for line in lines if "pending" in line] == ["r0", "r1"]


def test_a_folder_that_brings_its_own_signers_does_not_vouch_for_itself(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever made it wrote that file too; a user who compared the key names it."""
    call("verify", here / "reports/mini-lna2/r0")
    make_workspace(mine := tmp_path / "mine")
    monkeypatch.chdir(mine)
    path, signers = here / "reports/mini-lna2/r0", here / "canon/allowed_signers"
    refused = call("verify", path, code=3)
    assert f"{signers} came with the report and does not vouch for it" in refused
    assert f"runner verify --trust {signers} {path}" in refused
    with pytest.raises(TrustError, match="nobody here trusts"):
        call("review", path)
    assert f"trusted by {signers}:1 (a file of yours, or named by you)" in call("verify", "--trust", signers, path)
    assert "trusted by" in call("verify", "--workspace", here, path)
    call("review", path, "--trust", signers)
    shutil.copytree(here, mine / "reports" / "brought")
    assert "does not vouch for it" in call("verify", mine / "reports", code=3)


@pytest.mark.parametrize(("now", "said"), [("2020-01-01T00:00:00.000000Z", True), ("2099-01-01T00:00:00Z", False)])
def test_a_date_still_to_come_is_said(here: Path, monkeypatch: pytest.MonkeyPatch, now: str, said: bool) -> None:
    """A report is as authentic as before on a machine whose clock is behind."""
    monkeypatch.setattr("runner.clock.now", lambda: now)
    assert ("still to come on this machine's clock" in call("verify", here / "reports/mini-lna2/r0")) is said
