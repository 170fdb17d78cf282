"""The ledger: a DAG of files in which nothing can go missing unseen."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from runner import ledger
from runner.attest.keys import PrivateKey
from runner.attest.statement import sign
from runner.attest.trust import Trust
from runner.digest import sha256_bytes
from runner.errors import InputError, TrustError
from runner.model.adoption import Observation
from runner.model.report import ReportPredicate
from runner.model.statement import SignedIntent
from tests.runner.records import START, announce, digest_of, instant, make_run, publish, trust_of


def test_an_empty_workspace_has_an_empty_ledger(workspace: Path) -> None:
    book = ledger.load(workspace, trust_of(workspace))
    assert (book.heads(), book.abandoned(), book.oldest_first) == ((), [], [])


def test_each_entry_names_the_heads_before_it(workspace: Path, demo_runner: PrivateKey, tmp_path: Path) -> None:
    first = publish(workspace, demo_runner, make_run(run="r1"), tmp_path)
    report = sha256_bytes((first / "report.dsse.json").read_bytes())
    second = announce(workspace, make_run(run="r2", started=START + timedelta(hours=1)), demo_runner)
    book = ledger.load(workspace, trust_of(workspace))
    assert book.entries[second].predicate.parents == (report,)
    assert book.heads() == (second,)
    assert [entry.digest for entry, _ in book.abandoned()] == [second]
    assert [intent.run for _, intent in book.of(SignedIntent)] == ["r1", "r2"]
    assert list(book.tries.values()) == [2, 2]


def test_a_copy_of_an_order_under_another_name_begins_no_new_count(workspace: Path, demo_runner: PrivateKey) -> None:
    announce(workspace, make_run(run="r1"), demo_runner)
    announce(workspace, make_run(run="r2", order="mini-lna2b"), demo_runner)
    assert list(ledger.load(workspace, trust_of(workspace)).tries.values()) == [2, 2]


@pytest.mark.parametrize("candidate", [{"library.lna2": digest_of("another")}, {}])
def test_another_candidate_and_an_order_without_one_are_counted_for_themselves(
    workspace: Path, demo_runner: PrivateKey, candidate: dict[str, str]
) -> None:
    first = announce(workspace, make_run(run="r1"), demo_runner)
    intent = ledger.load(workspace, trust_of(workspace)).entries[first].of(SignedIntent)
    for order in ("mini-lna2", "mini-other"):
        other = intent.model_copy(update={"candidate": candidate, "order": order})
        ledger.append(workspace, ledger.LEDGER, sign(other, {}, demo_runner))
    tries = ledger.load(workspace, trust_of(workspace)).tries
    assert tries[first] == 1
    assert sorted(tries.values()) == ([1, 2, 2] if candidate else [1, 1, 1])


def test_branches_merge(workspace: Path, demo_runner: PrivateKey, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(workspace, other)
    left = announce(workspace, make_run(run="left"), demo_runner)
    right = announce(other, make_run(run="right"), demo_runner)
    shutil.copytree(other / "reports", workspace / "reports", dirs_exist_ok=True)
    assert ledger.load(workspace, trust_of(workspace)).heads() == tuple(sorted((left, right)))
    last = announce(workspace, make_run(run="last"), demo_runner)
    assert ledger.load(workspace, trust_of(workspace)).heads() == (last,)


def test_a_removed_entry_is_missed_by_what_came_after(workspace: Path, demo_runner: PrivateKey, tmp_path: Path) -> None:
    folder = publish(workspace, demo_runner, make_run(run="r1"), tmp_path)
    intent = next((workspace / ledger.LEDGER).iterdir())
    text = intent.read_bytes()
    intent.unlink()
    with pytest.raises(TrustError, match="lost an entry"):
        ledger.load(workspace, trust_of(workspace))
    intent.write_bytes(text)
    announce(workspace, make_run(run="r2", started=START + timedelta(hours=1)), demo_runner)
    shutil.rmtree(folder)
    with pytest.raises(TrustError, match="lost an entry"):
        ledger.load(workspace, trust_of(workspace))


def test_a_report_taken_away_leaves_its_intent_abandoned(
    workspace: Path, demo_runner: PrivateKey, tmp_path: Path
) -> None:
    shutil.rmtree(publish(workspace, demo_runner, make_run(run="r1"), tmp_path))
    assert [intent.run for _, intent in ledger.load(workspace, trust_of(workspace)).abandoned()] == ["r1"]


def test_one_intent_has_one_report(workspace: Path, demo_runner: PrivateKey, tmp_path: Path) -> None:
    folder = publish(workspace, demo_runner, make_run(run="r1"), tmp_path)
    book = ledger.load(workspace, trust_of(workspace))
    (entry, report) = book.of(ReportPredicate)[0]
    other = sign(report.model_copy(update={"run": "r1-again"}), entry.subjects, demo_runner)
    second = folder.with_name("r1-again")
    second.mkdir()
    (second / "report.dsse.json").write_bytes(other)
    with pytest.raises(TrustError, match="two reports answer one intent"):
        ledger.load(workspace, trust_of(workspace))


@pytest.mark.parametrize("place", ["reports", "reports/mini-lna2"])
def test_a_report_a_folder_too_high_is_not_overlooked(
    workspace: Path, demo_runner: PrivateKey, tmp_path: Path, place: str
) -> None:
    folder = publish(workspace, demo_runner, make_run(run="r1"), tmp_path)
    (folder / "report.dsse.json").rename(workspace / place / "report.dsse.json")
    with pytest.raises(TrustError, match="another place than its own"):
        ledger.load(workspace, trust_of(workspace))


def test_a_report_stands_where_its_links_lead(workspace: Path, demo_runner: PrivateKey, tmp_path: Path) -> None:
    folder = publish(workspace, demo_runner, make_run(run="r1"), tmp_path)
    folder.rename(folder.with_name("r2"))
    with pytest.raises(TrustError, match="another place than its own"):
        ledger.load(workspace, trust_of(workspace))


@pytest.mark.parametrize(
    "place", ["reports/mini-lna2", "reports/mini-lna2/r1", "reports/mini-lna2/r1/report.dsse.json"]
)
def test_a_link_to_elsewhere_is_no_signed_file(
    place: str, workspace: Path, demo_runner: PrivateKey, tmp_path: Path
) -> None:
    publish(workspace, demo_runner, make_run(run="r1"), tmp_path / "state")
    (workspace / place).rename(tmp_path / "elsewhere")
    (workspace / place).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TrustError, match=r"symbolic link|cannot be read"):
        ledger.load(workspace, trust_of(workspace))


def without_end(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(1 << 40)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, without_end], ids=["folder", "pipe", "a tebibyte"])
def test_only_plain_files_are_entries(make: Callable[[Path], None], workspace: Path) -> None:
    (workspace / ledger.LEDGER).mkdir(parents=True)
    make(workspace / ledger.LEDGER / f"{digest_of('entry')}{ledger.SUFFIX}")
    with pytest.raises(TrustError, match="cannot be read"):
        ledger.load(workspace, trust_of(workspace))


def test_no_byte_of_an_entry_can_change(workspace: Path, demo_runner: PrivateKey) -> None:
    announce(workspace, make_run(), demo_runner)
    path = next((workspace / ledger.LEDGER).iterdir())
    data, choose, trust = path.read_bytes(), random.Random(2), trust_of(workspace)
    for _ in range(300):
        changed = bytearray(data)
        changed[choose.randrange(len(data))] ^= choose.randrange(1, 256)
        path.write_bytes(changed)
        with pytest.raises(TrustError):
            ledger.load(workspace, trust)
    path.write_bytes(data)
    path.rename(path.with_name(digest_of("other") + ledger.SUFFIX))
    with pytest.raises(TrustError, match="has changed"):
        ledger.load(workspace, trust)


def test_a_file_of_an_unknown_key_is_known_to_be_there_and_counts_for_nothing(
    workspace: Path, demo_runner: PrivateKey
) -> None:
    stranger = PrivateKey.generate()
    digest = announce(workspace, make_run(run="foreign"), stranger)
    book = ledger.load(workspace, trust_of(workspace))
    assert (book.entries, list(book.outsiders)) == ({}, [digest])
    last = announce(workspace, make_run(run="own"), demo_runner)
    book = ledger.load(workspace, trust_of(workspace))
    assert book.entries[last].predicate.parents == (digest,)
    assert book.heads() == (last,)


def test_entries_are_in_the_order_of_time_not_of_text(workspace: Path, demo_runner: PrivateKey) -> None:
    for run, at in (("later", "2026-12-01T09:00:00.5Z"), ("earlier", "2026-12-01T09:00:00Z")):
        observation = Observation(created_at=at, parents=(), seat=run, label="cpu", subjects={}, resolved={})
        ledger.append_observation(workspace, observation, demo_runner)
    book = ledger.load(workspace, trust_of(workspace))
    assert [each.seat for _, each in book.of(Observation)] == ["earlier", "later"]


def test_adding_twice_changes_nothing(workspace: Path, demo_runner: PrivateKey) -> None:
    observation = Observation(created_at=instant(START), parents=(), seat="s", label="cpu", subjects={}, resolved={})
    paths = {ledger.append_observation(workspace, observation, demo_runner) for _ in range(2)}
    assert len(paths) == 1
    assert list((workspace / ledger.OBSERVATIONS).iterdir()) == list(paths)


def test_a_report_is_found_by_the_name_of_its_run(workspace: Path, demo_runner: PrivateKey, tmp_path: Path) -> None:
    folder = publish(workspace, demo_runner, make_run(run="r1"), tmp_path)
    assert ledger.find_report(workspace, "r1") == folder
    for name in ("r2", "*", "../r1"):
        with pytest.raises(InputError, match="no such report"):
            ledger.find_report(workspace, name)


def test_without_trust_everything_is_foreign(workspace: Path, demo_runner: PrivateKey) -> None:
    announce(workspace, make_run(), demo_runner)
    assert ledger.load(workspace, Trust(())).entries == {}
