"""Where things stand: status and watch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from runner.commands.output import AsJson, answer, print_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from runner.watch import Picture

WATCH_SECONDS = 0.5


def status(
    all_runs: Annotated[bool, typer.Option("--runs", help="Every run of yours, too.")] = False, as_json: AsJson = False
) -> None:
    """Every order with its stage, attempt, open items and next action."""
    from rich.console import Console
    from rich.table import Table

    from runner.paths import workspace
    from runner.review.text import Text
    from runner.session import runs
    from runner.status import order_states

    orders, mine = order_states(workspace()), runs()
    if as_json:
        value = {"orders": [one.model_dump() for one in orders], "runs": [one.model_dump() for one in mine]}
        answer(value, "", as_json=True)
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("order", "stage", "detail", "open items", "next"):
        table.add_column(heading, no_wrap=heading in ("order", "stage", "next"))
    for one in orders:
        cells = (f"{one.order} v{one.version}", one.stage, one.detail, "\n".join(one.items), one.next)
        table.add_row(*map(Text, cells))
    if orders:
        print_table(table)
    else:
        typer.echo("no orders")
    for run in mine if all_runs else []:
        Console().print(Text(f"{run.run}  {run.order}  {run.state}"), soft_wrap=True)


def watch(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run; by default what is at work now.")] = "",
    once: Annotated[bool, typer.Option("--once", help="One picture, then stop.")] = False,
    as_json: AsJson = False,
) -> None:
    """Follow a run, or a craftsperson at work, until it ends."""
    import time

    from rich.console import Console
    from rich.live import Live

    from runner.watch import picture

    seen = picture(run)
    if as_json:
        answer(seen.model_dump(), "", as_json=True)
        return
    if once:
        Console().print(_drawn(seen))
        return
    with Live(_drawn(seen), auto_refresh=False) as live:
        while not seen.ended:
            time.sleep(WATCH_SECONDS)
            seen = picture(run)
            live.update(_drawn(seen), refresh=True)
    if not live.console.is_terminal:  # there the last picture ends without a line's end
        live.console.line()


def _drawn(seen: Picture) -> RenderableType:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    from runner.review.text import Text
    from runner.watch import age

    left = f", about {seen.seconds_left} s left" if seen.seconds_left else ""
    disturbed = f", {seen.disturbed} blocks disturbed" if seen.disturbed else ""
    lines = [
        *([Text(seen.idle)] if seen.idle else []),
        Text(seen.what, style="bold"),
        Text(f"{seen.step}: {seen.now or 'between two things'}, last word {age(seen)} s ago"),
        Text(f"{seen.done} of {seen.windows} windows{left}{disturbed}"),
        *(Text(note, style="bold red") for note in seen.notes),
    ]
    table = Table(box=None, pad_edge=False)
    for heading in ("boot", "state", "windows", ""):
        table.add_column(heading)
    for boot in seen.boots:
        bar = ProgressBar(total=max(boot.windows, 1), completed=boot.done, width=24)
        table.add_row(Text(boot.id), Text(boot.ended or boot.state), f"{boot.done} of {boot.windows}", bar)
    return Group(*lines, *([table] if seen.boots else []))


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command()(status)
    app.command()(watch)
