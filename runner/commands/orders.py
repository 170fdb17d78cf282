"""Before a run: init, new, check, schema, gates, brief, plan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from runner.commands.output import AsJson, answer
from runner.visible import told, visible

OrderPath = Annotated[Path, typer.Argument(metavar="ORDER", help="A work order (YAML).")]
SeatName = Annotated[str, typer.Option("--seat", help="Another seat than the order's.")]


def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="An empty or new folder.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Make a workspace: orders, canon and reports, and who can be given an order."""
    from runner.workspace import make_workspace, write_crew, write_schema

    made = make_workspace(folder)
    write_schema(made)
    write_crew(made)
    answer({"workspace": str(made)}, f"workspace {made}", as_json=as_json)


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The order's id.")],
    kind: Annotated[str, typer.Option(help="kernel, bake, overlay, patch, gate or survey.")] = "kernel",
    seat: Annotated[str, typer.Option(help="Where it will run.")] = "fake",
    as_json: AsJson = False,
) -> None:
    """Write a starter order; `check` says what is left to fill in."""
    from runner.paths import command, workspace
    from runner.workspace import write_starter

    path = write_starter(workspace(), name, kind, seat)
    text = f"wrote {path}\nwhat is left to fill in: {command('check', path)}"
    answer({"order": str(path)}, text, as_json=as_json)


def check(
    orders: Annotated[list[Path], typer.Argument(metavar="ORDER", help="Work orders (YAML).")],
    seat: SeatName = "",
    as_json: AsJson = False,
) -> int:
    """Check orders against their schema and their seat."""
    from runner.errors import InputError

    faults = {}
    for path in orders:
        try:
            faults[str(path)] = _faults(path, seat)
        except InputError as error:
            if len(orders) == 1:
                raise
            faults[str(path)] = [told(error)]
    found = {path: lines or [_good(Path(path), seat)] for path, lines in faults.items()}
    lines = [line.replace("\n", "\n    ") for each in found.values() for line in each]
    answer(faults, "\n".join(lines), as_json=as_json)
    return 3 if any(faults.values()) else 0


def _faults(path: Path, seat: str) -> list[str]:
    """Raises InputError for a file that is no order, before anything is loaded that could decide one."""
    from runner.model.order import load_order

    load_order(path)

    from runner.check import check_file

    return [str(fault) for fault in check_file(path, seat)]


def _good(path: Path, seat: str) -> str:
    from runner.check import looked_at

    return f"{visible(str(path))}: good{looked_at(path, seat)}"


def schema(
    record: Annotated[
        str,
        typer.Argument(
            metavar="RECORD",
            help="order, craftspeople, reviews, open-items, seat, plan, record, evidence, or a signed one: report ...",
        ),
    ] = "order",
    as_json: AsJson = False,
) -> None:
    """Print a JSON Schema."""
    import json

    from runner.schemas import json_schema

    found = json_schema(record)
    answer(found, json.dumps(found, indent=2), as_json=as_json)


def gates(as_json: AsJson = False) -> None:
    """List the gates with their versions, parameters, and the figures that a kill line can rest on."""
    from runner.gates.figure_names import FIGURES
    from runner.gates.registry import all_gates, parameter_schema

    found: list[dict[str, Any]] = [
        {
            "name": one.NAME,
            "version": one.VERSION,
            "parameters": parameter_schema(one),
            "figures": list(FIGURES[one.NAME]),
        }
        for one in all_gates()
    ]
    lines = []
    for one in found:
        named = ", ".join(one["parameters"].get("properties", {})) or "no parameters"
        lines.append(f"{one['name']}@{one['version']}  {named}")
        lines += [f"    figures: {'; '.join(one['figures'])}"] if one["figures"] else []
    answer(found, "\n".join(lines), as_json=as_json)


def brief(
    order: OrderPath,
    seat: SeatName = "",
    language: Annotated[str, typer.Option(help="en or ja.")] = "en",
    as_json: AsJson = False,
) -> None:
    """Show what a craftsperson is given, from the order and its gates."""
    from runner.brief.render import brief_of

    text = brief_of(order, seat, language)
    answer({"brief": text}, text, as_json=as_json)


def plan(order: OrderPath, seat: SeatName = "", as_json: AsJson = False) -> None:
    """Show steps with seconds and each gate's chances of being wrong."""
    from runner.plan_text import draft

    value: dict[str, Any]
    value, text = draft(order, seat)
    answer(value, text, as_json=as_json)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    for command in (init, new, check, schema, gates, brief, plan):
        app.command()(command)
