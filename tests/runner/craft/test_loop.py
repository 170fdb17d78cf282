"""One command from the brief to a report that passes: attempts, runs, and refusals that become the next brief."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from importlib.metadata import distribution, version
from pathlib import Path
from typing import Any

import pytest

from recipe.patch_set import Edit, FilePatch, Patch, patched
from runner.attest.trust import load_trust
from runner.check import check_file
from runner.craft.bench import Bench
from runner.craft.dispatch import Dispatch, dispatch, settled
from runner.craft.loop import carry_out
from runner.digest import sha256_bytes, sha256_json
from runner.errors import InputError, SeatError, StateError
from runner.model.attempt import Attempt
from runner.model.order import load_order
from runner.model.verdict import Status
from runner.paths import source_root, state_home
from runner.session import runs
from runner.status import order_states
from runner.steps.boots import DISTURBED, TOO_BUSY
from runner.steps.state import Run, Silent
from runner.verify import read_report, verify
from runner.workflow import STEPS
from serve.adapters.fake import FakeSeat
from tests.runner.craft.bench_kit import LIMITS, Kit, git, order_text
from tests.runner.flow_orders import HEAD
from tests.runner.test_workflow import ask

SMALL = "  - {name: kld, parameters: {bound: 0.001}, windows: {documents: 20, tokens: 12, rows: 4}}\n"


@pytest.fixture
def small(kit: Kit) -> Kit:
    """The order with one gate that looks at the text."""
    kit.order.write_text(order_text(gates=SMALL))
    return kit


def attempts(number: int) -> str:
    return LIMITS.replace("}", f", attempts: {number}}}")


def loop(
    kit: Kit, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *more: str
) -> tuple[int, dict[str, Any]]:
    """The command, with the kit's small checkout as the one that is cloned."""
    with monkeypatch.context() as patched:
        patched.setattr(
            "runner.craft.loop.carry_out", lambda given, seat: carry_out(replace(given, checkout=kit.checkout), seat)
        )
        return ask(capsys, "dispatch", str(kit.order), "--to", "crafter", "--execute", *more)


def test_two_failed_attempts_and_one_that_passes_are_in_the_signed_report(
    small: Kit, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small.crew("learns", limits=attempts(4))
    code, answer = loop(small, capsys, monkeypatch)
    assert (code, len(answer["attempts"])) == (0, 3), answer
    folder, trust = Path(answer["report"]), load_trust(small.workspace)
    assert verify(folder, trust, small.workspace, deep=True).verdict is Status.PASS
    signed, report, _ = read_report(folder, trust)
    assert report.craft is not None
    one, two, three = report.craft.attempts
    assert one.judged and one.judged.refused == {"kld": Status.FAIL}
    assert one.judged.reasons[0].startswith("kld FAIL: kld-candidate: mean KL up to")
    assert (two.commit, [finding.kind for finding in two.findings]) == (None, ["outside-allowed"])
    assert (three.findings, three.changed, three.tree) == (
        (),
        ("kernels/cpu/toy.txt",),
        signed.subjects["candidate.tree"],
    )
    assert signed.subjects["craft.history"] == sha256_json(report.craft.model_dump(mode="json"))
    told = (folder / "report.md").read_text()
    assert "runner/gates/speed.py" in told
    assert "mean KL" in told
    assert git(small.checkout, "status", "--porcelain") == ""
    assert loop(small, capsys, monkeypatch)[0] == 2
    with pytest.raises(StateError, match="finished"):
        dispatch(small.given())


def test_attempts_end_with_the_last_one_allowed(
    small: Kit, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small.crew("fails", limits=attempts(2))
    code, answer = loop(small, capsys, monkeypatch)
    assert code == 1
    assert [one["judged"]["verdict"] for one in answer["attempts"]] == ["FAIL", "FAIL"]
    _, report, _ = read_report(Path(answer["report"]), load_trust(small.workspace))
    assert report.craft is not None
    assert len(report.craft.attempts) == 2
    with pytest.raises(StateError, match="used up"):
        carry_out(small.given())
    bench = Bench.of(load_order(small.order))
    code, again = ask(capsys, "execute", str(small.order), "--candidate", str(bench.folder / "candidate.json"))
    last = settled(bench, small.workspace)[-1]
    assert last.judged and last.judged.run == again["run"], "the newest report of a candidate is what counts"
    assert settled(bench, small.workspace)[-1] == last


def test_what_takes_its_refused_work_back_has_changed_nothing(small: Kit) -> None:
    small.crew("takes_back", limits=attempts(2))
    carried = carry_out(small.given())
    one, two = carried.attempts
    assert one.judged and one.judged.refused == {"kld": Status.FAIL}
    assert (carried.code, two.commit, two.changed) == (1, None, ())
    assert [finding.kind for finding in two.findings] == ["no-change"]
    assert "those of the base" in two.findings[0].detail


def test_another_mode_alone_is_no_change_and_beside_work_it_is_none_either(small: Kit) -> None:
    small.crew("changes_modes", limits=attempts(2))
    carried = carry_out(small.given())
    one, two = carried.attempts
    assert [finding.kind for finding in one.findings] == ["no-change"]
    assert (carried.code, two.findings, two.changed) == (0, (), ("kernels/cpu/toy.txt",))


def test_what_does_not_build_is_told_and_comes_back(small: Kit) -> None:
    small.crew("forgets")
    carried = carry_out(small.given())
    assert carried.code == 0
    one, two = carried.attempts
    assert [finding.kind for finding in one.findings] == ["does-not-build"]
    assert "simulated seat compiles nothing" in one.findings[0].detail
    assert one.commit is not None
    assert two.judged is not None
    assert {(each.state, each.reported) for each in runs()} == {("does not build", True), ("PASS", True)}
    brief = (Bench.of(load_order(small.order)).attempt_folder(2) / "brief.md").read_text()
    assert "cannot be built. Your clone begins with that commit" in brief


def test_a_real_kernel_on_a_simulated_seat_is_told_that_nothing_is_compiled(small: Kit) -> None:
    small.crew("writes_c")
    carried = carry_out(small.given())
    assert (carried.code, len(carried.attempts)) == (0, 2)
    detail = carried.attempts[0].findings[0].detail
    assert "#include" in detail and "silent-fallback" in detail
    brief = (Bench.of(load_order(small.order)).attempt_folder(1) / "brief.md").read_text()
    assert "This seat is simulated and compiles nothing" in brief


def test_a_history_fits_into_its_report_whatever_an_attempt_left(small: Kit) -> None:
    small.crew("litters", limits=LIMITS)
    carried = carry_out(small.given())
    assert carried.code == 0
    one = carried.attempts[0]
    assert one.changed[-1] == "… and 480 more"
    assert len(one.findings[0].detail) < 2100


def test_a_loop_that_was_stopped_goes_on_with_the_same_run(small: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    small.crew("honest")

    def stop(_: object) -> int:
        raise StateError("stopped by the test")

    with monkeypatch.context() as stopped, pytest.raises(StateError, match="stopped by the test"):
        stopped.setattr("runner.workflow.execute.__defaults__", ((*STEPS[:4], stop),))
        carry_out(small.given())
    (before,) = runs()
    assert settled(Bench.of(load_order(small.order)), small.workspace)[-1].waits
    carried = carry_out(small.given())
    assert (carried.code, carried.run) == (0, before.run)
    assert len(list((small.workspace / "reports" / "small-lna2").iterdir())) == 1


COMMENT, NEXT = "# looked through again\n", ("kind: kernel", "kind: kernel\nversion: 2")
KILL = "kill_lines: [{gate: kld}]\n"


def test_a_comment_gives_no_attempts_back_and_a_version_does(small: Kit) -> None:
    small.crew("talks", limits=attempts(2))
    text = small.order.read_text()
    dispatch(small.given())
    small.order.write_text(text + COMMENT)
    (status,) = order_states(small.workspace)
    assert (status.stage, status.detail) == ("ready", "2 attempts before, at other texts of version 1")
    with pytest.raises(StateError, match="used up") as caught:
        dispatch(small.given())
    assert (caught.value.expected, caught.value.found) == ("at most 2", "0, and 2 at other texts of version 1")
    small.crew("honest", limits=attempts(3))
    carried = carry_out(small.given())
    assert [one.deviations[-1] for one in carried.attempts] == ["attempts before, at other texts of version 1: 2"]
    small.order.write_text(text.replace(*NEXT))
    made = dispatch(small.given())
    assert isinstance(made, Attempt)
    assert (made.waits, any("before" in one for one in made.deviations)) == (True, False)


def test_a_comment_takes_no_kill_line_off_and_a_version_does(small: Kit) -> None:
    small.crew("fails", limits=attempts(3))
    text = order_text(gates=SMALL) + KILL
    small.order.write_text(text)
    assert carry_out(small.given()).code == 1
    small.order.write_text(text + COMMENT)
    with pytest.raises(StateError, match="a kill line struck"):
        dispatch(small.given())
    (status,) = order_states(small.workspace)
    assert (status.stage, status.next) == ("killed", "a new version of the order")
    assert status.detail == "kill line kld struck in attempt 1 at another text of version 1"
    small.order.write_text(text.replace(*NEXT))
    assert isinstance(dispatch(small.given()), Attempt)


def test_a_broken_seat_uses_up_nobodys_attempts(small: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    small.crew("honest", limits=attempts(1))

    def broken(*_: object) -> None:
        raise SeatError("the engine ended at start", found="no such device")

    bench = Bench.of(load_order(small.order))
    with monkeypatch.context() as patched, pytest.raises(SeatError, match="judges nobody") as caught:
        patched.setattr(FakeSeat, "boot", broken)
        carry_out(small.given())
    assert "no such device" in caught.value.found
    (before,) = runs()
    assert (before.state, bench.passed_over()) == ("INVALID", frozenset({before.run}))
    assert settled(bench, small.workspace)[-1].waits
    carried = carry_out(small.given())
    assert (carried.code, len(carried.attempts)) == (0, 1)


def test_a_busy_machine_uses_up_nobodys_attempts(small: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    small.crew("honest", limits=attempts(1))

    def busy(run: Run) -> int:
        run.journal.write(DISTURBED, window="q1-b1", explained=True)
        run.journal.write(DISTURBED, window="q2-b1", explained=False)
        run.journal.write(TOO_BUSY)
        return 2

    with monkeypatch.context() as patched, pytest.raises(StateError, match="too busy to measure on") as told:
        patched.setattr("runner.workflow.execute.__defaults__", ((*STEPS[:4], busy),))
        carry_out(small.given())
    assert "no other process in sight explains" in told.value.found
    assert told.value.found.endswith(": 1")
    bench = Bench.of(load_order(small.order))
    assert settled(bench, small.workspace)[-1].waits
    assert bench.passed_over() == {one.run for one in runs()}


def test_a_person_is_given_the_next_clone_with_the_reasons(small: Kit) -> None:
    small.crew("honest")
    first = carry_out(small.given("maker"))
    assert (first.code, first.run) == (0, "")
    assert first.clone is not None
    (first.clone / "kernels" / "cpu" / "toy.txt").write_text("half-k\n")
    second = carry_out(Dispatch(small.order, "maker", small.workspace, small.checkout, Silent(), hand_in=True))
    assert second.code == 1
    assert second.clone is not None
    assert "kld FAIL" in (second.clone.parent / "brief.md").read_text()
    assert (second.clone / "kernels" / "cpu" / "toy.txt").read_text() == "half-k\n"


PATCH_ORDER = """recipe: {{distribution: {distribution}, patches: [quiet]}}
scope: {{files_allowed: [recipe/patches/quiet.yaml]}}
gates:
  - {{name: product, parameters: {{loaded: same}}}}
  - name: resolved
  - {{name: ppl-decode, parameters: {{margin: 0.0198}}, windows: {{documents: 20, tokens: 12, rows: 4}}}}
  - name: restore
"""


def test_a_patch_is_made_by_a_craftsperson_too(kit: Kit) -> None:
    name, file = f"pluggy=={version('pluggy')}", "pluggy/_warnings.py"
    pristine = Path(str(distribution("pluggy").locate_file(file))).read_bytes()

    def patch(edit: Edit) -> str:
        part = FilePatch(file=file, before=sha256_bytes(pristine), after="0" * 64, edits=(edit,))
        made = Patch(schema_version=1, name="quiet", version=1, distribution=name, why="a test", files=(part,))
        if edit.place == "end":
            made = made.model_copy(
                update={"files": (part.model_copy(update={"after": sha256_bytes(patched(made, part, pristine))}),)}
            )
        return base64.b64encode(json.dumps(made.model_dump(mode="json", exclude_none=True)).encode()).decode()

    wrong = patch(Edit(anchor="nowhere at all", place="replace", text="QUIET = True"))
    right = patch(Edit(anchor=None, place="end", text="QUIET = True\n"))
    kit.order.write_text(
        HEAD.format(name="small-patch", kind="patch", seat="fake") + PATCH_ORDER.format(distribution=name)
    )
    kit.crew("delivers", "recipe/patches/quiet.yaml", wrong, right)
    carried = carry_out(kit.given())
    assert carried.code == 0, [(one.findings, one.judged) for one in carried.attempts]
    assert [finding.kind for finding in carried.attempts[0].findings] == ["does-not-build"]
    brief = (Bench.of(load_order(kit.order)).attempt_folder(1) / "brief.md").read_text()
    assert "Only these files are taken" in brief
    assert "\nrecipe/patches/quiet.yaml\n" in brief
    folder, trust = kit.workspace / "reports" / "small-patch" / carried.run, load_trust(kit.workspace)
    assert verify(folder, trust, kit.workspace, deep=True).verdict is Status.PASS
    signed, report, _ = read_report(folder, trust)
    assert report.craft is not None
    assert signed.subjects["candidate.tree"] == report.craft.attempts[1].tree
    made = state_home() / "runs" / carried.run / "product" / file
    assert "QUIET = True" in made.read_text()
    assert not (source_root() / "recipe" / "patches" / "quiet.yaml").exists()


@pytest.mark.parametrize("kind", ["overlay", "gate"])
def test_what_the_runner_makes_by_itself_is_given_to_nobody(kit: Kit, kind: str) -> None:
    kit.crew("honest")
    text = HEAD.format(name="small-other", kind=kind, seat="fake") + "gates: [{name: resolved}]\n"
    kit.order.write_text(text)
    with pytest.raises(InputError, match="nobody can be given") as caught:
        dispatch(kit.given())
    assert "makes and judges it from the order alone" in caught.value.next_step
    kit.order.write_text(text + "scope: {files_allowed: [recipe/patches/a.yaml]}\n")
    assert any("takes no file for it" in str(fault) for fault in check_file(kit.order))


def test_files_that_judge_are_nothing_for_a_craftsperson(kit: Kit) -> None:
    kit.order.write_text(order_text(allowed="kernels/cpu/toy.txt, runner/gates/*"))
    (fault,) = check_file(kit.order)
    assert "runner/gates/* is nothing for a craftsperson" in str(fault)


@pytest.mark.parametrize(
    ("glob", "path"),
    [("kernels/cpu/*", "kernels/cpu/incumbent.cpp"), ("kernels/cuda/*.cu", "kernels/cuda/knock_out.cu")],
)
def test_what_a_candidate_is_measured_against_is_nothing_for_a_craftsperson(kit: Kit, glob: str, path: str) -> None:
    kit.order.write_text(order_text(allowed=f"kernels/cpu/toy.txt, {glob}"))
    (fault,) = check_file(kit.order)
    assert glob in str(fault) and path in str(fault)


def test_nobody_works_on_what_no_run_can_judge(kit: Kit) -> None:
    kit.crew("honest")
    kit.order.write_text(order_text(allowed="serve/plugin/linear.py"))
    with pytest.raises(SeatError, match="cannot be executed") as caught:
        carry_out(kit.given())
    assert "serve/plugin/linear.py is taken from no candidate" in caught.value.found
    assert Bench.of(load_order(kit.order)).attempts() == ()
