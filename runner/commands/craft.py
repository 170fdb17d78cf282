"""Craftspeople at work: dispatch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runner.commands.output import AsJson, answer
from runner.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runner.craft.dispatch import Dispatch
    from runner.craft.loop import Carried
    from runner.model.attempt import Attempt

OrderPath = Annotated[Path, typer.Argument(metavar="ORDER", help="A work order (YAML).")]


def dispatch(
    *,
    order: OrderPath,
    to: Annotated[str, typer.Option("--to", metavar="NAME", help="An entry of orders/people/craftspeople.yaml.")] = "",
    network_because: Annotated[
        str, typer.Option(help="Why the craftsperson may use a network that the order closes.")
    ] = "",
    hand_in: Annotated[bool, typer.Option("--hand-in", help="A person's clone is finished: look at it.")] = False,
    execute: Annotated[
        bool, typer.Option("--execute", help="Execute each candidate and go on until one passes or no attempt is left.")
    ] = False,
    seat: Annotated[str, typer.Option("--seat", help="With --execute: another seat than the order's.")] = "",
    release: Annotated[bool, typer.Option("--release", help="Let go of the files that the order holds.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress on standard error.")] = False,
    as_json: AsJson = False,
) -> int:
    """Give an order to a craftsperson, in a clone of its own, until a candidate is frozen (or, executed, passes)."""
    from runner.commands.progress import watching
    from runner.craft.dispatch import Dispatch
    from runner.craft.dispatch import dispatch as give
    from runner.craft.leases import let_go
    from runner.errors import InputError
    from runner.model.order import load_order
    from runner.paths import source_root, workspace

    if release:
        held = let_go(load_order(order))
        answer({"released": held}, "files let go" if held else "nothing was held", as_json=as_json)
        return 0
    if not to:
        raise InputError("nobody is named", expected="--to NAME", found="nothing")
    _ended_as_interrupted()
    with watching(quiet=quiet or as_json) as progress:
        given = Dispatch(order, to, workspace(), source_root(), progress, network_because, hand_in)
        if execute:
            from runner.craft.loop import carry_out

            value, text, code = _carried(given, carry_out(given, seat))
        else:
            value, text, code = _made(given, give(given))
    answer(value, text, as_json=as_json)
    return code


def _ended_as_interrupted() -> None:
    """A kill or a closed terminal ends sessions as Ctrl-C does: what is known of them is kept."""
    import signal

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


Told = tuple[dict[str, Any], str, int]
"""JSON, text and exit code."""


def _made(given: Dispatch, made: Attempt | Path) -> Told:
    from runner.craft.bench import CANDIDATE
    from runner.paths import command

    if isinstance(made, Path):
        return _awaits(given, made)
    bench = given.bench.folder
    value = {"bench": str(bench), "attempt": made.model_dump(mode="json")}
    if made.commit is None:
        lines = [f"attempt {made.number}: no candidate", *(f"  {one.kind}: {one.detail}" for one in made.findings)]
        return value, _text(lines), 1
    lines = [
        f"attempt {made.number}: candidate {made.commit}",
        *(f"  {path}" for path in made.changed),
        f"next: {command('execute', given.order, '--candidate', bench / CANDIDATE)}",
    ]
    return value | {"candidate": str(bench / CANDIDATE)}, _text(lines), 0


def _text(lines: Iterable[str]) -> str:
    """Each on one line, whatever names files have that a craftsperson made, and whatever they said."""
    return "\n".join(map(visible, lines))


def _awaits(given: Dispatch, clone: Path, *more: str) -> Told:
    from runner.paths import command

    brief, again = clone.parent / "brief.md", command("dispatch", given.order, "--to", given.name, "--hand-in", *more)
    text = f"clone {clone}\nbrief {brief}\nwhen it is finished: {again}"
    return {"clone": str(clone), "brief": str(brief)}, text, 0


def _carried(given: Dispatch, carried: Carried) -> Told:
    from runner.paths import workspace
    from runner.summary import attempt_outcome

    value: dict[str, Any] = {"attempts": [one.model_dump(mode="json") for one in carried.attempts]}
    lines = [f"attempt {one.number} by {one.craftsperson}: {attempt_outcome(one)}" for one in carried.attempts]
    if carried.run:
        report = workspace() / "reports" / given.file.order.id / carried.run
        value |= {"run": carried.run, "report": str(report) if report.is_dir() else None}
        lines.append(f"report: {report}" if report.is_dir() else f"run {carried.run} has no report")
    if carried.clone:
        awaits, text, _ = _awaits(given, carried.clone, "--execute")
        value, lines = value | awaits, [*lines, *text.splitlines()]
    return value | {"exit_code": carried.code}, _text(lines), carried.code


def review_order(
    *,
    order: OrderPath,
    network_because: Annotated[
        str, typer.Option(help="Why a reviewer may use the network that the order closes.")
    ] = "",
    as_json: AsJson = False,
) -> int:
    """Ask the order's reviewers, side by side, for claims; whoever gave some already is not asked again."""
    from runner.craft.reviewers import review
    from runner.paths import command, source_root, workspace

    _ended_as_interrupted()
    path, silent = review(order, workspace(), source_root(), network_because)
    lines = [f"claims: {path}", *(f"{name} gave none: {why}" for name, why in silent.items())]
    lines.append(f"next: {command('conflicts', path)}")
    answer({"claims": str(path), "silent": silent}, _text(lines), as_json=as_json)
    return 2 if silent else 0


def conflicts(
    reviews: Annotated[Path, typer.Argument(metavar="REVIEWS", help="A file of reviews (YAML).")],
    into: Annotated[
        Path | None, typer.Option("--into", metavar="ORDER", help="The order they are about: write its next version.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Show where reviewers' answers conflict and what arithmetic leaves of them."""
    from runner.craft.conflicts import conflicts as table_of
    from runner.craft.conflicts import lines
    from runner.craft.next_version import next_version
    from runner.files import write_whole
    from runner.model.order.review import ReviewFile
    from runner.yaml_strict import read

    file: ReviewFile = read(reviews).validate(ReviewFile)
    table = table_of(file)
    if into is not None:
        write_whole(into, next_version(into.read_text(encoding="utf-8"), file, table, str(reviews)).encode())
    answer([one.model_dump(mode="json") for one in table], _text(lines(table)), as_json=as_json)
    return 2 if any(one.answer is None for one in table) else 0


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command()(dispatch)
    app.command("review-order")(review_order)
    app.command()(conflicts)
