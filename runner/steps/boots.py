"""The measured part of a run: each planned boot once, its windows in order, evidence on disk before the next window.

What a crash left behind is kept and named: a boot that was running becomes *aborted*; a quad of which blocks are
missing is measured again as a whole, and its old blocks are set aside.
"""

from __future__ import annotations

import pkgutil
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from runner.boots import label_of, new_record
from runner.digest import canonical_json
from runner.errors import AbsentError, SeatError
from runner.files import write_whole
from runner.identity import host_faults, identity_faults, weights_faults
from runner.loading import first_variant, loads
from runner.model.boot import BootRecord
from runner.model.plan import Plan, PlannedBoot, PlannedWindow
from runner.paths import source_root
from runner.plan_layout import KNOCK_OUTS
from runner.steps.evidence import closed_in, keep, kept_evidence, set_aside
from runner.steps.journal import TAKEN_IN
from runner.steps.judge import struck
from runner.steps.kept import note_marks, with_product
from runner.steps.reduce import reduce, sample_of
from runner.steps.seats import pack_of, sandbox_of, seat_of
from runner.steps.state import Run
from serve.client.context import WindowContext
from serve.client.foreign import disturbed_by_others
from serve.client.refusal import refused
from serve.client.registry import driver
from serve.seat import Boot, BootRequest

POOLS = Path("recipe/mini/text")
BOOTS = "boots"
AFTER_BOOTS = "restore@"
"""Instruments whose reading is taken once every boot has ended."""
TOO_BUSY = "too-busy"
"""Event of a run whose machine was no place to measure."""
DISTURBED = "block-disturbed"
"""Event of a timed block; ``explained`` where other processes that can be seen disturbed its quad."""
DISTURBED_SHARE = 4
"""More than one timed block in four set aside: the machine is no place to measure, and nothing is repeated any more."""
REPEATS = 3
"""So often a block is measured again; then it stays disturbed, and its pair counts for nothing."""


def boots(run: Run) -> Run:
    """Measure every window that is not measured yet. A boot that cannot come up or dies costs only its own windows."""
    note_marks(run)
    _abort_running(run)
    for planned in run.plan.boots:
        if run.journal.of("boot-ended", planned=planned.id):
            continue
        if run.plan.kill_lines and (killed := struck(reduce(_with_boots(run)))):
            run.journal.write("killed", gate=killed)
            run.progress.note(f"kill line {killed} stops the run")
            return _with_boots(run).with_outcome(killed_by=killed)
        if run.journal.of(TAKEN_IN):
            continue
        blocks = [block for block in blocks_of(run, planned) if not _finished(run, block)]
        if blocks and not run.has_time_for(planned.seconds + _seconds_of(blocks[0])):
            break
        if blocks:
            _boot(run, planned, blocks)
    return _with_boots(run)


def to_measure(plan: Plan) -> tuple[str, ...]:
    """The planned boots in which anything is measured: not those whose windows are read once every boot has ended."""
    named = {window.boot for window in plan.windows if not window.instrument.startswith(AFTER_BOOTS)}
    return tuple(boot.id for boot in plan.boots if boot.id in named)


def nothing_answered(records: tuple[BootRecord, ...], plan: Plan) -> bool:
    """Whether no engine answered in any boot that is there to serve; on an order for a desk, no desk."""
    roles = {boot.id: boot.role for boot in plan.boots if boot.id in to_measure(plan)}
    served = {name for name, role in roles.items() if role != "desk"} or roles.keys()
    return bool(served) and not any(record.engine for record in records if record.planned in served)


def _seconds_of(block: tuple[PlannedWindow, ...]) -> int:
    return sum(window.seconds for window in block)


def blocks_of(run: Run, planned: PlannedBoot) -> Iterator[tuple[PlannedWindow, ...]]:
    """The boot's windows in order; the four of a quad stay together."""
    quads: dict[str, list[PlannedWindow]] = {}
    for window in run.windows_of(planned):
        if window.instrument.startswith(AFTER_BOOTS):
            continue
        quads.setdefault(str(window.arguments.get("quad", window.id)), []).append(window)
    yield from (tuple(windows) for windows in quads.values())


def _finished(run: Run, block: tuple[PlannedWindow, ...]) -> bool:
    """All windows kept, and of one boot."""
    measured = {closed_in(run, window.id) for window in block}
    return len(measured) == 1 and "" not in measured


def variant_of(run: Run, window: PlannedWindow) -> str:
    """The variant to switch on; the sealed seed decides for the blocks of a quad."""
    if window.arm == "drawn":
        block = window.arguments["block"]
        assert isinstance(block, int), "the plan numbers the blocks of a quad"
        return run.plan.variants[run.sealed.draw.arms(str(window.arguments["quad"]))[block]]
    return run.plan.variants["incumbent" if window.arm == "none" else window.arm]


def request_of(run: Run, planned: PlannedBoot) -> BootRequest:
    """What the adapter needs; a desk on a GPU has no library of the incumbent."""
    built, candidate, product = run.built.libraries, getattr(run.order.order, "candidate", None), run.built.product
    names = {
        variant: name
        for variant, name in loads(planned, run.plan).items()
        if name in built or name in planned.libraries
    }
    return BootRequest(
        planned=planned,
        manifest=run.manifest,
        pack=_pack_of(run, planned.id),
        tree=Path(product.folder) if planned.product and product and product.kind == "tree" else None,
        libraries={variant: built[name] for variant, name in names.items()},
        variant=first_variant(planned, run.plan),
        allowed_declines=candidate.allowed_declines if candidate else (),
        folder=run.folder / "logs" / planned.id,
        witness=run.built.libraries.get("witness"),
        run=run.name,
    )


def _pack_of(run: Run, planned: str) -> Path:
    """What a planned boot serves: the standing pack, or the recipe's where it made one and the boot is for it."""
    product = run.built.product
    wanted = any(boot.product for boot in run.plan.boots if boot.id == planned)
    if wanted and product is not None and product.kind == "pack":
        return Path(product.folder)
    return pack_of(run.manifest)


def _boot(run: Run, planned: PlannedBoot, blocks: list[tuple[PlannedWindow, ...]]) -> None:
    run.progress.begin(f"boot {planned.id}", planned.seconds)
    run.journal.write("boot-started", planned=planned.id)
    request = request_of(run, planned)
    shutil.rmtree(request.folder, ignore_errors=True)
    request.folder.mkdir(parents=True)
    try:
        boot = seat_of(run.manifest, planned).boot(request)
    except AbsentError:
        raise  # the machine lacks the seat: that is no refusal, and no boot of this run
    except SeatError as error:
        expected = " (expected: this boot is there to be refused)" if planned.role == KNOCK_OUTS[0] else ""
        run.progress.note(f"boot {planned.id}: {error.what}: {error.found}{expected}")
        record = _never_came_up(run, planned, error)
        for window in run.windows_of(planned):
            if planned.role == KNOCK_OUTS[0]:
                keep(run, refused(window, record, variant_of(run, window)))
        _end(run, record)
        return
    write_record(run, boot.record)
    paused = False
    try:
        _check_identity(run, boot.record, planned)
        for block in blocks:
            if paused := not run.has_time_for(_seconds_of(block)):
                break
            _measure_block(run, boot, block)
    except SeatError as error:
        run.progress.note(f"boot {planned.id}: {error.what}: {error.found}")
    finally:
        record = with_product(run, boot.stop())
        write_whole(run.folder / "logs" / f"{record.id}.log", boot.logs().encode())
        write_record(run, record)
    if paused:
        run.journal.write("boot-paused", planned=planned.id, boot=record.id)
    else:
        _end(run, record)


def _check_identity(run: Run, record: BootRecord, planned: PlannedBoot) -> None:
    """Raises SeatError where a rank loaded something else than was built, or else or elsewhere than the boots before.

    The record is written already.
    """
    known = boot_records(run)
    faults = identity_faults(record, planned, run.plan) + weights_faults(known, run.plan) + host_faults(known, run.plan)
    if faults:
        raise SeatError(
            "the engine loaded something else than was built or served before", where=record.id, found="; ".join(faults)
        )


def _end(run: Run, record: BootRecord) -> None:
    write_record(run, record)
    run.journal.write("boot-ended", planned=record.planned, boot=record.id, ended=record.ended)


def _measure_block(run: Run, boot: Boot, block: tuple[PlannedWindow, ...]) -> None:
    """One window, or one quad; timed blocks again as a whole while other processes disturb them and patience lasts.

    Where no other process that can be seen explains the disturbance, the first measurement stands: the work may be the
    candidate's own, done by children whose time is never accounted, and a second draw would be at its will: seven of
    them raise the false passes of six pairs from 1.6 to 61 in a hundred. As it stands its pair is lost, and a run that
    lost one is never faster; what a neighbour disturbs is measured again whatever came out, which changes no odds.
    """
    if any(closed_in(run, window.id) for window in block):
        set_aside(run, block, "aborted")
    while True:
        for window in block:
            _measure(run, boot, window)
        disturbed = [window.id for window in block if _is_timed(window) and _was_disturbed(run, window)]
        if not disturbed:
            return
        explained = any(_is_by_others(run, window) for window in block if _is_timed(window))
        for name in disturbed:
            run.journal.write(DISTURBED, window=name, explained=explained)
        timed = sum(_is_timed(window) for window in run.plan.windows)
        if len(run.journal.of(DISTURBED)) > timed / DISTURBED_SHARE:
            if not run.journal.of(TOO_BUSY):
                run.journal.write(TOO_BUSY)
                run.progress.note(
                    "too many disturbed blocks: this machine is too busy to measure on. Nothing is repeated any more, "
                    "speed will hardly be decided; the run goes on for its other gates"
                )
            return
        if not explained:
            run.progress.note(
                "disturbed, kept so and not measured again, as no other process that can be seen explains it: "
                + ", ".join(disturbed)
            )
            return
        tries = max(len(run.journal.of(DISTURBED, window=name)) for name in disturbed)
        if tries > REPEATS:
            run.progress.note(f"disturbed {tries} times, kept so: {', '.join(disturbed)}")
            return
        run.progress.note(f"disturbed, measured again: {', '.join(disturbed)}")
        set_aside(run, block, "disturbed")


def _is_timed(window: PlannedWindow) -> bool:
    return window.instrument.startswith("speed@")


def _was_disturbed(run: Run, window: PlannedWindow) -> bool:
    sample = sample_of(run, window)
    return sample is not None and bool(sample.disturbed)


def _is_by_others(run: Run, window: PlannedWindow) -> bool:
    evidence = kept_evidence(run, window.id)
    return evidence is not None and disturbed_by_others(evidence)


def _measure(run: Run, boot: Boot, window: PlannedWindow) -> None:
    variant = variant_of(run, window)
    run.progress.begin(f"{window.id} ({variant})", window.seconds)
    boot.switch(variant)
    run.journal.write("window-opened", window=window.id, boot=boot.record.id, variant=variant)
    context = WindowContext(
        window=window,
        boot=boot,
        manifest=run.manifest,
        draw=run.sealed.draw,
        pools=source_root() / POOLS,
        variant=variant,
        pack=_pack_of(run, window.boot),
        # By name: what makes products imports git, which a seat's machine does not have.
        verify=lambda: pkgutil.resolve_name("runner.steps.make:verify")(run),
    )
    keep(run, driver(window.instrument)(context))


def _never_came_up(run: Run, planned: PlannedBoot, error: SeatError) -> BootRecord:
    """The record of a boot of which nothing answered; its label is that of the boots before it, which did."""
    return new_record(
        planned.id,
        label=label_of(boot_records(run)),
        pid=0,
        requested=planned.arguments,
        sandbox=sandbox_of(run.manifest, planned),
        ended="refused" if planned.strict else "died",
        ended_reason=error.found or error.what,
    )


def write_record(run: Run, record: BootRecord) -> None:
    """``boots/<boot id>.json``, all at once; in a job that travelled it says on which machine."""
    if run.host:
        record = record.model_copy(update={"host": run.host})
    data = canonical_json(record.model_dump(mode="json"))
    write_whole(run.folder / BOOTS / f"{record.id}.json", data)


def boot_records(run: Run) -> tuple[BootRecord, ...]:
    """Every boot of the run, aborted ones too, oldest first."""
    records = [BootRecord.model_validate_json(path.read_bytes()) for path in (run.folder / BOOTS).glob("[!.]*.json")]
    return tuple(sorted(records, key=lambda record: (record.started_at, record.id)))


def _with_boots(run: Run) -> Run:
    repeats = len(run.journal.of("window-disturbed"))
    return run.with_outcome(boots=boot_records(run), repeats=repeats)


def _abort_running(run: Run) -> None:
    """Boots that a crash of the runner ended; the watchdog has already ended their processes."""
    for record in boot_records(run):
        if record.ended == "running":
            reason = "the runner ended while this boot ran"
            changes = {"ended": "aborted", "ended_reason": reason, "seconds": _seconds_known(run, record)}
            aborted = with_product(run, record.model_copy(update=changes))
            write_record(run, aborted)
            run.journal.write("boot-aborted", planned=record.planned, boot=record.id)


def _seconds_known(run: Run, record: BootRecord) -> int:
    """Seat time from launch to the last window that the journal saw in the boot."""
    seen = [*run.journal.of("window-opened", boot=record.id), *run.journal.of("window-closed", boot=record.id)]
    last = max((datetime.fromisoformat(event.at) for event in seen), default=None)
    return 0 if last is None else round((last - datetime.fromisoformat(record.started_at)).total_seconds())
