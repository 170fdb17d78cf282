"""The page and the terminal view of a report."""

from __future__ import annotations

import io
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from runner.attest.keys import PrivateKey
from runner.attest.statement import Signed
from runner.hidden import first_hidden
from runner.measured import unpack
from runner.model.report import Measured, ReportPredicate
from runner.report import compose
from runner.review import figures, page, plots, terminal
from runner.verify import read_report
from tests.runner.records import make_run, publish, trust_of


@pytest.fixture
def entry(workspace: Path, demo_runner: PrivateKey, tmp_path: Path) -> Signed:
    """A published report."""
    return read_report(publish(workspace, demo_runner, make_run(), tmp_path / "s"), trust_of(workspace))[0]


def measured_of(entry: Signed) -> Measured:
    return unpack(entry.of(ReportPredicate).record, "x")[0]


def test_the_page_needs_nothing_from_outside(entry: Signed) -> None:
    html = page.render(entry, measured_of(entry), 3)
    assert html.count("<svg") == 3
    assert not re.search(r"(?i)<script|<link|<img|<iframe|@import|url\(|src=|href=", html)
    assert "tried 3 time(s)" in html
    assert "speed-q0-b0" in html


def test_the_plots_are_well_formed_and_show_every_block(entry: Signed) -> None:
    measured = measured_of(entry)
    variants = figures.variants(measured)
    blocks = figures.blocks(measured)
    tree = ElementTree.fromstring(plots.samples_per_block(blocks, variants))
    assert len(tree.findall("circle")) == len(blocks) + len(variants)
    rows = ElementTree.fromstring(plots.rows_by_window(figures.rows_by_window(measured), variants))
    assert len(rows.findall("rect")) == 24 * 2
    assert "lna2: 192 at 1 rows" in "".join(rows.itertext())
    interval = plots.interval(figures.pairs(measured))
    assert len(ElementTree.fromstring(interval).findall("circle")) == 6


def test_the_interval_is_the_exact_one_of_six_pairs(entry: Signed) -> None:
    pairs = figures.pairs(measured_of(entry))
    assert pairs is not None
    assert pairs.coverage == 1 - 2**-5
    assert 95 < pairs.low <= pairs.high < 110
    assert [pair.quad for pair in pairs.values] == [f"q{number}" for number in range(6)]


def test_nothing_measured_draws_nothing() -> None:
    record = make_run().record
    empty = Measured(plan=record.plan, boots=(), samples=())
    assert figures.pairs(empty) is None
    assert plots.samples_per_block([], []) == plots.interval(None) == plots.rows_by_window([], []) == ""


def test_the_cost_of_each_layer_is_drawn_with_its_divergence() -> None:
    costs = [figures.LayerCost("model.layers.3", 0.41, "0.001"), figures.LayerCost("together", -1.16, "0.004")]
    drawn = plots.layer_costs(costs)
    assert drawn.count("<rect") == 2 and "+0.41 %" in drawn and "-1.16 %" in drawn
    assert "model.layers.3: perplexity +0.410 %, KL 0.001 nats" in drawn
    ElementTree.fromstring(drawn)
    assert plots.layer_costs([]) == ""


def test_a_disturbed_block_is_hollow_and_in_no_pair() -> None:
    record = make_run().record
    first = record.samples[0].model_copy(update={"disturbed": ("steal",)})
    measured = Measured(plan=record.plan, boots=record.boots, samples=(first, *record.samples[1:4]))
    svg = plots.samples_per_block(figures.blocks(measured), figures.variants(measured))
    assert svg.count('fill="none"') == 1
    assert "disturbed" in svg


def test_text_of_a_report_is_never_markup(workspace: Path, demo_runner: PrivateKey, tmp_path: Path) -> None:
    record = make_run().record
    evil = "<script>alert(1)</script>[bold]\u202etnecoNni\x1b[2J"
    boot = record.boots[0].model_copy(update={"ended": "died", "ended_reason": evil})
    (tmp_path / "report.dsse.json").write_bytes(compose(record.model_copy(update={"boots": (boot,)}), demo_runner))
    entry, _, _ = read_report(tmp_path, trust_of(workspace))
    html = page.render(entry, measured_of(entry), 1)
    assert "<script>" not in html and "&lt;script&gt;" in html
    assert first_hidden(html) is None and "[bold]\ufffdtnecoNni\ufffd[2J" in html


def test_the_terminal_shows_verdicts_pairs_and_launches(entry: Signed) -> None:
    screen = Console(file=io.StringIO(), width=160, force_terminal=False)
    terminal.show(screen, entry, measured_of(entry), 2)
    assert isinstance(screen.file, io.StringIO)
    text = screen.file.getvalue()
    for part in ("speed@1", "PASS", "try 2 of this candidate", "median, 96.9 %", "lna2 192", "seat time 68 s"):
        assert part in text


def test_the_terminal_names_windows_without_a_sample(demo_runner: PrivateKey, workspace: Path, tmp_path: Path) -> None:
    record = make_run().record.model_copy(update={"samples": make_run().record.samples[1:]})
    (tmp_path / "report.dsse.json").write_bytes(compose(record, demo_runner))
    entry, _, _ = read_report(tmp_path, trust_of(workspace))
    screen = Console(file=io.StringIO(), width=160)
    terminal.show(screen, entry, measured_of(entry), 1)
    assert isinstance(screen.file, io.StringIO)
    assert "without a sample: speed-q0-b0" in screen.file.getvalue()
