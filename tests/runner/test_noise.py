"""A seat's noise follows from signed reports, and the manifest says what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner import ledger
from runner.attest.statement import Signed
from runner.attest.trust import load_trust
from runner.cli import run
from runner.errors import InputError
from runner.model.report import Measured
from runner.noise import BOOTS, seat_noise
from runner.paths import source_root
from runner.steps.seats import load_manifest


@pytest.fixture(scope="module")
def book() -> ledger.Ledger:
    return ledger.load(source_root(), load_trust(source_root(), user=False))


def test_the_manifest_says_what_the_runs_it_names_measured(book: ledger.Ledger) -> None:
    stated = load_manifest("cpu-mini").noise
    found = seat_noise(book, "cpu-mini", [stated.source, *stated.boot_to_boot_source.split()])
    assert (f"{found.a_a_half_width:.4f}", f"{found.boot_to_boot:.2f}") == (stated.a_a_half_width, stated.boot_to_boot)
    assert found.boots >= BOOTS
    assert [one.run for one in found.runs if one.a_a_half_width is not None] == [stated.source]
    assert f'boot_to_boot: "{stated.boot_to_boot}"' in found.lines


def test_one_run_has_too_few_boots_to_say_how_boots_differ(book: ledger.Ledger) -> None:
    name = load_manifest("cpu-mini").noise.boot_to_boot_source.split()[0]
    found = seat_noise(book, "cpu-mini", [name])
    assert (found.boots, found.boot_to_boot, found.a_a_half_width) == (3, None, None)
    assert [one.alone_over_shared for one in found.runs] == [pytest.approx(0.1335, abs=1e-4)]


def test_pairs_of_boots_say_nothing_about_pairs_of_blocks(book: ledger.Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    source, read = load_manifest("cpu-mini").noise.source, ledger.Ledger.measured

    def by_boot(book: ledger.Ledger, entry: Signed) -> Measured:
        measured = read(book, entry)
        return measured.model_copy(update={"plan": measured.plan.model_copy(update={"pairing": "boot"})})

    assert seat_noise(book, "cpu-mini", [source]).a_a_half_width is not None
    monkeypatch.setattr(ledger.Ledger, "measured", by_boot)
    assert seat_noise(book, "cpu-mini", [source]).a_a_half_width is None


@pytest.mark.parametrize("seat", ["fake", "desk-h200"])
def test_a_seat_whose_rate_was_never_measured_has_no_noise(book: ledger.Ledger, seat: str) -> None:
    with pytest.raises(InputError, match="no report measured a rate"):
        seat_noise(book, seat)


def test_the_command_prints_the_block(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:

    monkeypatch.setenv("CARVE_CONFIG", str(tmp_path))
    monkeypatch.chdir(source_root())
    assert run(["seat", "noise", "cpu-mini"]) == 0
    assert 'a_a_half_width: "' in capsys.readouterr().out
