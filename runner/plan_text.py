"""A draft plan for reading: every step with its seconds, every gate with its chances of being wrong."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import Any

from recipe.headers import Entry
from recipe.mini.expert_pack import described
from recipe.pack import read_pack
from runner.check import check
from runner.checks.judgement import planned_gates
from runner.checks.memory import DEVICE, loaded_with
from runner.draw import commitment
from runner.errors import InputError
from runner.kill_lines import words_of
from runner.launches import launches
from runner.model.order import RecipeOrder, RunnableOrder, WorkOrder, load_order
from runner.model.order.text import line_of
from runner.model.plan import PlannedWindow
from runner.model.seat import SeatManifest
from runner.order_lines import for_a_person
from runner.paths import source_root
from runner.plan import compile_plan, plan_digest, runnable, seconds_of, target_of
from runner.plan_odds import odds
from runner.plan_parameters import judgement_digest
from runner.prospects import prospect
from runner.readiness import missing
from runner.steps.make import estimate
from runner.steps.seats import load_manifest
from runner.summary import uncompared_texts
from serve.graphs import graph_bytes
from serve.prediction import RankPrediction, configuration, predict_for
from serve.scratch import scratch_of

DRAFT_SEED = bytes(32)
"""A draft draws nothing: the run seals its own seed, so its digest is another."""


def draft(path: Path, seat: str = "") -> tuple[dict[str, Any], str]:
    """The plan as data and as text. Raises InputError for an order that cannot be decided on the seat."""
    file = load_order(path)
    order = runnable(file)
    manifest = load_manifest(seat or target_of(order).seat)
    faults = check(order, manifest)
    if faults:
        raise InputError(
            "the order cannot be decided", where=str(path), found="; ".join(fault.message for fault in faults)
        )
    plan = compile_plan(file, manifest, {}, commitment(DRAFT_SEED))
    chances = odds(plan, order, manifest)
    absent = missing(order, manifest)
    work, launch = _work(order, manifest), launches(plan, order, manifest)
    predicted, unpredicted = _predicted(order, manifest)
    uncompared = uncompared_texts(plan)
    value = {
        "draft": True,
        "judgement": judgement_digest(order),
        "missing": absent,
        "adoption": prospect(order, manifest),
        "planned_gates": [request.model_dump(mode="json", exclude_none=True) for request in planned_gates(order)],
        "open_for_a_person": [{"gate": name, "line": line} for name, line in for_a_person(order)],
        "plan": plan.model_dump(mode="json"),
        "make": work,
        "launch": launch,
        "prediction": [rank.model_dump(mode="json") for rank in predicted],
        "not_predicted": unpredicted,
        "text_not_compared": list(uncompared),
        "digest": plan_digest(plan),
        "seconds": seconds_of(plan),
        "odds": [asdict(one) for one in chances],
        "false_fail_together": 1 - prod(1 - one.false_fail for one in chances),
    }
    lines = [
        f"{plan.order} on {plan.seat}",
        f"{len(plan.boots)} boots, {len(plan.windows)} windows, about {seconds_of(plan)} s",
        "draft: digests of libraries and pack are sealed when the run starts",
        f"what judges has SHA-256 {judgement_digest(order)}, as in the brief",
        "",
        *[f"{'make ' + name:<26} {count}" for name, count in work.items()],
    ]
    lines += [
        f"rank {one.rank:<21} {one.weights_bytes} bytes of weights, "
        f"{one.scratch_bytes} of scratch, {one.graph_bytes or 'an unknown number'} of graphs, {one.kv_tokens} KV tokens"
        for one in predicted
    ]
    if uncompared:
        lines.append(
            f"text not compared: what the arms write while they are timed decides nothing in {', '.join(uncompared)}"
        )
    lines += [f"what ranks will hold is not predicted: {unpredicted}"] if unpredicted else []
    for boot in plan.boots:
        loaded = ", ".join(boot.libraries) or "no candidate library"
        lines.append(f"{boot.id:<26} {boot.seconds:>4} s  strict {boot.strict}  {loaded}")
        lines += [_window_line(window) for window in plan.windows if window.boot == boot.id]
    lines += ["", f"{'gate':<14} {'false fail':>10} {'false pass':>10} {'power':>7}"]
    lines += [
        f"{one.gate:<14} {one.false_fail:>10.2%} {one.false_pass:>10.2%} {one.power:>7.1%}  {one.basis}"
        for one in chances
    ]
    lines.append(f"a good candidate fails for no reason in {value['false_fail_together']:.2%} of runs")
    lines += _planned_lines(order) + _kill_lines(order) + _open_lines(order)
    lines += [line for boot, words in launch.items() for line in ("", f"{boot}:", f"  {shlex.join(words)}")]
    if value["adoption"]:
        lines += ["", str(value["adoption"])]
    if absent:
        lines += ["", "execute would refuse this order now:", *(f"  {line}" for line in absent)]
    return value, "\n".join(lines)


def _work(order: RunnableOrder, manifest: SeatManifest) -> dict[str, str]:
    """What the order's recipe will take, counted without network and without a write; empty for a native candidate."""
    if not isinstance(order, RecipeOrder):
        return {}
    try:
        expected = estimate(order, manifest)
    except InputError as error:
        return {"cannot be counted yet": f"{error.what}: {error.where}"}
    return {"seconds": str(expected.seconds), **expected.counts}


def _predicted(order: RunnableOrder, manifest: SeatManifest) -> tuple[tuple[RankPrediction, ...], str]:
    """What each rank will hold; where the pack is not here or no rule covers model and memory budget, nothing and why.

    Of a pack that is made from a seed its geometry is enough. Scratch where the order's gate ``memory`` says what
    device it is on, with the candidate loaded; graphs of every variant, where a rule decides or the seat's manifest has
    what a signed report read.
    """
    asked = next((gate.windows for gate in order.gates if gate.name == "memory" and "processors" in gate.windows), None)
    loaded = loaded_with(order)
    arguments = {"block_size": manifest.kv_block_tokens} | manifest.arguments
    try:
        scratch = scratch_of(loaded, **{name: int(str(asked[name])) for name in DEVICE}) if asked else None
        config, tensors = _pack(manifest)
        found = predict_for(config, tensors, arguments, scratch)
        graphs = graph_bytes(config, arguments, loaded, measured=manifest.graph_bytes)
    except InputError as error:
        return (), ": ".join(part for part in (error.what, error.where, error.found) if part)
    return tuple(rank.model_copy(update={"graph_bytes": graphs or 0}) for rank in found), ""


def _pack(manifest: SeatManifest) -> tuple[dict[str, Any], dict[str, Entry]]:
    """Configuration and tensors of the seat's pack. Raises InputError where it is not here."""
    if manifest.generated is not None:
        return described(**manifest.generated.model_dump())
    folder = source_root() / manifest.pack
    if not (folder / "config.json").is_file():
        raise InputError("the pack is not on this machine", where=manifest.pack)
    return configuration(folder), read_pack(folder).tensors


def _planned_lines(order: WorkOrder) -> list[str]:
    """Gates that are still to be written, with their lines."""
    lines = []
    for request in planned_gates(order):
        lines.append(f"  {request.name:<22} {request.planned}")
        thresholds = request.measure.thresholds if request.measure else ()
        lines += [f"  {'':<22} {line_of(threshold)}" for threshold in thresholds]
    return ["", "planned gates, not in this checkout:", *lines] if lines else []


def _kill_lines(order: WorkOrder) -> list[str]:
    lines = []
    for line in order.kill_lines:
        figure = words_of(line).removeprefix(f"{line.gate} ")
        lines.append(f"  {line.gate:<22} {figure}: {line.action}{f' (stage {line.stage})' if line.stage else ''}")
    return ["", "kill lines:", *lines] if lines else []


def _open_lines(order: WorkOrder) -> list[str]:
    """What the order draws beside what its gates judge."""
    lines = [f"  {name:<22} {line}" for name, line in for_a_person(order)]
    return ["", "lines that no gate judges, open for a person:", *lines] if lines else []


def _window_line(window: PlannedWindow) -> str:
    control = "  control" if window.control else ""
    return f"  {window.id:<24} {window.seconds:>4} s  {window.instrument:<19} {window.arm}{control}"
