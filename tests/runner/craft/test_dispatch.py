"""From brief to signed report, and everything that stops on the way."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.cli import run
from runner.clock import now
from runner.craft.bench import Bench, benches, crafts
from runner.craft.candidate import take
from runner.craft.crew import craftsperson, load_crew
from runner.craft.dispatch import Dispatch, dispatch, settled
from runner.craft.leases import alone, take_lease
from runner.craft.start import deviations
from runner.craft.store import tree_digest
from runner.craft.taken import read_candidate
from runner.errors import InputError, StateError, TrustError
from runner.model.attempt import Attempt
from runner.model.order import load_order
from runner.paths import source_root
from runner.report_text import attempt_lines
from runner.status import order_states
from runner.steps.state import Silent
from tests.runner.craft.bench_kit import LIMITS, Kit, git, order_text
from tests.runner.test_workflow import ask

SMALL = "  - {name: kld, parameters: {bound: 0.001}, windows: {documents: 20, tokens: 12, rows: 4}}\n"


def given_to(kit: Kit, name: str = "crafter") -> Attempt:
    made = dispatch(kit.given(name))
    assert isinstance(made, Attempt)
    return made


def candidate_of(kit: Kit) -> Path:
    return Bench.of(load_order(kit.order)).folder / "candidate.json"


def test_a_candidate_waits_until_it_is_judged(kit: Kit) -> None:
    kit.crew("honest")
    given_to(kit)
    with pytest.raises(StateError, match="waits to be judged"):
        dispatch(kit.given())


def test_attempts_are_bounded_and_kept(kit: Kit) -> None:
    kit.crew("talks", limits=LIMITS.replace("}", ", attempts: 2}"))
    last = given_to(kit)
    assert (last.number, last.commit) == (2, None)
    with pytest.raises(StateError, match="used up"):
        dispatch(kit.given())
    bench = Bench.of(load_order(kit.order))
    kept = settled(bench, kit.workspace)
    assert [[finding.kind for finding in one.findings] for one in kept] == [["no-change"], ["no-change"]]
    assert b"ALL_TESTS_PASSED" in (bench.attempt_folder(1) / "transcript.log").read_bytes()
    assert "no-change" in (bench.attempt_folder(2) / "brief.md").read_text()
    assert not (bench.attempt_folder(2) / "home").exists()


def test_two_orders_do_not_edit_one_file(kit: Kit) -> None:
    kit.crew("honest")
    given_to(kit)
    other = kit.order.with_name("other.yaml")
    other.write_text(
        kit.order.read_text()
        .replace("id: small-lna2", "id: other")
        .replace("kernels/cpu/toy.txt]", "kernels/cpu/*.txt]")
    )
    elsewhere = Dispatch(other, "crafter", kit.workspace, kit.checkout, Silent())
    with pytest.raises(StateError, match="holds these files") as caught:
        dispatch(elsewhere)
    assert caught.value.where == "kernels/cpu/toy.txt"
    assert "small-lna2" in caught.value.found
    assert run(["dispatch", str(kit.order), "--release"]) == 0
    assert dispatch(elsewhere)


@pytest.mark.parametrize("other", ["kernels/new.cu", "kernels/n*.cu", "kernels/*.cu"])
def test_a_new_file_is_leased_by_every_glob_that_takes_it(kit: Kit, other: str) -> None:
    one, two, apart = (
        Bench(kit.workspace.parent / "state" / "craft" / name, name, "0" * 64) for name in ("one", "two", "apart")
    )
    for bench in (one, two, apart):
        bench.introduce(kit.order, 1)
    take_lease(one, "crafter", ["kernels/ne*.cu"], [])
    with pytest.raises(StateError, match="holds these files"):
        take_lease(two, "crafter", [other], [])
    take_lease(apart, "crafter", ["kernels/old*.cu", "kernels/*.cuh"], [])


def test_files_are_not_let_go_while_somebody_works_on_them(kit: Kit, capsys: pytest.CaptureFixture[str]) -> None:
    kit.crew("honest")
    given_to(kit)
    bench = Bench.of(load_order(kit.order))
    with bench.hold():
        assert run(["dispatch", str(kit.order), "--release"]) == 2
    assert "somebody works on this order now" in capsys.readouterr().err
    assert bench.lease()
    assert run(["dispatch", str(kit.order), "--release"]) == 0
    assert bench.lease() is None


def test_another_order_with_the_same_id_takes_nothing_away(kit: Kit, tmp_path: Path) -> None:
    kit.crew("honest")
    given_to(kit)
    bench, other = Bench.of(load_order(kit.order)), tmp_path / "orders" / "small-lna2.yaml"
    other.parent.mkdir()
    other.write_text(order_text() + "# another one\n")
    with pytest.raises(StateError, match="holds these files") as caught:
        dispatch(replace(kit.given(), order=other))
    assert str(kit.order) in caught.value.next_step
    assert run(["dispatch", str(other), "--release"]) == 0
    assert bench.lease()


def test_an_earlier_version_that_stands_nowhere_lets_go(kit: Kit) -> None:
    kit.crew("honest")
    given_to(kit)
    earlier = Bench.of(load_order(kit.order))
    kit.order.write_text(order_text().replace("kind: kernel", "kind: kernel\nversion: 2"))
    assert given_to(kit).waits
    assert earlier.lease() is None


def test_a_lease_is_taken_while_nobody_else_takes_one(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    kit.crew("honest")
    locked: list[bool] = []

    def looked(real: Callable[[], Any]) -> Callable[[], Any]:
        def look() -> Any:
            with (crafts() / "lock").open("a") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    locked.append(False)
                except BlockingIOError:
                    locked.append(True)
            return real()

        return look

    monkeypatch.setattr("runner.craft.leases.benches", looked(benches))
    monkeypatch.setattr("runner.craft.leases.now", looked(now))
    assert given_to(kit).waits
    assert locked == [True, True]
    with alone():
        pass  # it is over


@pytest.mark.parametrize(("allowed", "code"), [("kernels/cpu/toy.txt, kernels/cpu/x*", 0), ("kernels/cpu/toy.txt", 1)])
def test_a_name_of_a_craftsperson_stays_on_its_line(
    kit: Kit, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, allowed: str, code: int
) -> None:
    """As a file of the candidate, and in a finding, a note and a state."""
    kit.order.write_text(order_text(allowed))
    kit.crew("names_badly", "kernels/cpu", limits=LIMITS.replace("}", ", attempts: 1}"))
    monkeypatch.setattr("runner.paths.source_root", lambda: kit.checkout)
    assert run(["dispatch", str(kit.order), "--to", "crafter"]) == code
    told = capsys.readouterr()
    shown = "x\\u000anext: runner execute evil\\u001b[2J.txt"
    assert shown in told.out
    assert ("candidate" in told.out, "kernels/cpu/toy.txt" in told.out) == (True, True)
    lines = [*told.out.splitlines(), *told.err.splitlines(), *(one.detail for one in order_states(kit.workspace))]
    assert not any(line.startswith("next: runner execute evil") for text in lines for line in text.splitlines())


def test_only_one_process_works_on_an_order(kit: Kit) -> None:
    kit.crew("honest")
    with Bench.of(load_order(kit.order)).hold(), pytest.raises(StateError, match="works on this order now"):
        dispatch(kit.given())


def test_a_person_is_given_a_clone_and_hands_it_in(kit: Kit, capsys: pytest.CaptureFixture[str]) -> None:
    kit.crew("honest")
    clone = dispatch(kit.given("maker"))
    assert isinstance(clone, Path)
    assert "How it is judged" in (clone.parent / "brief.md").read_text()
    assert git(clone, "remote") == git(clone, "stash", "list") == git(clone, "tag") == ""
    (clone / "kernels" / "cpu" / "toy.txt").write_text("lna2\n")
    git(clone, "commit", "--all", "--quiet", "--message", "mine")
    made = dispatch(Dispatch(kit.order, "maker", kit.workspace, kit.checkout, Silent(), hand_in=True))
    assert isinstance(made, Attempt)
    assert (made.findings, made.changed) == ((), ("kernels/cpu/toy.txt",))


def test_hooks_and_filters_of_a_clone_are_not_run(kit: Kit) -> None:
    kit.crew("honest")
    clone, mark = dispatch(kit.given("maker")), kit.workspace.parent / "mark"
    assert isinstance(clone, Path)
    for key in ("core.fsmonitor", "filter.x.clean", "core.pager"):
        git(clone, "config", key, f"touch {mark}; cat")
    (clone / ".git" / "info" / "attributes").write_text("* filter=x\n")
    (clone / "kernels" / "cpu" / "toy.txt").write_text("lna2\n")
    dispatch(Dispatch(kit.order, "maker", kit.workspace, kit.checkout, Silent(), hand_in=True))
    assert not mark.exists()


@pytest.mark.parametrize("make", ["link", "repository", "removal"])
def test_only_plain_files_are_taken(kit: Kit, make: str) -> None:
    kit.crew("honest")
    clone = dispatch(kit.given("maker"))
    assert isinstance(clone, Path)
    toy = clone / "kernels" / "cpu" / "toy.txt"
    toy.unlink()
    if make == "link":
        toy.symlink_to("/etc/passwd")
    elif make == "repository":
        git(clone, "clone", "--quiet", str(kit.checkout), str(toy))
    made = dispatch(Dispatch(kit.order, "maker", kit.workspace, kit.checkout, Silent(), hand_in=True))
    assert isinstance(made, Attempt)
    assert "not-a-file" in [finding.kind for finding in made.findings]


def test_an_edited_order_does_not_take_the_candidate(kit: Kit, capsys: pytest.CaptureFixture[str]) -> None:
    kit.crew("honest")
    given_to(kit)
    candidate = candidate_of(kit)
    kit.order.write_text(order_text().replace("bound: 0.001", "bound: 0.5"))
    assert run(["execute", str(kit.order), "--candidate", str(candidate), "--quiet"]) == 3
    assert "another text of it" in capsys.readouterr().err


def test_a_changed_candidate_file_is_refused(kit: Kit) -> None:
    kit.crew("honest")
    given_to(kit)
    candidate, file = candidate_of(kit), load_order(kit.order)
    value = json.loads(candidate.read_bytes())
    base, commit = value["base"], value["commit"]
    value["commit"] = base
    candidate.write_text(json.dumps(value))
    with pytest.raises(TrustError, match="not what was frozen"):
        take(candidate, file, kit.workspace.parent / "run")
    value["commit"] = "0" * 40
    candidate.write_text(json.dumps(value))
    with pytest.raises(StateError, match="git diff-tree failed"):
        take(candidate, file, kit.workspace.parent / "run")
    value["commit"] = commit
    candidate.write_text(json.dumps(value | {"more": 1}))
    with pytest.raises(InputError, match="not a candidate file"):
        take(candidate, file, kit.workspace.parent / "run")


@pytest.mark.parametrize(
    "forge",
    [
        lambda attempts: [attempts[-1] | {"number": 1}],
        lambda attempts: [*attempts[:-1], attempts[-1] | {"craftsperson": "codex"}],
        lambda attempts: [attempts[0] | {"findings": []}, *attempts[1:]],
        lambda attempts: [*attempts, attempts[-1]],
        lambda attempts: [
            *attempts[:-1],
            attempts[-1] | {"session": attempts[-1]["session"] | {"sandbox": "bubblewrap 99.9"}},
        ],
    ],
)
def test_a_history_that_its_bench_does_not_have_is_refused(
    kit: Kit, forge: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
) -> None:
    kit.crew("changes_modes")
    assert given_to(kit).number == 2
    candidate, file, run_folder = candidate_of(kit), load_order(kit.order), kit.workspace.parent / "run"
    value = json.loads(candidate.read_bytes())
    value["history"]["attempts"] = forge(value["history"]["attempts"])
    forged = kit.workspace / "forged.json"
    forged.write_text(json.dumps(value))
    with pytest.raises(TrustError, match="not the one that its bench has"):
        take(forged, file, run_folder)
    take(candidate, file, run_folder)
    assert "unproven" not in (run_folder / "candidate.json").read_text()


def test_a_history_without_a_bench_is_called_unproven(kit: Kit) -> None:
    kit.crew("honest")
    given_to(kit)
    candidate, file, run_folder = candidate_of(kit), load_order(kit.order), kit.workspace.parent / "run"
    shutil.rmtree(Bench.of(file).folder / "attempts")
    take(candidate, file, run_folder)
    history = read_candidate(run_folder / "candidate.json").history
    assert history.unproven
    lines = "\n".join(attempt_lines(history))
    assert "not proven" in lines and "said to be crafter" in lines
    assert "not proven" not in "\n".join(attempt_lines(history.model_copy(update={"unproven": ""})))


def test_a_candidate_without_a_change_is_nothing_to_judge(kit: Kit) -> None:
    """As one frozen by an earlier release may be."""
    kit.crew("honest")
    given_to(kit)
    path, file = candidate_of(kit), load_order(kit.order)
    value = json.loads(path.read_bytes())
    last = {"commit": value["base"], "tree": tree_digest({})}
    value |= last | {"files": {}}
    value["history"]["attempts"][-1] |= last
    path.write_text(json.dumps(value))
    with pytest.raises(InputError, match="changes nothing"):
        take(path, file, kit.workspace.parent / "run")


def test_an_agent_that_asks_nobody_needs_a_sandbox_and_a_reason_for_the_network(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit.crew("honest")
    crew = kit.workspace / "orders" / "people" / "craftspeople.yaml"
    crew.write_text(crew.read_text().replace("    kind: agent\n", "    kind: agent\n    needs_sandbox: true\n"))
    monkeypatch.setattr("runner.craft.sandbox.version", lambda: "")
    with pytest.raises(StateError, match="without a sandbox"):
        dispatch(kit.given())
    crew.write_text(
        crew.read_text().replace("needs_sandbox: true", "needs_sandbox: false").replace("{wall", "{network: open, wall")
    )
    with pytest.raises(InputError, match="closes the network"):
        dispatch(kit.given())
    made = dispatch(Dispatch(kit.order, "crafter", kit.workspace, kit.checkout, Silent(), "its model is far away"))
    assert isinstance(made, Attempt)
    assert made.deviations[0] == "network open: its model is far away"
    assert "bubblewrap is missing" in made.deviations[1]


def test_an_index_alone_is_a_limit_that_nothing_keeps(kit: Kit) -> None:
    kit.crew("honest", limits=LIMITS.replace("{", "{network: open, "))
    kit.order.write_text(order_text() + "constraints: {network: index-only}\n")
    made = given_to(kit)
    assert made.deviations[0].startswith("network open: the order allows package indexes alone")
    history = Bench.of(load_order(kit.order)).history()
    assert made.deviations[0] in "\n".join(attempt_lines(history))
    entry = craftsperson(kit.workspace, "crafter")
    for network, limit in (("open", "open"), ("index-only", "none"), ("none", "none")):
        kit.order.write_text(order_text() + f"constraints: {{network: {network}}}\n")
        less = entry.model_copy(update={"limits": entry.limits.model_copy(update={"network": limit})})
        assert not [one for one in deviations(less, load_order(kit.order).order, "") if one.startswith("network")]


def test_nothing_hidden_is_made_readable(kit: Kit) -> None:
    kit.crew("honest")
    crew = kit.workspace / "orders" / "people" / "craftspeople.yaml"
    text = crew.read_text()
    for folder in (kit.checkout, kit.checkout / "kernels", kit.workspace.parent):
        crew.write_text(text.replace("readable: [", f"readable: [{folder}, "))
        with pytest.raises(InputError, match="has to stay hidden"):
            dispatch(kit.given())


def test_an_order_waits_for_another_one(kit: Kit, capsys: pytest.CaptureFixture[str]) -> None:
    kit.crew("honest")
    first = kit.order.with_name("first.yaml")
    first.write_text(order_text(gates="").replace("id: small-lna2", "id: first"))
    kit.order.write_text(order_text() + "scope: {only_after: [first]}\n")
    with pytest.raises(StateError, match="has to be finished first") as caught:
        dispatch(kit.given())
    assert caught.value.found == "none of first"
    assert run(["execute", str(kit.order), "--quiet"]) == 2
    assert ask(capsys, "execute", str(first))[0] == 0
    assert given_to(kit).commit
    kit.order.write_text(order_text() + "scope: {only_after: [nobody]}\n")
    assert run(["check", str(kit.order)]) == 3
    assert "there is no order nobody" in capsys.readouterr().out


def test_what_an_order_forbids_is_not_allowed_by_a_wider_glob(kit: Kit) -> None:
    kit.crew("honest")
    kit.order.write_text(order_text(allowed="kernels/cpu/*.txt") + "scope: {files_forbidden: [kernels/cpu/toy.txt]}\n")
    attempt = given_to(kit)
    assert [finding.kind for finding in attempt.findings] == ["outside-allowed"]
    assert attempt.findings[0].detail == "changed kernels/cpu/toy.txt, which the order forbids"


def test_the_order_names_who_may_work(kit: Kit) -> None:
    kit.crew("honest")
    kit.order.write_text(
        order_text().replace("approver: maintainers}", "approver: maintainers, craftspeople: [{name: luna}]}")
    )
    with pytest.raises(InputError, match="not for this craftsperson"):
        dispatch(kit.given())


def test_a_workspace_without_a_crew_is_told_where_the_examples_are(kit: Kit) -> None:
    with pytest.raises(InputError, match="knows no craftspeople") as caught:
        dispatch(kit.given())
    assert str(source_root() / "orders" / "people") in caught.value.next_step


def test_the_shipped_crew_is_valid_and_agents_ask_for_walls() -> None:
    crew = load_crew(source_root()).craftspeople
    assert {"codex", "claude", "gemini", "opencode"} <= crew.keys()
    assert all(entry.needs_sandbox for entry in crew.values() if entry.kind == "agent")
