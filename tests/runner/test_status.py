"""Where orders stand, what stands in the way, and a run seen from outside while it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner import status
from runner.attest.keys import PrivateKey
from runner.cli import run
from runner.craft.bench import Bench
from runner.craft.dispatch import dispatch
from runner.decide import Desk, adopt
from runner.errors import InputError, StateError, TrustError
from runner.graders import native_subjects
from runner.model.order import load_order
from runner.status import OrderStatus, order_states
from runner.steps.journal import Journal, events
from runner.watch import Picture, picture
from runner.workflow import STEPS
from tests.runner.craft.bench_kit import LIMITS, Kit, make_kit, order_text
from tests.runner.records import make_run, publish
from tests.runner.test_workflow import ask

ITEMS = """schema_version: 1
items:
  - {id: sanitizer, order: ORDER, what: memcheck was not run, owner: Luna, impact: blocks-adoption, opened: today}
  - {id: naming, order: ORDER, what: a better name, owner: Sol, impact: none, opened: "2026-11-30"}
"""
CLOSED = "impact: blocks-adoption, closed: {date: today, by: Luna, how: run on another host}"
SMALL = "  - {name: kld, parameters: {bound: 0.001}, windows: {documents: 20, tokens: 12, rows: 4}}\n"


LATE = "  - {name: knock-out, windows: {tokens: 8}}\n"


@pytest.fixture
def kit(home: Path) -> Kit:
    """A checkout, a workspace and a crew."""
    return make_kit(home)


def state(kit: Kit) -> OrderStatus:
    """The one order of the workspace."""
    (found,) = order_states(kit.workspace)
    return found


def test_every_stage_of_an_order_has_its_next_action(kit: Kit, capsys: pytest.CaptureFixture[str]) -> None:
    bench = Bench.of(load_order(kit.order))
    assert (state(kit).stage, state(kit).next) == (
        "ready",
        "runner dispatch orders/small-lna2.yaml --to NAME --execute",
    )
    kit.crew("talks", limits=LIMITS.replace("}", ", attempts: 1}"))
    dispatch(kit.given())
    assert state(kit).stage == "refused"
    assert state(kit).detail.startswith("attempt 1: no-change")
    kit.crew("honest", limits=LIMITS.replace("}", ", attempts: 2}"))
    dispatch(kit.given())
    assert state(kit).stage == "frozen"
    assert state(kit).next == "runner dispatch orders/small-lna2.yaml --to crafter --execute"
    with bench.hold():
        assert (state(kit).stage, state(kit).detail) == ("at work", "attempt 3 by crafter")
    kit.order.write_text(kit.order.read_text() + "# another text\n")
    clone = dispatch(kit.given("maker"))
    assert (state(kit).stage, state(kit).detail) == ("at work", f"attempt 1 by maker, in {clone}")
    assert state(kit).next == "runner dispatch orders/small-lna2.yaml --to maker --hand-in --execute"
    kit.order.write_text(order_text(gates="  - {name: needle}\n").replace("kind: kernel", "kind: wish"))
    assert state(kit).stage == "malformed"
    kit.order.write_text(order_text().replace("pack: toy", "pack: other"))
    assert (state(kit).stage, state(kit).next) == ("draft", "runner check orders/small-lna2.yaml")
    capsys.readouterr()
    assert run(["status"]) == 0
    assert "draft" in capsys.readouterr().out


def test_a_kill_line_stops_the_work(kit: Kit, capsys: pytest.CaptureFixture[str]) -> None:
    kit.order.write_text(order_text(gates=SMALL + LATE) + "kill_lines:\n  - gate: kld\n")
    kit.crew("learns")
    dispatch(kit.given())
    candidate = Bench.of(load_order(kit.order)).folder / "candidate.json"
    code, answer = ask(capsys, "execute", str(kit.order), "--candidate", str(candidate))
    assert code == 1
    assert (state(kit).stage, state(kit).next) == ("killed", "a new version of the order")
    with pytest.raises(StateError, match="a kill line struck"):
        dispatch(kit.given())
    capsys.readouterr()
    for words in ([], ["--candidate", str(candidate)]):
        assert run(["execute", str(kit.order), *words, "--quiet"]) == 2
        assert f"kld FAIL or INVALID in run {answer['run']}" in capsys.readouterr().err
    seen = picture(Path(answer["report"]).name)
    assert (seen.ended, seen.step, seen.notes) == (True, "reported FAIL", ("kill line kld struck",))
    capsys.readouterr()
    assert run(["watch"]) == 0
    out = capsys.readouterr().out
    assert "reported FAIL" in out
    assert out.endswith("\n")
    assert " ".join(out.split()).startswith(
        "nothing runs now, and no craftsperson is at work. Begin in another terminal"
    )
    assert run(["watch", answer["run"]]) == 0
    assert "nothing runs now" not in capsys.readouterr().out
    capsys.readouterr()
    assert run(["review", answer["run"]]) == 0
    out = capsys.readouterr().out
    assert "Attempts" in out
    assert "under test" in out


def test_a_line_that_ships_the_work_off_is_told(kit: Kit, capsys: pytest.CaptureFixture[str]) -> None:
    line = '{gate: kld, metric: incumbent against itself, op: ">=", value: 0, action: ship-off}'
    kit.order.write_text(order_text(gates=SMALL) + f"kill_lines: [{line}]\n")
    kit.crew("honest")
    dispatch(kit.given())
    candidate = Bench.of(load_order(kit.order)).folder / "candidate.json"
    code, answer = ask(capsys, "execute", str(kit.order), "--candidate", str(candidate))
    assert code == 0
    assert state(kit).stage == "judged"
    assert "; kill line kld incumbent against itself >= 0 struck: ship-off" in state(kit).detail
    assert run(["review", answer["run"]]) == 0
    assert "Kill lines that struck" in capsys.readouterr().out


def test_a_run_is_seen_while_it_goes_on_and_when_it_was_stopped(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Picture] = []

    def stop(_: object) -> int:
        seen.append(picture())
        assert state(kit).stage == "running"
        raise StateError("stopped by the test")

    monkeypatch.setattr("runner.workflow.execute.__defaults__", ((*STEPS[:4], stop),))
    assert run(["execute", str(kit.order), "--quiet"]) == 2
    (during,) = seen
    assert (during.ended, during.done, during.windows > 3) == (False, 0, True)
    assert during.seconds_left is not None
    assert during.seconds_left > 10


def test_nothing_and_nobody_to_watch(kit: Kit) -> None:
    with pytest.raises(StateError, match="nothing runs now, and no craftsperson is at work") as caught:
        picture()
    assert "runner execute ORDER" in caught.value.next_step
    with pytest.raises(InputError, match="no such run"):
        picture("yesterday")


def test_a_journal_is_read_without_being_mended(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(path).write("one", n=1)
    torn = path.read_bytes() + b'{"event":"tw'
    path.write_bytes(torn)
    assert [event.kind for event in events(path)] == ["one"]
    assert path.read_bytes() == torn
    assert [event.kind for event in Journal(path).of("one")] == ["one"]
    assert path.read_bytes() != torn


@pytest.mark.usefixtures("rate_gate")
def test_an_open_item_stands_in_the_way_of_adoption(
    workspace: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey, tmp_path: Path
) -> None:
    made = make_run()
    publish(workspace, demo_runner, made, tmp_path / "state")
    items = workspace / "orders" / "open-items.yaml"
    items.parent.mkdir(exist_ok=True)
    items.write_text(ITEMS.replace("ORDER", made.record.plan.order))
    with pytest.raises(TrustError, match="cannot be adopted") as caught:
        adopt(Desk.open(workspace, demo_adopter), made.record.run, "faster")
    assert caught.value.found == "open item sanitizer: memcheck was not run (Luna)"
    items.write_text(ITEMS.replace("ORDER", made.record.plan.order).replace("impact: blocks-adoption", CLOSED))
    assert adopt(Desk.open(workspace, demo_adopter), made.record.run, "faster").is_file()


def test_a_report_of_other_sources_says_so(
    kit: Kit, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executed without a frozen candidate, so what was judged are this checkout's own kernels."""
    ask(capsys, "execute", str(kit.order))
    assert "has changed" not in state(kit).detail
    monkeypatch.setattr(status, "native_subjects", lambda: {**native_subjects(), "sources.cpu": "0" * 64})
    assert "; kernels/cpu has changed since" in state(kit).detail
