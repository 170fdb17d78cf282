"""Limits that decide nothing: too wide for any candidate to break, too narrow for any to keep, or set elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from pydantic import JsonValue

from runner.checks.fault import Fault
from runner.model.order import Target
from runner.model.order.judgement import GateRequest

Path = tuple[str | int, ...]

ONE_BIT = Decimal("0.6931")
"""ln 2 in nats: a model that loses a bit at every token is another model."""


@dataclass(frozen=True)
class Range:
    """Where a limit says something."""

    above: Decimal
    """Everything sensible is larger."""
    most: Decimal
    why: str


_LOSS = Range(Decimal(0), ONE_BIT, "at 0 rounding alone would fail it, and beyond ln 2 it lets a bit a token go")
_COVERAGE = Range(Decimal("0.8999"), Decimal(1), "an interval that covers less says little more than its middle")
_ERROR = Range(Decimal(0), Decimal("0.1"), "at 0 rounding alone would fail it, and a tenth is no rounding")
_RANGES: dict[str, dict[str, Range]] = {
    "kld": {
        "bound": _LOSS,
        "coverage": _COVERAGE,
        "top1": Range(Decimal("0.4999"), Decimal(1), "below a half most positions name another token"),
    },
    "ppl-prefill": {"margin": _LOSS, "coverage": _COVERAGE},
    "ppl-decode": {"margin": _LOSS, "coverage": _COVERAGE, "control": _LOSS},
    "ttft": {"margin": _LOSS, "coverage": _COVERAGE},
    "sensitivity": {"coverage": _COVERAGE},
    "parity": {"relative_error": _ERROR},
    "kernel-speed": {"relative_error": _ERROR},
    "pressure": {"relative_error": _ERROR},
    "perturbation": {
        "factor": Range(Decimal(1), Decimal(10**6), "what is no larger than the noise is no change"),
        "least": Range(Decimal(0), Decimal(1), "a change of nothing is no change"),
        "error": Range(Decimal(0), Decimal("0.9"), "no change at all is an error of 1"),
    },
    "watermark": {"factor": Range(Decimal(1), Decimal(10**6), "what is no larger than the noise is no change")},
    "knock-out": {"factor": Range(Decimal(1), Decimal(10**6), "what is no larger than the noise is no change")},
    "needle": {"alpha": Range(Decimal(0), Decimal("0.1"), "an error of the test, of one in twenty or less")},
    "score": {"alpha": Range(Decimal(0), Decimal("0.1"), "an error of the test, of one in twenty or less")},
    "vision": {"alpha": Range(Decimal(0), Decimal("0.1"), "an error of the test, of one in twenty or less")},
}

_ELSEWHERE = {
    "metric": "primary",
    "secondary": "primary",
    "margin": "primary",
    "pairing": "primary",
    "a_a_half_width": "the seat's manifest",
    "boot_to_boot": "the seat's manifest",
    "broken_off": "the plan",
    "short": "the seat's manifest",
}
"""What ``speed`` is sealed with, and whose it is to say: an order that says it twice could say it softer."""
_SOFTER = {"texts": "equal", "alone": "discounted"}
"""The one value of a parameter of ``speed`` that asks for no less than the seat does."""


def limits(path: Path, request: GateRequest, target: Target) -> Iterator[Fault]:
    """Faults of the parameters that one gate is given by its order."""
    for name, value in request.parameters.items():
        place = (*path, "parameters", name)
        if request.name == "speed":
            yield from _speed(place, name, value)
        if (wanted := _RANGES.get(request.name, {}).get(name)) and not _inside(value, wanted):
            message = f"{request.name}: {name} {value} decides nothing: {wanted.why}"
            yield Fault(place, f"{message} (above {wanted.above.normalize()}, at most {wanted.most.normalize()})")
        if (request.name, name) == ("resolved", "ignored") and isinstance(value, list):
            for field in sorted(target.serve.keys() & set(map(str, value))):
                yield Fault(place, f"{field} is asked for under target.serve: what is asked for is not ignored")


def _speed(place: Path, name: str, value: JsonValue) -> Iterator[Fault]:
    if name in _ELSEWHERE:
        yield Fault(place, f"speed: {name} comes from {_ELSEWHERE[name]}, and is not said again here")
    elif name in _SOFTER and value != _SOFTER[name]:
        yield Fault(place, f"speed: {name} may be {_SOFTER[name]} here; everything softer is the seat's to say")


def _inside(value: JsonValue, wanted: Range) -> bool:
    """What is no number another check refuses."""
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return True
    return number.is_finite() and wanted.above < number <= wanted.most


__all__ = ["limits"]
