"""The desk's boot, and jobs in a process of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.errors import SeatError
from runner.model.plan import PlannedBoot
from runner.steps.seats import load_manifest
from serve.adapters.desk import DeskSeat
from serve.adapters.side import run_job
from serve.seat import BootRequest


def request(library: Path) -> BootRequest:
    """A desk boot over one library."""
    planned = PlannedBoot.model_validate(
        {"id": "desk", "role": "desk", "libraries": ["lna2"], "strict": 0, "seconds": 1}
    )
    return BootRequest(
        planned, load_manifest("cpu-mini"), library.parent, {"lna2": library}, "lna2", (), library.parent
    )


def test_a_desk_boot_has_no_engine_and_no_counters(tmp_path: Path) -> None:
    library = tmp_path / "lna2.so"
    library.write_bytes(b"x")
    boot = DeskSeat().boot(request(library))
    assert boot.record.label == "cpu"
    assert set(boot.record.ranks[0].libraries) == {"lna2"}
    assert boot.counters() == ()
    with pytest.raises(SeatError, match="does not know this job"):
        boot.call("restart")
    with pytest.raises(SeatError, match="does not know this job"):
        boot.call("parity", {"variant": "nobody"})
    assert (boot.stop().ended, boot.stop().leftovers) == ("stopped", ())


def test_a_missing_library_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SeatError, match="library of the desk is missing"):
        DeskSeat().boot(request(tmp_path / "none.so"))


def test_a_job_that_fails_gives_its_last_words() -> None:
    with pytest.raises(SeatError, match="failed") as error:
        run_job("serve.adapters.no_such_job", {}, timeout=120)
    assert "No module named serve.adapters.no_such_job" in error.value.found
