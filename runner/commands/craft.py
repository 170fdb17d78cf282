"""Craftspeople at work: dispatch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from runner.commands.output import AsJson, answer

OrderPath = Annotated[Path, typer.Argument(metavar="ORDER", help="A work order (YAML).")]


def dispatch(
    *,
    order: OrderPath,
    to: Annotated[str, typer.Option("--to", metavar="NAME", help="An entry of orders/people/craftspeople.yaml.")] = "",
    network_because: Annotated[
        str, typer.Option(help="Why the craftsperson may use a network that the order closes.")
    ] = "",
    hand_in: Annotated[bool, typer.Option("--hand-in", help="A person's clone is finished: look at it.")] = False,
    release: Annotated[bool, typer.Option("--release", help="Let go of the files that the order holds.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress on standard error.")] = False,
    as_json: AsJson = False,
) -> int:
    """Give an order to a craftsperson, in a clone of its own, until a candidate is frozen."""
    from runner.commands.progress import watching
    from runner.craft.bench import CANDIDATE, Bench
    from runner.craft.dispatch import Dispatch
    from runner.craft.dispatch import dispatch as give
    from runner.errors import InputError
    from runner.model.order import load_order
    from runner.paths import source_root, workspace

    bench = Bench.of(load_order(order))
    if release:
        held = bench.release()
        answer({"released": held}, "files let go" if held else "nothing was held", as_json=as_json)
        return 0
    if not to:
        raise InputError("nobody is named", expected="--to NAME", found="nothing")
    with watching(quiet=quiet or as_json) as progress:
        given = Dispatch(order, to, workspace(), source_root(), progress, network_because, hand_in)
        made = give(given)
    if isinstance(made, Path):
        brief, again = made.parent / "brief.md", f"runner dispatch {order} --to {to} --hand-in"
        text = f"clone {made}\nbrief {brief}\nwhen it is finished: {again}"
        answer({"clone": str(made), "brief": str(brief)}, text, as_json=as_json)
        return 0
    value = {"bench": str(bench.folder), "attempt": made.model_dump(mode="json")}
    if made.commit is None:
        lines = [f"attempt {made.number}: no candidate", *(f"  {one.kind}: {one.detail}" for one in made.findings)]
        answer(value, "\n".join(lines), as_json=as_json)
        return 1
    candidate = bench.folder / CANDIDATE
    lines = [
        f"attempt {made.number}: candidate {made.commit}",
        *(f"  {path}" for path in made.changed),
        f"next: runner execute {order} --candidate {candidate}",
    ]
    answer(value | {"candidate": str(candidate)}, "\n".join(lines), as_json=as_json)
    return 0


def review_order(order: OrderPath, as_json: AsJson = False) -> int:
    """Ask the order's reviewers, side by side, for claims."""
    from runner.craft.reviewers import review
    from runner.paths import source_root, workspace

    path, silent = review(order, workspace(), source_root())
    lines = [f"claims: {path}", *(f"{name} gave none: {why}" for name, why in silent.items())]
    answer(
        {"claims": str(path), "silent": silent}, "\n".join([*lines, f"next: runner conflicts {path}"]), as_json=as_json
    )
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
    answer([one.model_dump(mode="json") for one in table], "\n".join(lines(table)), as_json=as_json)
    return 2 if any(one.answer is None for one in table) else 0


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command()(dispatch)
    app.command("review-order")(review_order)
    app.command()(conflicts)
