"""One standing configuration in the canon: how to launch it, that it ran, what it gained, what is not in it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from runner.adoption import over, stale, waivers_for
from runner.attest.statement import Signed
from runner.decisions import Decided
from runner.ledger import Ledger
from runner.markdown import cell, one_line, table
from runner.measured import unpack
from runner.model.adoption import Waiver
from runner.model.base import decimal_text
from runner.model.boot import BootRecord
from runner.model.report import GatePart, Measured, ReportPredicate
from runner.model.sample import Sample
from runner.model.verdict import Status
from runner.plan import PRODUCT
from runner.reproduction import assurance_level
from runner.summary import engagement_text, primary_rate
from runner.yaml_strict import mapping
from serve.adapters.docker_launch import PORT
from serve.adapters.docker_readback import launch_from
from serve.adapters.engine_command import flags

_LAUNCHED = ("candidate-only", "incumbent-only", "shared", "forcing")
"""Roles of the boots that served, the one that is most like the standing seat first."""
_SWITCHES = frozenset({"variant", "strict"})
"""Requested values that the plugin reads from its environment, not engine options."""

MADE_PACK = "MADE_PACK"
"""In a launch: the pack that the run made, which is not the one that its order names."""

_PLACES = (
    "In braces stand places of the machine: the order's pack, this checkout (`code`), a kept cache, built libraries by "
    "variant, the native witness, and a folder with the checkout's entry points (`site`)."
)


def order_field(report: ReportPredicate, *path: str) -> Any:
    """A field of the order's own text; None where it has none."""
    value: Any = mapping(report.order.text)
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return str(value) if isinstance(value, str) else value  # the strict reader's text knows how it was written


def launched(measured: Measured) -> BootRecord | None:
    """The boot that is most like the standing seat and read itself back."""
    roles = {boot.id: boot.role for boot in measured.plan.boots}
    served = [boot for boot in measured.boots if boot.resolved and boot.engine and boot.ended == "stopped"]
    fitting = [boot for role in _LAUNCHED for boot in served if roles.get(boot.planned) == role]
    return fitting[0] if fitting else None


def launch_command(report: ReportPredicate, boot: BootRecord, *, made: bool = False) -> str:
    """What starts the engine as it stood: every option that was asked for, with the value the live engine gave.

    A container starts as docker read it back, with the port of its seat's choice. ``made``: the pack is the run's own.
    """
    launch = launch_from(boot.resolved, report.seat.name, str(PORT))
    if launch is not None:
        return _lines(["docker"], launch.argv())
    options = {name: boot.resolved[name] for name in boot.requested if name in boot.resolved and name not in _SWITCHES}
    switches = [f"CARVE_{name.upper()}={boot.resolved[name]}" for name in sorted(_SWITCHES & boot.resolved.keys())]
    start = [*switches, "vllm", "serve", _served(report, made=made)]
    return _lines(start, flags(dict(sorted(options.items()))))


def _served(report: ReportPredicate, *, made: bool) -> str:
    """The pack to serve: the order's, or the place where one puts what the run made of it."""
    pack = order_field(report, "target", "pack")
    return MADE_PACK if made else shlex.quote(pack) if isinstance(pack, str) else "PACK"


def _lines(start: Sequence[str], words: Sequence[str]) -> str:
    """A command with an option on each line."""
    lines = [" ".join(start)]
    for word in words:
        if word.startswith("--"):
            lines.append(f"  {word}")
        else:
            lines[-1] += f" {shlex.quote(word)}"
    return " \\\n".join(map(one_line, lines))


def made_pack(decided: Decided) -> str | None:
    """Header digest of the pack that the run made and served; None where it served the standing one."""
    return decided.entry.subjects.get(f"{PRODUCT}header")


def taken_out(decided: Decided) -> list[str]:
    """How one comes by the pack that a launch serves, where the run made it; nothing otherwise."""
    header = made_pack(decided)
    if header is None:
        return []
    how = f"`runner product {decided.report.run} --to {MADE_PACK}`"
    return [f"The pack with header digest {header} is what the run made: {how}", "takes it out where it was made.", ""]


def _of_the_candidate(measured: Measured) -> list[Sample]:
    """Samples of what was adopted: by its kernels, or, where both arms run the same, by the boots of what was made."""
    variants = measured.plan.variants
    if variants.get("candidate") != variants.get("incumbent"):
        return [sample for sample in measured.samples if sample.variant != variants.get("incumbent")]
    made = {boot.id for boot in measured.plan.boots if boot.product}
    booted = {boot.id for boot in measured.boots if boot.planned in made}
    return [sample for sample in measured.samples if sample.boot in booted]


def _launch(decided: Decided, measured: Measured, boot: BootRecord) -> list[str]:
    engine = f"{boot.engine.get('name', 'engine')} {boot.engine.get('version', '')}".strip()
    proofs = [sample for sample in _of_the_candidate(measured) if sample.engagement]
    best = [sample for sample in proofs if sample.boot == boot.id] or proofs
    rows = [
        (each.rank, sample.window, engagement_text(each.witness), decided.link)
        for sample in best[-1:]
        for each in sample.engagement
    ]
    return [
        "#### Launch",
        "",
        f"Written from what boot {cell(boot.id)} of run {decided.link} read back of itself; served by {cell(engine)} "
        f"on\n{len(boot.ranks)} rank(s).",
        "",
        "```sh",
        launch_command(decided.report, boot, made=made_pack(decided) is not None),
        "```",
        "",
        *([_PLACES, ""] if launch_from(boot.resolved, "", "") else []),
        *taken_out(decided),
        *table(("setting", "live value"), [(name, boot.resolved[name]) for name in sorted(boot.resolved)]),
        "#### Proof of launch",
        "",
        f"{boot.kv_tokens} KV tokens (run {decided.link}). What the witness counted:",
        "",
        *table(("rank", "window", "witness counted", "run"), rows),
    ]


def _rates(decided: Decided, measured: Measured) -> Iterator[tuple[object, ...]]:
    """Median decode rate of each arm over the undisturbed blocks of quads."""
    drawn = {window.id for window in measured.plan.windows if window.arm == "drawn"}
    for arm, variant in measured.plan.variants.items():
        blocks = [each for each in measured.samples if each.window in drawn and each.variant == variant]
        rates = [float(rate) for each in blocks if not each.disturbed and (rate := primary_rate(each))]
        if rates:
            name = f"decode rate, {arm} ({variant}), median of {len(rates)} blocks"
            yield ("speed", "", name, f"{decimal_text(median(rates))} tok/s", "", decided.link)


def _measured(decided: Decided, gates: Sequence[GatePart], measured: Measured) -> list[str]:
    figures = [
        (gate.name, gate.verdict, figure.name, f"{figure.value} {figure.unit}".strip(), figure.limit, decided.link)
        for gate in gates
        for figure in gate.figures
    ]
    headers = ("gate", "verdict", "figure", "value", "limit", "run")
    return [
        "#### Measured against the incumbent",
        "",
        *table(headers, [*_rates(decided, measured), *figures]),
    ]


def _not_included(decided: Decided) -> list[str]:
    excluded = order_field(decided.report, "scope", "excludes")
    rows = [(what, "the order leaves it out", decided.link) for what in excluded or ()]
    rows += [
        (f"gate {gate.name}", f"{gate.verdict}: {'; '.join(gate.reasons)}", decided.link)
        for gate in decided.report.gates
        if gate.verdict is not Status.PASS
    ]
    if not rows:
        return []
    return ["#### Not included", "", *table(("what", "why", "run"), rows)]


def waivers_of(decided: Decided, ledger: Ledger) -> list[tuple[Signed, Waiver]]:
    """Waivers that the adoption leans on and that are not over, oldest first."""
    named = decided.adoption.waivers
    return [
        (entry, waiver)
        for entry, waiver in waivers_for(ledger, decided.entry.digest)
        if entry.digest in named and not over(waiver, ledger)
    ]


def waiver_lines(decided: Decided, ledger: Ledger) -> list[str]:
    """What of the report stands open, until when and why; nothing where every gate passed."""
    lines = [
        f"- waiver of {waiver.gate} until {waiver.expires_at}: {cell(waiver.reason)}"
        for _, waiver in waivers_of(decided, ledger)
    ]
    return [*lines, ""] if lines else []


def _took_the_place(decided: Decided, before: Decided | None) -> list[str]:
    """What stood on the seat before, and that the report was measured on the pack it made where its subjects say so."""
    if before is None:
        return []
    text = f"Took the place of {before.link}, order {before.report.order.name}"
    old, new, parts = before.entry.subjects, decided.entry.subjects, ("header", "payload")
    on_top = all(f"{PRODUCT}{part}" in old and old[f"{PRODUCT}{part}"] == new.get(f"pack.{part}") for part in parts)
    return [f"{text}; measured on top of the pack that run made." if on_top else f"{text}."]


def standing_lines(decided: Decided, ledger: Ledger, before: Decided | None = None) -> list[str]:
    """The entry; ``before`` is what stood on the seat until this was adopted."""
    report, whole = decided.report, ledger.whole(decided.entry)
    measured = unpack(whole.record, decided.entry.where)[0]
    changed, boot = stale(decided.entry, ledger), launched(measured)
    return [
        f"### {report.order.name} on {report.seat.name}",
        "",
        f"Run {decided.link}, label {report.seat.label}, {decided.adoption.scope}; report {decided.entry.digest}.",
        f"Adopted by {decided.by} on {decided.adoption.created_at}: {cell(decided.adoption.reason)}",
        f"Assurance: {assurance_level(decided.entry, ledger)}; "
        f"outside witnesses {cell(', '.join(report.assurance)) or 'none'}; "
        f"try {ledger.tries.get(report.plan.intent, 1)} of this candidate.",
        *_took_the_place(decided, before),
        *([f"Stale since the newest observation of {report.seat.name}: {cell(', '.join(changed))}"] if changed else []),
        "",
        *waiver_lines(decided, ledger),
        *(_launch(decided, measured, boot) if boot else []),
        *_measured(decided, whole.gates, measured),
        *_not_included(decided),
    ]


def open_items(decided: Decided, ledger: Ledger) -> Iterator[tuple[object, ...]]:
    """What is left to do for one standing entry: item, owner, until when, run."""
    report = decided.report
    issuer = order_field(report, "people", "issuer") or "not named"
    operator = order_field(report, "people", "seat_operator") or issuer
    for entry, waiver in waivers_of(decided, ledger):
        owner = ", ".join(signer.principal for signer in entry.signers)
        yield (f"gate {waiver.gate} is waived: {waiver.reason}", owner, waiver.expires_at, decided.link)
    for need in order_field(report, "capability") or ():
        if isinstance(need, dict) and need.get("available") != "yes":
            instead = need.get("substitute_if_absent") or "nothing"
            yield (f"{need.get('name')} was not available; instead: {instead}", issuer, "", decided.link)
    for subject in stale(decided.entry, ledger):
        yield (f"{subject} has changed on {report.seat.name}: measure again", operator, "", decided.link)
    if assurance_level(decided.entry, ledger) == "self-attested":
        yield ("no other key has reproduced it", operator, "", decided.link)


__all__ = ["launch_command", "launched", "open_items", "order_field", "standing_lines", "waiver_lines"]
