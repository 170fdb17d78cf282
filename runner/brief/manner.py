"""How a gate that is still to be written measures, for whoever works towards it."""

from __future__ import annotations

import shlex

from runner.model.order.measure import Baseline, Exemption, InstrumentUse, Measure

_ELSEWHERE = ("place", "thresholds")
"""Shown in the table of the lines."""


def manner_of(measure: Measure) -> dict[str, str]:
    """Phrase to text, for every field that says something; the fields are the phrases' names."""
    found = {name: _text(getattr(measure, name)) for name in Measure.model_fields if name not in _ELSEWHERE}
    if measure.instrument and measure.instrument.digest != "unknown":
        found["instrument_digest"] = str(measure.instrument.digest)
    return {name: text for name, text in found.items() if text}


def _text(value: object) -> str:
    match value:
        case None | ():
            return ""
        case bool():
            return "yes" if value else "no"
        case InstrumentUse():
            return " ".join([value.path, *(one if one == "(none)" else shlex.quote(one) for one in value.argv)])
        case Baseline():
            return f"{value.kind}: {value.ref}" if value.ref else value.kind
        case Exemption():
            return f"{value.case} (a reason is asked for)" if value.reason_required else value.case
        case tuple():
            return "; ".join(map(_text, value))
    return str(value)


__all__ = ["manner_of"]
