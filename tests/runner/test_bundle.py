"""Bundles that are refused as a whole, each beside the honest one that is signed."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from runner import archive, host, session
from runner.away import FILES, JOURNAL, NAMES
from runner.cli import run as command
from runner.digest import canonical_json, sha256_bytes
from runner.errors import AbsentError, SeatError
from runner.model.host import this_host
from runner.paths import state_home
from runner.steps import report as report_step
from runner.steps.journal import events
from runner.steps.seats import load_manifest
from runner.workspace import make_workspace
from tests.runner.flow_orders import QUALITY, kernel_order

Contents = dict[str, bytes]
Change = Callable[[dict[str, Any], Contents], None]


def surroundings(home: Path, patch: pytest.MonkeyPatch) -> None:
    """A workspace, state and key of one test, and the toy seat as if it stood elsewhere."""
    away = load_manifest("fake").model_copy(update={"away": True})
    patch.setattr(session, "load_manifest", lambda name: away)
    for variable, folder in (("STATE", "state"), ("CONFIG", "config"), ("WORKSPACE", "workspace")):
        patch.setenv(f"CARVE_{variable}", str(home / folder))


@pytest.fixture(scope="module")
def planned_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``execute`` left, its job carried into a folder of its own."""
    home = tmp_path_factory.mktemp("planned") / "home"
    make_workspace(home / "workspace")
    (home / "order.yaml").write_text(kernel_order(), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        surroundings(home, patch)
        assert command(["execute", str(home / "order.yaml"), "--quiet"]) == 2
        shutil.copytree(run_folder() / "job", home / "host" / "job")
    return home


@pytest.fixture(scope="module")
def measured_once(planned_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, measured whole."""
    home = Path(shutil.copytree(planned_once, tmp_path_factory.mktemp("measured") / "home"))
    assert host.main([str(home / "host" / "job")]) == 0
    return home


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Of one test."""
    return tmp_path / "home"


@pytest.fixture
def planned(planned_once: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job that is still to be measured."""
    shutil.copytree(planned_once, home)
    surroundings(home, monkeypatch)
    return home / "host" / "job"


@pytest.fixture
def job(measured_once: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job that is measured whole."""
    shutil.copytree(measured_once, home)
    surroundings(home, monkeypatch)
    return home / "host" / "job"


def sealed(job: Path, *words: str) -> int:
    name = json.loads((job / "candidate.json").read_bytes())["run"]
    return command(["seal", name, str(job / "bundle"), "--quiet", *words])


def changed(job: Path, change: Change) -> None:
    """Another bundle, whole in itself: its names and digests are those of what it holds after ``change``."""
    folder = job / "bundle"
    told = json.loads((folder / NAMES).read_bytes())
    contents = archive.read((folder / FILES).read_bytes(), told["files"], "bundle")
    change(told, contents)
    told["files"] = {name: sha256_bytes(data) for name, data in contents.items()}
    (folder / NAMES).write_bytes(canonical_json(told))
    (folder / FILES).write_bytes(archive.build(contents, 1 << 30).data)


def run_folder() -> Path:
    (folder,) = (state_home() / "runs").iterdir()
    return folder


def is_as_it_was() -> bool:
    """Nothing was signed, nothing of the bundle lies in the run's folder, and the honest bundle can still be sealed."""
    left = [name for name in ("boots", "evidence", "logs", "record.json", "draft") if (run_folder() / name).exists()]
    kinds = {event.kind for event in events(run_folder() / JOURNAL)}
    signed = list((state_home().parent / "workspace" / "reports").glob("*/*/report.dsse.json"))
    return not left and not signed and not kinds & {"bundle-taken-in", "boot-ended", "window-closed", "reported"}


def boots_of(contents: Contents) -> list[str]:
    return sorted(name for name in contents if name.startswith("boots/"))


def edited(contents: Contents, name: str, **fields: Any) -> None:
    contents[name] = canonical_json(json.loads(contents[name]) | fields)


def test_an_honest_bundle_is_signed_once(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sealed(job, "--json") == 0
    report = json.loads(capsys.readouterr().out)["report"]
    assert command(["verify", report, "--deep", "--require", "pass"]) == 0
    before = {path: path.read_bytes() for path in run_folder().rglob("*.json")}
    assert sealed(job) == 2
    assert "signed already" in capsys.readouterr().err
    assert before == {path: path.read_bytes() for path in run_folder().rglob("*.json")}


WAYS_OUT = (
    "{victim}/evidence/x.json",
    "{victim}/boots/x.json",
    "../../victim/evidence/x.json",
    "evidence/../../x.json",
    "evidence/{window}.json/../y.json",
    "evidence//{window}.json",
    "./evidence/{window}.json",
    "evidence/./{window}.json",
    "evidence/{window}.json\n",
    "evidence/{window}\\x.json",
    "evidence/{window}é.json",
    "evidence/ .json",
    "evidence/no-such-window.json",
    "evidence/kept/{window}.1.json",
    "evidence/disturbed/{window}.0.json",
    "evidence/restore.json",
    "Evidence/{window}.json",
    "boots/{boot}.JSON",
    "boots/{boot}/x.json",
    "boots/no-such-boot-0123abcd.json",
    "logs/{boot}.json",
    "logs/../seed",
    "seed",
    "plan.json",
    "journal.jsonl/x",
)


def _with(name: str, told: dict[str, Any], contents: Contents) -> None:
    contents[name] = b"yours"


def test_no_name_leads_anywhere_else(job: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    victim = home / "victim"
    (victim / "evidence").mkdir(parents=True)
    (victim / "evidence" / "x.json").write_text("mine")
    whole = shutil.copytree(job / "bundle", home / "whole")
    told = json.loads((whole / NAMES).read_bytes())
    window = next(name for name in told["files"] if name.startswith("evidence/")).split("/")[-1].removesuffix(".json")
    boot = next(name for name in told["files"] if name.startswith("boots/")).split("/")[-1].removesuffix(".json")
    for way in WAYS_OUT:
        name = way.format(victim=victim, window=window, boot=boot)
        shutil.rmtree(job / "bundle")
        shutil.copytree(whole, job / "bundle")
        if "{victim}" in way:
            changed(job, partial(_with, name))
        else:  # names are looked at before the archive, which need not be packed anew
            told["files"][name] = sha256_bytes(b"yours")
            (job / "bundle" / NAMES).write_bytes(canonical_json(told))
        told["files"].pop(name, None)
        assert sealed(job) == 3, way
        assert "no measurement leaves" in capsys.readouterr().err, way
        assert is_as_it_was(), way
    assert (victim / "evidence" / "x.json").read_text() == "mine"
    shutil.rmtree(job / "bundle")
    shutil.copytree(whole, job / "bundle")
    assert sealed(job) == 0


def test_a_bundle_has_one_reading_and_is_no_link(job: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = job / "bundle" / NAMES
    whole = names.read_bytes()
    names.write_bytes(whole.replace(b'{"files":{', b'{"files":{},"files":{', 1))
    assert sealed(job) == 3
    assert "twice" in capsys.readouterr().err
    names.write_bytes(b'{"files":[]}')
    assert sealed(job) == 3
    names.unlink()
    (home / "elsewhere").write_bytes(whole)
    names.symlink_to(home / "elsewhere")
    assert sealed(job) == 3
    assert "no bundle here" in capsys.readouterr().err
    names.unlink()
    names.write_bytes(whole)
    assert sealed(job) == 0


def other_code(told: dict[str, Any], contents: Contents) -> None:
    name = next(name for name in boots_of(contents) if json.loads(contents[name])["ranks"])
    ranks = json.loads(contents[name])["ranks"]
    ranks[0]["trees"] = {"plugin": "0" * 64}
    edited(contents, name, ranks=ranks)


def another_id(told: dict[str, Any], contents: Contents) -> None:
    edited(contents, boots_of(contents)[0], id="incumbent-ffffffff")


def another_window(told: dict[str, Any], contents: Contents) -> None:
    first, second = [name for name in sorted(contents) if name.startswith("evidence/")][:2]
    contents[first] = contents[second]


def without_its_boot(told: dict[str, Any], contents: Contents) -> None:
    del contents[boots_of(contents)[0]]


def no_record(told: dict[str, Any], contents: Contents) -> None:
    contents[boots_of(contents)[0]] = b"[]"


def broken_journal(told: dict[str, Any], contents: Contents) -> None:
    contents[JOURNAL] += b'{"event":"boot-ended"}\n'


def another_host(told: dict[str, Any], contents: Contents) -> None:
    edited(contents, boots_of(contents)[-1], host="0" * 64)


def host_of_none(told: dict[str, Any], contents: Contents) -> None:
    record = json.loads(contents[boots_of(contents)[-1]])
    del record["host"]
    contents[boots_of(contents)[-1]] = canonical_json(record)


def no_host(told: dict[str, Any], contents: Contents) -> None:
    del told["host"]


def host_of_another(told: dict[str, Any], contents: Contents) -> None:
    told["host"] |= {"node": "another"}


def two_hosts_in_the_journal(told: dict[str, Any], contents: Contents) -> None:
    line = {"event": "measuring", "at": "2026-11-30T00:00:00.000000Z", "seconds": "", "host": "0" * 64}
    contents[JOURNAL] += canonical_json(line) + b"\n"


def no_host_in_the_journal(told: dict[str, Any], contents: Contents) -> None:
    lines = contents[JOURNAL].splitlines(keepends=True)
    contents[JOURNAL] = b"".join(line for line in lines if b'"measuring"' not in line)


def another_device(told: dict[str, Any], contents: Contents) -> None:
    served = [name for name in boots_of(contents) if json.loads(contents[name])["ranks"]]
    ranks = json.loads(contents[served[-1]])["ranks"]
    ranks[0]["devices"] = ["GPU-another"]
    edited(contents, served[-1], ranks=ranks)


REFUSED = (
    (other_code, "another library"),
    (another_id, "another's name"),
    (another_window, "another window's name"),
    (without_its_boot, "not in the bundle"),
    (no_record, "no record"),
    (broken_journal, "lacks a fact"),
    (another_host, "two machines"),
    (host_of_none, "two machines"),
    (no_host, "does not say what it is"),
    (host_of_another, "two machines"),
    (two_hosts_in_the_journal, "two machines"),
    (no_host_in_the_journal, "two machines"),
    (another_device, "boots of two machines in one report"),
)


def test_what_was_not_measured_so_is_refused(job: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = shutil.copytree(job / "bundle", home / "whole")
    for change, words in REFUSED:
        changed(job, change)
        assert sealed(job) == 3, change.__name__
        assert words in capsys.readouterr().err, change.__name__
        assert is_as_it_was(), change.__name__
        shutil.rmtree(job / "bundle")
        shutil.copytree(whole, job / "bundle")
    assert sealed(job) == 0


def test_seal_refuses_what_verify_refuses(job: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A boot's time is compared by verification alone."""
    whole = shutil.copytree(job / "bundle", home / "whole")
    changed(job, lambda _, contents: edited(contents, boots_of(contents)[0], started_at="2020-01-01T00:00:00Z"))
    assert sealed(job) == 3
    assert "a boot of another time" in capsys.readouterr().err
    assert is_as_it_was()
    shutil.rmtree(job / "bundle")
    shutil.copytree(whole, job / "bundle")
    assert sealed(job) == 0
    assert not (run_folder() / report_step.DRAFT).exists()


def test_a_kill_line_strikes_by_the_evidence_alone(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def killed(told: dict[str, Any], contents: Contents) -> None:
        lines = contents[JOURNAL].splitlines(keepends=True)
        last = next(line for line in reversed(lines) if b'"boot-ended"' in line)
        killed = {"event": "killed", "at": "2026-11-30T00:00:00.000000Z", "gate": "speed"}
        contents[JOURNAL] = b"".join(line for line in lines if line != last) + canonical_json(killed) + b"\n"

    changed(job, killed)
    assert sealed(job) == 3
    assert "the bundle is not whole" in capsys.readouterr().err
    assert is_as_it_was()
    assert sealed(job, "--partial") in (0, 1, 2)
    assert list((state_home().parent / "workspace" / "reports").glob("*/*/report.dsse.json"))


def test_a_kill_line_that_struck_there_strikes_here(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The honest neighbour: boots are missing because the gate failed, and the bundle is sealed as it is."""
    make_workspace(home / "workspace")
    late = "  - {name: knock-out, windows: {tokens: 8}}\n"
    text = kernel_order("half-k", gates=QUALITY + late) + "kill_lines:\n  - gate: kld\n"
    (home / "order.yaml").write_text(text, encoding="utf-8")
    surroundings(home, monkeypatch)
    assert command(["execute", str(home / "order.yaml"), "--quiet"]) == 2
    job = run_folder() / "job"
    assert host.main([str(job)]) == 0
    assert "killed" in {event.kind for event in events(job / JOURNAL)}
    capsys.readouterr()
    assert sealed(job, "--json") == 1
    verdicts = {one["gate"]: one["status"] for one in json.loads(capsys.readouterr().out)["verdicts"]}
    assert (verdicts["kld@1"], verdicts["knock-out@1"]) == ("FAIL", "NOT_RUN")


def test_a_note_that_was_removed_is_missed(
    planned: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert host.main([str(planned), "0"]) == 2
    note = (planned / "host.json").read_bytes()
    (planned / "host.json").unlink()
    capsys.readouterr()
    assert host.main([str(planned)]) == 3
    assert "no host.json" in capsys.readouterr().err
    here = this_host()
    monkeypatch.setattr(host, "this_host", lambda: here.model_copy(update={"boot": "another"}))
    (planned / "host.json").write_bytes(canonical_json(here.model_copy(update={"boot": "another"}).model_dump()))
    assert host.main([str(planned)]) == 3  # the journal tells where it began
    monkeypatch.setattr(host, "this_host", lambda: here.model_copy(update={"python": "3.99"}))
    (planned / "host.json").write_bytes(note)
    assert host.main([str(planned)]) == 0  # the same machine, whatever Python measures
    assert sealed(planned) == 0


def test_the_report_describes_the_machine_that_measured(
    planned: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = this_host().model_copy(update={"kernel": "6.99-elsewhere", "processors": 96, "machine": "aarch64"})
    monkeypatch.setattr(host, "this_host", lambda: elsewhere)
    assert host.main([str(planned)]) == 0
    capsys.readouterr()
    assert sealed(planned, "--json") == 0
    told = json.loads((run_folder() / "record.json").read_bytes())["environment"]
    assert told == elsewhere.environment != this_host().environment
    assert "6.99-elsewhere" in (Path(json.loads(capsys.readouterr().out)["report"]) / "report.md").read_text()


def test_a_machine_without_the_seat_measures_nothing(
    planned: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = load_manifest("fake").model_copy(update={"adapter": "process", "distribution": "no-such-engine==1.0"})
    monkeypatch.setattr(host, "load_manifest", lambda name: elsewhere)
    assert host.main([str(planned)]) == 2
    assert "the seat's engine is not installed" in capsys.readouterr().err
    of_gpus = load_manifest("h200-mini")
    monkeypatch.setattr(host, "load_manifest", lambda name: of_gpus)
    monkeypatch.setattr(host, "installed_engine", lambda distribution: {})
    monkeypatch.setattr(host, "visible_gpus", lambda: "0")
    assert host.main([str(planned)]) == 2
    assert "no GPU here" in capsys.readouterr().err
    assert not (planned / "bundle").exists()
    assert not (planned / "boots").exists()


def test_an_engine_without_a_gpu_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "installed_engine", lambda distribution: {})
    seat = load_manifest("h200-mini")
    for answer in ("0", "ModuleNotFoundError: No module named 'torch'", "nothing"):
        monkeypatch.setattr(host, "visible_gpus", lambda answer=answer: answer)
        with pytest.raises(AbsentError, match="no GPU"):
            host.require_seat(seat)
    monkeypatch.setattr(host, "visible_gpus", lambda: "2")
    host.require_seat(seat)
    host.require_seat(load_manifest("fake"))


def test_an_engine_that_never_answered_is_no_whole_bundle(
    planned: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every boot ended, as each died before it answered: the host says so, and it is signed only as a part."""
    monkeypatch.setattr("serve.adapters.fake.FakeSeat.boot", dying)
    assert host.main([str(planned)]) == 2
    assert "no engine answered" in capsys.readouterr().err
    assert sealed(planned) == 3
    assert "no boot in which an engine answered" in capsys.readouterr().err
    assert is_as_it_was()
    assert sealed(planned, "--partial") == 2


def dying(*_: object) -> None:
    raise SeatError("the engine did not come up", found="no CUDA device")


def absent(*_: object) -> None:
    raise AbsentError("the seat's engine is not installed")


def test_an_absent_engine_is_no_refusal(
    planned: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("serve.adapters.fake.FakeSeat.boot", absent)
        assert host.main([str(planned)]) == 2
    assert "expected" not in capsys.readouterr().err
    assert not list((planned / "boots").glob("*"))
    assert host.main([str(planned), "0"]) == 2  # the job goes on where the engine is there


def test_a_process_counts_what_torch_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(words, 0, "a warning\n4\n", "")

    monkeypatch.setattr(subprocess, "run", asked)
    assert host.visible_gpus() == "4"
