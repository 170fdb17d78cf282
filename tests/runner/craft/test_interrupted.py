"""What comes from outside: a person's own work meanwhile, an interrupt, a kill, and a command that is none."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from runner.craft import sandbox
from runner.craft.bench import Bench, crafts
from runner.craft.dispatch import dispatch, settled
from runner.craft.loop import carry_out
from runner.errors import SeatError, StateError
from runner.model.attempt import Attempt
from runner.model.order import load_order
from runner.status import order_states
from runner.summary import unwatched
from tests.runner.craft.bench_kit import Kit, git
from tests.runner.craft.test_hostile import ONCE, attempt_of

PATIENCE = 120.0
GIVE = """
import signal, sys
from pathlib import Path
from runner.craft.dispatch import dispatch
from tests.runner.craft.bench_kit import Kit
signal.signal(signal.SIGTERM, signal.default_int_handler)
dispatch(Kit(*map(Path, sys.argv[1:])).given())
"""


def bench_of(kit: Kit) -> Bench:
    return Bench.of(load_order(kit.order))


def appears(path: Path) -> None:
    limit = time.monotonic() + PATIENCE
    while not path.exists():
        assert time.monotonic() < limit, f"{path} never came"
        time.sleep(0.02)


def interrupted(kit: Kit, number: signal.Signals) -> None:
    """A dispatch that is ended from outside once its craftsperson has begun."""
    command = [sys.executable, "-c", GIVE, str(kit.checkout), str(kit.workspace), str(kit.order)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        appears(bench_of(kit).attempt_folder(1) / "clone" / "begun")
        for _ in range(2):  # whoever is impatient asks twice
            process.send_signal(number)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_interrupted_session_goes_on_without_loss(kit: Kit, number: signal.Signals) -> None:
    kit.crew("stays", limits=ONCE)
    interrupted(kit, number)
    (status,) = order_states(kit.workspace)
    assert (status.stage, "interrupted" in status.detail) == ("stopped", True), status
    assert "--to crafter" in status.next
    attempt = attempt_of(kit)
    assert (attempt.number, attempt.findings, attempt.changed) == (1, (), ("kernels/cpu/toy.txt",))
    (told,) = attempt.session.interrupted
    assert told.startswith("session of crafter from ")
    assert ("what it wrote and opened is not known" in told) == (number is signal.SIGKILL)
    assert ("1", told) in unwatched([attempt])
    assert b"what was said before" in (bench_of(kit).attempt_folder(1) / "transcript.log").read_bytes()
    assert settled(bench_of(kit), kit.workspace) == (attempt,)


def test_what_git_left_locked_costs_nobody_an_attempt(kit: Kit) -> None:
    """In the clone, in the runner's own index of it, and in the store."""
    kit.crew("stays_in_git", limits=ONCE)
    interrupted(kit, signal.SIGKILL)
    bench = bench_of(kit)
    store = bench.folder / "store.git"
    for path in (
        bench.attempt_folder(1) / "index.lock",
        store / "config.lock",
        store / "refs" / "heads" / "start.lock",
    ):
        path.touch()
    attempt = attempt_of(kit)
    assert (attempt.number, attempt.findings, attempt.waits) == (1, (), True)


def test_what_was_seen_before_an_interrupt_counts(kit: Kit) -> None:
    kit.crew("stays_and_peeks", crafts(), limits=ONCE)
    interrupted(kit, signal.SIGTERM)
    assert [one.kind for one in attempt_of(kit).findings] == ["sealed-read", "sealed-read"]


def test_an_agent_does_not_take_a_persons_clone_away(kit: Kit) -> None:
    kit.crew("honest")
    clone = dispatch(kit.given("maker"))
    assert isinstance(clone, Path)
    (clone / "half").touch()
    with pytest.raises(StateError, match="a person works on this attempt"):
        dispatch(kit.given())
    assert (clone / "half").exists()


@pytest.mark.parametrize("again", ["dispatch", "carry_out"])
def test_a_stop_before_the_candidate_is_written_down_loses_nothing(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    kit.crew("honest")
    bench = bench_of(kit)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("runner.craft.dispatch.write_whole", stop)
        dispatch(kit.given())
    assert ([one.waits for one in bench.attempts()], bench.candidate()) == ([True], None)
    if again == "dispatch":
        with pytest.raises(StateError, match="waits to be judged"):
            dispatch(kit.given())
        candidate = bench.candidate()
        assert candidate is not None
        assert candidate.history == bench.history()
    else:
        assert carry_out(kit.given()).code == 0


def test_a_persons_clone_that_a_stop_left_half_made_is_made_anew(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    kit.crew("honest")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("runner.craft.attempt._equip", stop)
        dispatch(kit.given("maker"))
    with pytest.raises(StateError, match="nothing was given"):
        dispatch(replace(kit.given("maker"), hand_in=True))
    clone = dispatch(kit.given("maker"))
    assert isinstance(clone, Path)
    (clone / "kernels" / "cpu" / "toy.txt").write_text("lna2\n")
    assert dispatch(kit.given("maker")) == clone
    made = dispatch(replace(kit.given("maker"), hand_in=True))
    assert isinstance(made, Attempt)
    assert made.waits


def test_a_persons_own_work_meanwhile_is_nobodys_offence(kit: Kit, walls: str) -> None:
    folder = kit.workspace.parent / "flags"
    folder.mkdir()
    kit.crew("ends_when_told", folder / "flag", limits=ONCE)
    crew = kit.workspace / "orders" / "people" / "craftspeople.yaml"
    crew.write_text(crew.read_text().replace("readable: [", f"readable: [{folder}, "))
    other = kit.order.with_name("other.yaml")
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(attempt_of, kit)
        appears(bench_of(kit).attempt_folder(1) / "clone" / "begun")
        other.write_text("id: other\n")
        (kit.checkout / "note").write_text("mine\n")
        (kit.workspace / "canon" / "adoptions").mkdir(parents=True, exist_ok=True)
        (kit.workspace / "canon" / "adoptions" / "1.dsse.json").write_text("{}")
        git(kit.checkout, "add", "note")
        git(kit.checkout, "commit", "--quiet", "--message", "mine")
        (folder / "flag").touch()
        attempt = working.result(PATIENCE)
    assert (attempt.findings, attempt.commit is None) == ((), False)
    told = " ".join(attempt.session.meanwhile)
    for name in (str(other), "1.dsse.json", "refs/heads/main"):
        assert name in told
    assert all(one.startswith("changed during the session, not by it: ") for one in attempt.session.meanwhile)


def crew_of(kit: Kit, argv: str) -> None:
    kit.crew("honest")
    path = kit.workspace / "orders" / "people" / "craftspeople.yaml"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(f"    argv: {argv}" if "argv:" in line else line for line in lines) + "\n")


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        ("[no-such-agent]", "no-such-agent, which no folder of PATH has"),
        ("[/nowhere/agent]", "/nowhere/agent, which is not there"),
        ("[scripts/agent]", "scripts/agent, which is not there"),
        ("[kernels/cpu/toy.txt]", "kernels/cpu/toy.txt, which may not be executed"),
        ("['{clone}/kernels/cpu/toy.txt']", "toy.txt, which may not be executed"),
    ],
)
def test_a_command_that_is_none_is_named_before_the_first_attempt(kit: Kit, walls: str, argv: str, found: str) -> None:
    crew_of(kit, argv)
    with pytest.raises(StateError, match="cannot be started") as caught:
        dispatch(kit.given())
    assert caught.value.found.endswith(found)
    assert "craftspeople.yaml: crafter: argv" in caught.value.where
    assert not bench_of(kit).attempt_folder(1).exists()


@pytest.mark.parametrize("argv", ["[sh, -c, no-such-agent]", "[env, no-such-agent]", "[sh, -c, ./README]"])
def test_a_command_that_cannot_be_run_uses_up_no_attempt(kit: Kit, argv: str) -> None:
    crew_of(kit, argv)
    for _ in range(2):
        with pytest.raises(SeatError, match="no attempt is counted") as caught:
            dispatch(kit.given())
        assert "exit code 12" in caught.value.found
    assert settled(bench_of(kit), kit.workspace) == ()
    kit.crew("honest")
    made = dispatch(kit.given())
    assert isinstance(made, Attempt)
    assert (made.number, made.findings) == (1, ())


def test_a_command_that_the_sandbox_does_not_show_is_named(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = tmp_path / "agent"
    agent.write_text("#!/bin/sh\necho lna2 > kernels/cpu/toy.txt\n")
    agent.chmod(0o755)
    crew_of(kit, f"[{agent}]")
    with monkeypatch.context() as patched, pytest.raises(StateError, match="cannot be started") as caught:
        patched.setattr(sandbox, "version", lambda: "bubblewrap 1")
        dispatch(kit.given())
    assert f"readable: [{tmp_path}]" in caught.value.next_step
