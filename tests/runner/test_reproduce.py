"""A sealed plan run again by another key: on the toy seat for the flow, on made-up runs for what counts."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from runner import canon, ledger
from runner.attest.keys import PrivateKey
from runner.attest.statement import sign
from runner.attest.trust import load_trust, repository_file, signer_line, trust_key
from runner.cli import run
from runner.errors import StateError, TrustError
from runner.ledger import LEDGER
from runner.model.adoption import ReportName, Reproduction
from runner.model.report import ReportPredicate
from runner.reproduce import reproduce
from runner.reproduction import assurance_level, shape
from runner.session import open_run
from runner.steps.seal import changed_parts
from runner.steps.state import Silent
from runner.verify import verify
from runner.workflow import execute
from tests.runner.flow_orders import kernel_order, write_order
from tests.runner.records import SEED, START, digest_of, instant, make_run, publish, trust_of


def test_another_key_runs_the_plan_again_and_signs_what_came_out(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = home / "workspace"
    first = open_run(write_order(home, kernel_order(gates="")), progress=Silent())
    assert execute(first) == 0
    with pytest.raises(TrustError, match="cannot reproduce it"):
        reproduce(workspace, first.name, Silent())
    assert run(["keys", "trust", "runner", "--as", "demo-first", "--repository"]) == 0
    monkeypatch.setenv("CARVE_CONFIG", str(home / "another"))
    capsys.readouterr()
    assert run(["reproduce", first.name, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["agrees"]
    trust = load_trust(workspace)
    book = ledger.load(workspace, trust)
    entry = book.entries[verify(ledger.find_report(workspace, first.name), trust, workspace).digest]
    assert assurance_level(entry, book) == f"reproduced by runner:runner in run {told['run']}"
    again = book.entries[verify(ledger.find_report(workspace, told["run"]), trust, workspace).digest]
    assert assurance_level(again, book) == "self-attested"


def test_another_plan_is_not_run(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_run(write_order(home, kernel_order(gates="")), progress=Silent())
    assert execute(first) == 0
    assert run(["keys", "trust", "runner", "--as", "demo-first", "--repository"]) == 0
    monkeypatch.setenv("CARVE_CONFIG", str(home / "another"))
    monkeypatch.setattr("runner.graders.sha256_tree", lambda *_: digest_of("edited code"))
    with pytest.raises(StateError, match="not the report's") as refused:
        reproduce(home / "workspace", first.name, Silent())
    assert "subjects: tree.runner" in refused.value.found
    assert len(list((home / "workspace" / LEDGER).iterdir())) == 1, "nothing was announced"


@pytest.mark.usefixtures("rate_gate")
@pytest.mark.parametrize(
    ("forgery", "level"),
    [
        ("", "reproduced by runner:demo-second in run r2"),
        ("slower", "contradicted by runner:demo-second in run r2"),
        ("own key", "self-attested"),
        ("another's report", "self-attested"),
        ("another plan", "self-attested"),
        ("plan misnamed", "self-attested"),
        ("no second report", "self-attested"),
        ("same seed", "self-attested"),
        ("same evidence", "self-attested"),
        ("copy of another's", "self-attested"),
    ],
)
def test_what_counts_as_a_reproduction(
    *, workspace: Path, demo_runner: PrivateKey, tmp_path: Path, forgery: str, level: str
) -> None:
    second = PrivateKey.generate()
    trust_key(repository_file(workspace), signer_line("runner", "demo-second", second.public))
    publish(workspace, demo_runner, make_run(run="r1"), tmp_path / "a")
    signer = demo_runner if forgery == "own key" else second
    seed = SEED if forgery == "same seed" else bytes(32)
    if forgery == "copy of another's":
        third = PrivateKey.generate()
        trust_key(repository_file(workspace), signer_line("runner", "demo-third", third.public))
        honest = make_run(run="r3", seed=seed, started=START + timedelta(hours=1))
        publish(workspace, third, honest, tmp_path / "c")
    made = make_run(
        run="r2",
        seed=seed,
        started=START if forgery == "same evidence" else START + timedelta(hours=2),
        rates=("10", "9") if forgery == "slower" else ("10.0", "20.5"),
        pairs=7 if forgery == "another plan" else 6,
    )
    publish(workspace, demo_runner if forgery in ("own key", "another's report") else second, made, tmp_path / "b")
    names = {}
    for entry, report in ledger.load(workspace, trust_of(workspace)).of(ReportPredicate):
        names[report.run] = ReportName(run=report.run, order=report.order.name, digest=entry.digest)
    if forgery == "no second report":
        names["r2"] = names["r2"].model_copy(update={"digest": digest_of("nothing")})
    claim = Reproduction(
        created_at=instant(START.replace(day=3)),
        parents=(),
        report=names["r1"],
        again=names["r2"],
        plan=digest_of("other") if forgery == "plan misnamed" else shape(make_run().record.plan),
    )
    ledger.append(workspace, LEDGER, sign(claim, {"report": names["r1"].digest}, signer))
    book = ledger.load(workspace, trust_of(workspace))
    assert assurance_level(book.entries[names["r1"].digest], book) == level
    assert "run again" in canon.render(book)


@pytest.mark.usefixtures("rate_gate")
@pytest.mark.parametrize(
    ("runs", "level"),
    [
        ({"r2": ("10", "9"), "r3": ("10.0", "20.5")}, "reproduced by {} in run r3; contradicted by {} in run r2"),
        ({"r2": ("10.0", "20.5"), "r3": ("10.0", "20.5")}, "reproduced by {} in run r3"),
    ],
)
def test_nobody_chooses_which_run_was_the_reproduction(
    *, workspace: Path, demo_runner: PrivateKey, tmp_path: Path, runs: dict[str, tuple[str, str]], level: str
) -> None:
    """Two runs of the same plan, of which the second is claimed: where the first failed, that is said too."""
    second = PrivateKey.generate()
    trust_key(repository_file(workspace), signer_line("runner", "demo-second", second.public))
    publish(workspace, demo_runner, make_run(run="r1"), tmp_path / "a")
    own = make_run(run="r4", seed=b"4" * 32, started=START + timedelta(hours=1), rates=("10", "9"))
    publish(workspace, demo_runner, own, tmp_path / "own")
    for hours, (name, rates) in enumerate(runs.items(), 2):
        made = make_run(run=name, seed=bytes([hours]) * 32, started=START + timedelta(hours=hours), rates=rates)
        publish(workspace, second, made, tmp_path / name)
    names = {
        report.run: ReportName(run=report.run, order=report.order.name, digest=entry.digest)
        for entry, report in ledger.load(workspace, trust_of(workspace)).of(ReportPredicate)
    }
    claim = Reproduction(
        created_at=instant(START.replace(day=3)),
        parents=(),
        report=names["r1"],
        again=names["r3"],
        plan=shape(make_run().record.plan),
    )
    ledger.append(workspace, LEDGER, sign(claim, {"report": names["r1"].digest}, second))
    book = ledger.load(workspace, trust_of(workspace))
    assert assurance_level(book.entries[names["r1"].digest], book) == level.format(*2 * ["runner:demo-second"])


def test_two_plans_share_all_but_seed_and_what_is_compiled() -> None:
    plan = make_run().record.plan
    built = plan.model_copy(update={"seed_commitment": "1" * 64, "subjects": plan.subjects | {"library.x": "2" * 64}})
    moved = plan.model_copy(update={"pairs": 7})
    assert shape(built) == shape(plan) != shape(moved)
    assert changed_parts(plan, moved) == ["pairs"]
