"""The journal and files that appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.errors import StateError
from runner.files import append_line, write_whole
from runner.steps.journal import Journal


def test_events_are_found_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.write("window-closed", window="a", boot="x")
    journal.write("window-closed", window="b", boot="x")
    again = Journal(tmp_path / "journal.jsonl")
    assert [event.facts["window"] for event in again.of("window-closed")] == ["a", "b"]
    assert len(again.of("window-closed", window="b", boot="x")) == 1
    assert again.of("window-opened") == []


@given(st.integers(0, 200))
def test_a_line_cut_short_by_a_crash_is_dropped(cut: int) -> None:
    import tempfile  # noqa: PLC0415 (hypothesis and tmp_path do not mix)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        journal = Journal(path)
        for number in range(3):
            journal.write("step", number=number)
        data = path.read_bytes()
        path.write_bytes(data[: max(0, len(data) - cut)])
        kept = Journal(path)
        assert [event.facts["number"] for event in kept.of("step")] == list(range(len(kept.of("step"))))
        kept.write("after")
        assert len(Journal(path).of("after")) == 1


def test_a_line_that_is_no_event_is_refused(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_text('{"event": "x"}\n')
    with pytest.raises(StateError, match="cannot be read"):
        Journal(tmp_path / "journal.jsonl")


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    write_whole(tmp_path / "a" / "b.json", b"{}", mode=0o600)
    assert (tmp_path / "a" / "b.json").stat().st_mode & 0o777 == 0o600
    with pytest.raises(StateError, match="could not be written"):
        write_whole(tmp_path / "a" / "b.json" / "c", b"{}")
    with pytest.raises(StateError, match="journal"):
        append_line(tmp_path / "a", b"{}")
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["b.json"]
