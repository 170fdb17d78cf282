"""``kernel-speed``: the candidate alone on the desk against every kernel of every incumbent version."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log
from statistics import median

from runner.gates.base import GateInput, GateParameters, Limit
from runner.gates.common import Decision, Reading, by_limits, decide, figure, invalid, of_kind, verdict
from runner.model.base import Record
from runner.model.desk_measure import KernelSpeedCase, KernelSpeedMeasure, KernelTimes
from runner.model.verdict import Figure, Verdict
from runner.stats import median_interval

NAME = "kernel-speed"
VERSION = 1
COVERAGE = 0.95
FEWEST = 6
"""Replays: fewer do not cover the median with 95 %."""


class Target(Record):
    """What has to be reached at one row count."""

    rows: int
    ratio: Limit
    """Least time of an incumbent kernel over the candidate's, cold: the low end of the median's interval."""
    against: str | None = None
    """This incumbent kernel only; else every one, the fastest decides."""
    microseconds: Limit | None = None
    """Largest cold median of the candidate."""
    bits: int | None = None
    """Of this K only; else of every K."""


class Parameters(GateParameters):
    """Campaign gate E1: same process, same inputs, alternating, every output checked."""

    versions: tuple[str, ...]
    """Incumbent versions, a process each, all of which must have been measured."""
    bits: tuple[int, ...]
    """K that a target holds for where it names none."""
    targets: tuple[Target, ...]
    """What must be reached, by row count."""
    relative_error: Limit = "2e-3"
    """Largest error of the candidate's output."""
    incumbent_error: Limit = "2e-2"
    """Largest error of an incumbent's output: a comparison with a wrong kernel says nothing."""
    yardstick: Limit = "0.1"
    """Largest log-ratio of the candidate's medians between two processes: it is the yardstick they share."""


def judge(given: GateInput) -> Verdict:
    """FAIL below a target or for a wrong output; INVALID where something was not measured, counted or comparable."""
    return verdict(NAME, VERSION, decide(Parameters, (KernelSpeedMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    measures = [measure for _, measure in of_kind(readings, KernelSpeedMeasure)]
    versions = {measure.version for measure in measures}
    faults = [f"incumbent {version}: not measured" for version in wanted.versions if version not in versions]
    failures: list[str] = []
    figures: list[Figure] = []
    for bits, target in _needed(wanted):
        found = [(one, case) for one in measures for case in one.cases if (case.bits, case.rows) == (bits, target.rows)]
        if len(found) != len(measures):
            faults.append(f"K {bits} at {target.rows} rows: measured in {len(found)} of {len(measures)} processes")
        for measure, case in found:
            faults += [f"{measure.version}, {case.id}: {fault}" for fault in _faults(case, wanted)]
            if not _rivals(case, target):
                faults.append(f"{measure.version}, {case.id}: {target.against or 'any incumbent kernel'} did not run")
        if faults:
            continue
        cases = [case for _, case in found]
        faults += _yardstick(cases, wanted)
        failures += [
            f"{case.id}: the candidate is wrong by {case.kernels[0].relative_error}"
            for case in cases
            if float(case.kernels[0].relative_error) > float(wanted.relative_error)
        ]
        reached, told = _against(cases, target)
        failures += reached
        figures += told
    return invalid(*faults) if faults else by_limits(failures, tuple(figures), "every target is reached")


def _needed(wanted: Parameters) -> Iterator[tuple[int, Target]]:
    for target in wanted.targets:
        for bits in wanted.bits if target.bits is None else (target.bits,):
            yield bits, target


def _faults(case: KernelSpeedCase, wanted: Parameters) -> list[str]:
    """What keeps a case from being a comparison."""
    faults = []
    if case.counted != case.launches:
        faults.append(f"the candidate was launched {case.launches} times and counted {case.counted}")
    replays = len(case.kernels[0].cold_ns) if case.kernels else 0
    faults += [
        f"{kernel.name}: {len(kernel.cold_ns)} replays do not pair"
        for kernel in case.kernels
        if not len(kernel.cold_ns) == replays >= FEWEST or min(kernel.cold_ns) < 1
    ]
    wrong = [kernel for kernel in case.kernels[1:] if float(kernel.relative_error) > float(wanted.incumbent_error)]
    return faults + [f"{kernel.name} is wrong by {kernel.relative_error}" for kernel in wrong]


def _yardstick(cases: list[KernelSpeedCase], wanted: Parameters) -> list[str]:
    """The candidate takes the same time in every process."""
    medians = [median(case.kernels[0].cold_ns) for case in cases]
    apart = log(max(medians) / min(medians))
    if apart <= float(wanted.yardstick):
        return []
    return [f"{cases[0].id}: the candidate's own medians lie {apart:.3f} apart, the limit {wanted.yardstick}"]


def _rivals(case: KernelSpeedCase, target: Target) -> list[KernelTimes]:
    """The incumbent kernels that the target is about."""
    return [kernel for kernel in case.kernels[1:] if target.against in (None, kernel.name)]


def _against(cases: list[KernelSpeedCase], target: Target) -> tuple[list[str], list[Figure]]:
    """Failures and figures of one target over all processes."""
    name, failures = cases[0].id, []
    rivals = target.against or "best incumbent"
    lows = [_low(case.kernels[0], kernel) for case in cases for kernel in _rivals(case, target)]
    slowest = max(median(case.kernels[0].cold_ns) for case in cases) / 1e3
    if min(lows) < float(target.ratio):
        failures.append(f"{name}: {min(lows):.2f} times as fast as {rivals}, asked was {target.ratio}")
    if target.microseconds is not None and slowest > float(target.microseconds):
        failures.append(f"{name}: {slowest:.1f} µs, asked was at most {target.microseconds}")
    best = min(median(kernel.cold_ns) for case in cases for kernel in _rivals(case, target)) / 1e3
    return failures, [
        figure(f"{name} over {rivals}, low", min(lows), limit=f">= {target.ratio}"),
        figure(
            f"{name} candidate", slowest, unit="µs", limit=f"<= {target.microseconds}" if target.microseconds else ""
        ),
        figure(f"{name} {rivals}", best, unit="µs"),
    ]


def _low(candidate: KernelTimes, incumbent: KernelTimes) -> float:
    """Low end of the interval of the median ratio, replay by replay."""
    pairs = zip(incumbent.cold_ns, candidate.cold_ns, strict=True)
    return exp(median_interval([log(theirs / ours) for theirs, ours in pairs], COVERAGE).low)
