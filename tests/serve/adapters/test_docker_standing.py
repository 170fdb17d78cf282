"""What stands on a seat, counted against the canonical manifest while it serves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from runner.cli import run
from runner.errors import SeatError
from runner.model.configuration import pairs
from runner.model.seat import SeatManifest
from runner.standing import canonical_boot
from serve.adapters.docker import DockerSeat
from serve.adapters.docker_standing import standing
from tests.runner.test_restore_docker import manifest
from tests.serve.adapters.docker_stand_in import World
from tests.serve.adapters.test_docker import world_of


@contextmanager
def standing_seat(folder: Path, seat: SeatManifest) -> Iterator[None]:
    """The canonical container, started by somebody and left serving."""
    library = folder / "incumbent.so"
    library.write_bytes(b"incumbent")
    asked = replace(canonical_boot(seat, folder / "boot"), libraries={"incumbent": library}, pack=Path(seat.pack))
    boot = DockerSeat().boot(asked)
    try:
        yield
    finally:
        boot.stop()


def different(folder: Path, seat: SeatManifest) -> dict[str, str]:
    _, asked, answer = standing(canonical_boot(seat, folder))
    return {pair.name: pair.resolved for pair in pairs(asked, answer) if pair.requested != pair.resolved}


def test_nothing_differs_where_the_canonical_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seat = manifest(tmp_path)
    with world_of(tmp_path, monkeypatch) as daemon, standing_seat(tmp_path, seat):
        before = len(daemon.containers)
        assert different(tmp_path, seat) == {}
        assert len(daemon.containers) == before, "nothing was started"
        assert different(tmp_path, manifest(tmp_path, kv_tokens=9)) == {"kv_tokens": "8192"}


def test_what_was_mounted_and_printed_otherwise_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FL-10: mounts were counted by eye."""
    world = World(adds="/engine/attention.py", says="INFO F2 DENSE_GROUP=1 ACTIVE\n")
    seat = manifest(tmp_path)
    with world_of(tmp_path, monkeypatch, world), standing_seat(tmp_path, seat):
        assert different(tmp_path, seat) == {
            "container.mounts": "13",
            "container.mount./engine/attention.py": "/srv/other writable",
            "log lines with 'F2 DENSE_GROUP'": "1",
        }


def test_the_command_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seat = manifest(tmp_path)
    monkeypatch.setattr("runner.standing.load_manifest", lambda _: seat)
    with world_of(tmp_path, monkeypatch, World(adds="/other")):
        assert run(["seat", "status", "fake-tp2"]) == 2
        assert "not one container stands" in capsys.readouterr().err
        with standing_seat(tmp_path, seat):
            assert run(["seat", "status", "fake-tp2", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert {one["name"] for one in told["differences"]} == {"container.mounts", "container.mount./other"}
    assert told["compared"] > len(told["differences"])


def test_a_seat_that_only_a_runner_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["seat", "status", "cpu-mini"]) == 3
    assert "nothing stands on this seat without a runner" in capsys.readouterr().err


def test_a_seat_that_stands_is_not_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seat = manifest(tmp_path)
    with world_of(tmp_path, monkeypatch) as daemon, standing_seat(tmp_path, seat):
        with pytest.raises(SeatError, match="stands already"), standing_seat(tmp_path, seat):
            pass
        assert [one.inspect["State"]["Running"] for one in daemon.containers.values()] == [True]


def test_two_containers_of_one_seat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seat = manifest(tmp_path)
    with world_of(tmp_path, monkeypatch) as daemon, standing_seat(tmp_path, seat):
        (one,) = daemon.containers.values()
        twin = replace(one, name="twin", inspect=one.inspect | {"Name": "/twin"}, process=None)
        daemon.containers["twin"] = twin
        with pytest.raises(SeatError, match="not one container") as error:
            standing(canonical_boot(seat, tmp_path))
        assert error.value.found == "carve-fake-tp2-standing-standing, twin"
