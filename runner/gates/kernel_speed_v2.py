"""``kernel-speed`` from version 2 on: under every kind of routes, and against incumbents that are what they say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from runner.gates import kernel_speed
from runner.gates.base import GateInput
from runner.gates.common import Decision, invalid, parse, verdict
from runner.model.desk_measure import KernelSpeedMeasure
from runner.model.sample import Sample
from runner.model.verdict import Status, Verdict

NAME = "kernel-speed"
VERSION = 2

Routes = Literal["uniform", "recorded"]


class Target(kernel_speed.Target):
    """What has to be reached at one row count."""

    routes: Routes = "uniform"
    """Under this kind of routes."""


class Parameters(kernel_speed.Parameters):
    """As in version 1, for each kind of routes that a target names."""

    targets: tuple[Target, ...]
    """What must be reached, by row count and kind of routes."""
    kernels: dict[str, tuple[str, ...]] = {}
    """By incumbent version, the kernels that it has and that must have run in every case, no more and no less."""


def judge(given: GateInput) -> Verdict:
    """FAIL below a target or for a wrong output; INVALID where something was not measured, counted or comparable."""
    wanted = parse(Parameters, given)
    decision = wanted if isinstance(wanted, Decision) else _decide(wanted, given)
    return verdict(NAME, VERSION, decision)


def _decide(wanted: Parameters, given: GateInput) -> Decision:
    kinds = list(dict.fromkeys(target.routes for target in wanted.targets))
    if not kinds:
        return invalid("no target: nothing would be judged")
    if mistaken := list(_mistaken(wanted, given)):
        return invalid(*mistaken)
    parts = [kernel_speed.judge(_under(kind, wanted, given)) for kind in kinds]
    figures = tuple(one for part in parts for one in part.figures)
    for status in (Status.INVALID, Status.FAIL):
        if reasons := [reason for part in parts if part.status is status for reason in part.reasons]:
            return Decision(status, tuple(dict.fromkeys(reasons)), figures)
    return Decision(parts[0].status, parts[0].reasons, figures)


def _mistaken(wanted: Parameters, given: GateInput) -> Iterator[str]:
    """Libraries that are not the versions whose names they bear."""
    measures = [one.measure for one in given.samples if isinstance(one.measure, KernelSpeedMeasure)]
    names = {measure.incumbent_digest: measure.version for measure in measures}
    yield from (
        f"one library is measured as {names[measure.incumbent_digest]} and as {measure.version}"
        for measure in measures
        if names[measure.incumbent_digest] != measure.version
    )
    for measure in measures:
        has = wanted.kernels.get(measure.version)
        for case in measure.cases if has is not None else ():
            ran = tuple(kernel.name for kernel in case.kernels[1:])
            if set(ran) != set(has or ()):
                yield f"{measure.version}, {case.id}: {', '.join(ran) or 'nothing'} ran, it has {', '.join(has or ())}"


def _under(kind: Routes, wanted: Parameters, given: GateInput) -> GateInput:
    """What version 1 judges: the targets and cases of one kind of routes."""
    targets = [target.model_dump(exclude={"routes"}) for target in wanted.targets if target.routes == kind]
    parameters = wanted.model_dump(mode="json", exclude={"targets", "kernels"}) | {"targets": targets}
    samples = tuple(_of_kind(kind, sample) for sample in given.samples)
    return given.model_copy(update={"parameters": parameters, "samples": samples})


def _of_kind(kind: Routes, sample: Sample) -> Sample:
    if not isinstance(sample.measure, KernelSpeedMeasure):
        return sample
    cases = tuple(case for case in sample.measure.cases if (case.routes or "uniform") == kind)
    return sample.model_copy(update={"measure": sample.measure.model_copy(update={"cases": cases})})
