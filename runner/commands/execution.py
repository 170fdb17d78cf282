"""The run itself: build, execute, and seats."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from runner.commands.output import AsJson, answer

OrderPath = Annotated[Path, typer.Argument(metavar="ORDER", help="A work order (YAML).")]
SeatOption = Annotated[str, typer.Option("--seat", help="Another seat than the order's.")]
SeatName = Annotated[str, typer.Argument(metavar="SEAT", help="Name of a manifest in serve/seats.")]


def build(order: OrderPath, as_json: AsJson = False) -> None:
    """Build the native libraries of an order, or find them kept."""
    from runner.model.order import load_order
    from runner.plan import runnable, target_of
    from runner.steps.build import brought, build_libraries, subjects_of, wanted
    from runner.steps.seats import load_manifest

    loaded = runnable(load_order(order))
    manifest = load_manifest(target_of(loaded).seat)
    libraries = build_libraries(wanted(loaded, manifest), manifest, brought(loaded))
    value = {"libraries": {name: str(path) for name, path in libraries.items()}, "subjects": subjects_of(libraries)}
    answer(value, "\n".join(f"{name}  {path}" for name, path in libraries.items()), as_json=as_json)


def execute(
    *,
    order: OrderPath,
    seat: SeatOption = "",
    resume: Annotated[str, typer.Option("--resume", metavar="RUN", help="Continue this run after a crash.")] = "",
    candidate: Annotated[
        Path | None, typer.Option("--candidate", metavar="FILE", help="A frozen candidate: what `dispatch` left.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress on standard error.")] = False,
    as_json: AsJson = False,
) -> int:
    """Build, serve, measure, judge, restore and sign."""
    from runner.commands.progress import watching
    from runner.craft.dispatch import require_alive
    from runner.model.order import load_order
    from runner.paths import workspace
    from runner.session import open_run, release, summary
    from runner.workflow import execute as execute_steps

    require_alive(load_order(order), workspace(), resume)
    with watching(quiet=quiet or as_json) as progress:
        run = open_run(order, seat=seat, resume=resume, candidate=candidate, progress=progress)
        progress.note(f"run {run.name} in {run.folder}")
        code = execute_steps(run)
        release(run)
    value, text = summary(run, code)
    answer(value, text, as_json=as_json)
    return code


def seal(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run whose job was measured elsewhere.")],
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="The folder that came back.")],
    *,
    partial: Annotated[bool, typer.Option("--partial", help="Judge what there is: the rest will not be measured.")] = (
        False
    ),
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress on standard error.")] = False,
    as_json: AsJson = False,
) -> int:
    """Take in what another machine measured, judge it, and sign the report."""
    from runner.bundle import taken_in
    from runner.commands.progress import watching
    from runner.session import kept_order, open_run, release, summary
    from runner.workflow import execute as execute_steps

    with watching(quiet=quiet or as_json) as progress:
        opened = open_run(kept_order(run), resume=run, progress=progress)
        try:
            with taken_in(opened, bundle, partial=partial) as taken:
                code = execute_steps(taken)
        finally:
            release(opened)
    value, text = summary(opened, code)
    answer(value, text, as_json=as_json)
    return code


def challenge(
    seat: SeatName,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress on standard error.")] = False,
    as_json: AsJson = False,
) -> None:
    """Try every known cheat on a seat with the present gates, and sign what noticed it."""
    from runner.attest.trust import load_trust
    from runner.challenge import challenge as try_all
    from runner.commands.progress import watching
    from runner.paths import workspace
    from runner.steps.seal import signing_key

    key = signing_key(workspace())
    with watching(quiet=quiet or as_json) as progress:
        made, path = try_all(workspace(), seat, load_trust(workspace()), key, progress)
    lines = [f"{one.exploit}: {', '.join(one.caught_by) or f'open: {one.open}'}" for one in made.tried]
    caught = sum(bool(one.caught_by) for one in made.tried)
    text = "\n".join([*lines, f"{caught} of {len(made.tried)} noticed, the rest open; signed: {path}"])
    answer({"path": str(path), **made.model_dump(mode="json")}, text, as_json=as_json)


seat = typer.Typer(help="Standing seats.", no_args_is_help=True)


@seat.command("list")
def seat_list(as_json: AsJson = False) -> None:
    """Every seat of this checkout."""
    from runner.steps.seats import load_manifest, seat_names

    found = [load_manifest(name) for name in seat_names()]
    lines = [f"{one.name}  {one.adapter}  {one.distribution}  {one.pack}" for one in found]
    answer([one.model_dump(mode="json") for one in found], "\n".join(lines), as_json=as_json)


@seat.command("noise")
def seat_noise(name: SeatName, as_json: AsJson = False) -> None:
    """What the signed reports of a seat say of its noise: the manifest's block ``noise``."""
    from runner import ledger
    from runner.attest.trust import load_trust
    from runner.noise import seat_noise as measure
    from runner.paths import workspace
    from runner.steps.seats import load_manifest

    here = workspace()
    found = measure(ledger.load(here, load_trust(here)), load_manifest(name).name)
    answer(found.model_dump(mode="json"), "\n".join(found.lines), as_json=as_json)


@seat.command("up")
def seat_up(name: SeatName, as_json: AsJson = False) -> None:
    """Boot the incumbent and hold it until interrupted or terminated."""
    import signal
    import sys
    from contextlib import suppress

    from runner.standing import standing

    # A shell starts what it puts in the background with interrupts ignored; a seat must end there too.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with suppress(KeyboardInterrupt), standing(name) as boot:
        text = f"{boot.record.id} answers on {boot.base_url}; interrupt to stop"
        answer({"boot": boot.record.id, "url": boot.base_url}, text, as_json=as_json)
        sys.stdout.flush()
        signal.pause()


@seat.command("status")
def seat_status(name: SeatName, as_json: AsJson = False) -> int:
    """Count what stands on a docker seat against its manifest; exit 1 where they differ."""
    from runner.standing import differences_now

    container, compared, differences = differences_now(name)
    lines = [f"{one.name}: {one.requested} is canonical, {one.resolved} stands" for one in differences]
    value = {"container": container, "compared": compared, "differences": [one.model_dump() for one in differences]}
    answer(value, "\n".join([*lines, f"{container}: {len(lines)} of {compared} differ"]), as_json=as_json)
    return 1 if differences else 0


@seat.command("readback")
def seat_readback(
    name: SeatName,
    record: Annotated[bool, typer.Option("--record", help="Sign it into canon/observations.")] = False,
    as_json: AsJson = False,
) -> None:
    """Boot the incumbent, read back what it is, and stop it."""
    from runner.paths import workspace
    from runner.standing import observe, standing

    with standing(name) as boot:
        found = boot.record
    value = found.model_dump(mode="json")
    lines = [f"{key}: {value[key]}" for key in ("id", "label", "engine", "kv_tokens", "canary", "resolved")]
    if record:
        value["observation"] = str(observe(workspace(), name, found))
        lines.append(f"signed: {value['observation']}")
    answer(value, "\n".join(lines), as_json=as_json)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    for command in (build, execute, seal, challenge):
        app.command()(command)
    app.add_typer(seat, name="seat")
