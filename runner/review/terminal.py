"""A report in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from runner.attest.statement import Signed
from runner.model.report import Measured, ReportPredicate
from runner.model.verdict import Status
from runner.review import figures
from runner.review.people import Waivers, told
from runner.review.text import Text
from runner.summary import without_sample

SHOWN = 12
"""Reasons and figures of one gate that fit a terminal."""

_STYLES = {Status.PASS: "bold green", Status.FAIL: "bold red"}


def _status(status: Status) -> Text:
    return Text(status, style=_STYLES.get(status, "bold yellow"))


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _first(lines: Sequence[str]) -> list[str]:
    """What a person reads; report.md and the page hold all of it."""
    more = len(lines) - SHOWN
    return [*lines[:SHOWN], *([f"… and {more} more in report.md"] if more > 0 else [])]


def show(console: Console, entry: Signed, measured: Measured, tries: int, waivers: Waivers = ()) -> None:
    """Print verdicts, pairs and engagement. Text out of the report is never read as markup."""
    report = entry.of(ReportPredicate)
    console.print(_status(report.verdict), Text(f"{report.order.name} on {report.seat.name} ({report.seat.label})"))
    console.print(Text(f"run {report.run}, {report.started_at} to {report.ended_at}, try {tries} of this candidate"))
    console.print(Text(f"signed by {', '.join(signer.principal for signer in entry.signers)}; report {entry.digest}"))
    console.print(Text(f"outside witnesses: {', '.join(report.assurance) or 'none'}"))
    console.print(Text(f"isolation: {report.seat.isolation}"))
    verdicts = _table("Verdicts", "gate", "verdict", "why", "figures")
    for gate in report.gates:
        told_figures = [f"{each.name} {each.value} {each.unit} {each.limit}".rstrip() for each in gate.figures]
        values = "\n".join(_first(told_figures))
        name, why = Text(f"{gate.name}@{gate.version}"), Text("; ".join(_first(gate.reasons)))
        verdicts.add_row(name, _status(gate.verdict), why, Text(values))
    console.print(verdicts)
    for each in told(report, waivers):
        table = _table(each.title, *each.headers)
        for row in each.rows:
            table.add_row(*map(Text, row))
        console.print(table)
    if pairs := figures.pairs(measured):
        gains = _table("Candidate over incumbent", "quad", "gain")
        for pair in pairs.values:
            gains.add_row(Text(pair.quad), f"{pair.percent:+.2f} %")
        gains.add_row(f"median, {100 * pairs.coverage:.1f} %", f"{pairs.low:+.2f} % to {pairs.high:+.2f} %")
        console.print(gains)
    ran = _table("Launches of routed experts", "window", "rank", "ran")
    for window in figures.rows_by_window(measured):
        counts = ", ".join(f"{variant} {sum(rows.values())}" for variant, rows in window.launches.items())
        ran.add_row(Text(window.window), str(window.rank), Text(counts))
    console.print(ran)
    if missing := without_sample(measured):
        console.print(Text(f"without a sample: {', '.join(missing)}", style="yellow"))
    console.print(Text(f"seat time {sum(cost.seconds for cost in report.costs)} s"))


__all__ = ["show"]
