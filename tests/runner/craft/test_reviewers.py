"""Reviewers: who may be asked, and that no finished review is lost."""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from runner.cli import run
from runner.craft.conflicts import conflicts
from runner.craft.reviewers import review
from runner.errors import CarveError, InputError, StateError
from runner.model.order.review import ReviewFile
from runner.paths import state_home
from runner.yaml_strict import read
from tests.runner.craft import people
from tests.runner.craft.bench_kit import LIMITS, Kit

WAITING = 120


def crew(kit: Kit, more: str = "", **deeds: str) -> None:
    """Reviewers by name, each with a deed; they review the kit's order."""
    entries = "".join(
        f"  {name}:\n    kind: agent\n    argv: [{sys.executable}, {people.__file__}, {deed}]\n"
        f"    readable: [{Path(people.__file__).parent}]\n    limits: {LIMITS}\n{more}"
        for name, deed in deeds.items()
    )
    path = kit.workspace / "orders" / "people" / "craftspeople.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"schema_version: 1\ncraftspeople:\n{entries}  maker: {{kind: person}}\n")


def ask_of(kit: Kit, *names: str) -> None:
    listed = ", ".join(f"{{name: {name}, lens: bytes}}" for name in names)
    text = kit.order.read_text()
    kit.order.write_text(text.replace("approver: maintainers}", f"approver: maintainers, reviewers: [{listed}]}}"))


def names_in(path: Path) -> list[str]:
    kept: ReviewFile = read(path).validate(ReviewFile)
    return [one.reviewer for one in kept.reviews]


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        ("    home: [.config]\n", InputError, "has to stay hidden"),
        ("    needs_sandbox: true\n", StateError, "without a sandbox"),
        ("OPEN", InputError, "closes the network"),
        ("READABLE", InputError, "has to stay hidden"),
    ],
)
def test_a_reviewer_is_held_to_what_a_craftsperson_is(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, more: str, error: type[CarveError], words: str
) -> None:
    monkeypatch.setattr("runner.craft.sandbox.version", lambda: "")
    monkeypatch.setenv("HOME", str(kit.workspace.parent))
    monkeypatch.setenv("CARVE_CONFIG", str(kit.workspace.parent / ".config" / "dsv4-carve"))
    (kit.workspace.parent / ".config" / "dsv4-carve").mkdir(parents=True)
    crew(kit, "" if more.isupper() else more, bea="claims")
    path = kit.workspace / "orders" / "people" / "craftspeople.yaml"
    if more == "OPEN":
        path.write_text(path.read_text().replace("{wall", "{network: open, wall"))
    if more == "READABLE":
        path.write_text(path.read_text().replace("readable: [", f"readable: [{kit.workspace}, "))
    ask_of(kit, "bea")
    with pytest.raises(error, match=words):
        review(kit.order, kit.workspace, kit.checkout)
    if more == "OPEN":
        made, silent = review(kit.order, kit.workspace, kit.checkout, "its model is far away")
        kept: ReviewFile = read(made).validate(ReviewFile)
        assert not silent
        assert kept.reviews[0].deviations[0] == "network open: its model is far away"


def test_one_who_fails_takes_nobodys_claims_along_and_alone_is_asked_again(kit: Kit) -> None:
    crew(kit, ann="claims", bea="talks", cai="claims")
    ask_of(kit, "ann", "bea", "cai", "maker")
    path, silent = review(kit.order, kit.workspace, kit.checkout)
    assert sorted(names_in(path)) == ["ann", "cai"]
    assert silent.keys() == {"bea", "maker"}
    assert "a person" in silent["maker"]
    path.write_text("# a note of mine\n" + path.read_text())
    crew(kit, ann="fails", bea="claims", cai="fails")
    again, silent = review(kit.order, kit.workspace, kit.checkout)
    assert again == path
    assert list(silent) == ["maker"]
    assert sorted(names_in(path)) == ["ann", "bea", "cai"]
    assert path.read_text().startswith("# a note of mine\n")
    assert len(conflicts(read(path).validate(ReviewFile))[0].answers[0].who) == 3
    ask_all_answered = kit.order.read_text().replace(", {name: maker, lens: bytes}", "")
    kit.order.write_text(ask_all_answered)
    with pytest.raises(InputError, match="reviewed already"):
        review(kit.order, kit.workspace, kit.checkout)


def test_nobody_who_answers_leaves_no_file(kit: Kit) -> None:
    crew(kit, ann="talks")
    ask_of(kit, "ann")
    with pytest.raises(StateError, match="nobody gave any claims") as caught:
        review(kit.order, kit.workspace, kit.checkout)
    assert "no claims.yaml" in caught.value.found


def ask_until(kit: Kit, number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> int:
    """``runner review-order`` in this thread, stopped by a signal once ann has given claims and bea has begun."""
    path = kit.workspace / "orders" / "reviews" / "small-lna2-1.yaml"
    main = threading.get_ident()

    def stop() -> None:
        limit = time.monotonic() + WAITING
        while time.monotonic() < limit:
            if path.exists() and any(state_home().glob("craft/*/reviews/2/clone/begun")):
                break
            time.sleep(0.05)
        signal.pthread_kill(main, number)

    thread = threading.Thread(target=stop)
    handlers = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)}
    with monkeypatch.context() as patched:
        patched.setattr("runner.paths.source_root", lambda: kit.checkout)
        thread.start()
        try:
            return run(["review-order", str(kit.order)])
        finally:
            thread.join()
            for each, handler in handlers.items():
                signal.signal(each, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_ends_the_others_and_keeps_what_is_finished(
    kit: Kit, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew(kit, ann="claims", bea="stays")
    ask_of(kit, "ann", "bea")
    assert ask_until(kit, number, monkeypatch) == 2
    path = kit.workspace / "orders" / "reviews" / "small-lna2-1.yaml"
    assert names_in(path) == ["ann"]
    journal = next(state_home().glob("craft/*/reviews/2/journal.jsonl")).read_text()
    assert "session-stopped" in journal
    crew(kit, ann="fails", bea="claims")
    _, silent = review(kit.order, kit.workspace, kit.checkout)
    assert not silent
    assert sorted(names_in(path)) == ["ann", "bea"]
