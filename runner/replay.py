"""Samples read again from kept evidence by the instruments that made them."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from runner.attest.canonical import first_fault
from runner.digest import sha256_bytes
from runner.draw import Draw
from runner.errors import TrustError
from runner.material import check_material
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.report import Measured
from runner.model.sample import Sample


def _records(evidence: list[bytes], where: str) -> list[Evidence]:
    try:
        return [Evidence.model_validate_json(data, strict=True) for data in evidence]
    except ValidationError as error:
        raise TrustError("evidence that is no evidence record", where=where, found=first_fault(error)) from error


def _read_again(sample: Sample, window: PlannedWindow, evidence: list[Evidence]) -> Sample:
    from serve.instruments.registry import instrument, parse  # noqa: PLC0415  # only --deep needs the instruments

    return instrument(*parse(sample.instrument)).reduce(evidence, window)


def replay(
    measured: Measured, kept: Mapping[str, bytes], draw: Draw, where: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Windows whose samples were read again, and those whose evidence is not all here.

    Raises TrustError where a sample is not what its instrument reads or its material is not what ``draw`` gives,
    InputError for an unknown instrument.
    """
    by_digest = {sha256_bytes(data): data for data in kept.values()}
    windows = {window.id: window for window in measured.plan.windows}
    replayed: list[str] = []
    missing: list[str] = []
    for sample in measured.samples:
        if not by_digest.keys() >= set(sample.evidence):
            missing.append(sample.window)
            continue
        place = f"{where}, window {sample.window}"
        window = windows[sample.window]
        evidence = _records([by_digest[each] for each in sample.evidence], place)
        check_material(evidence[0], window, draw, place)
        again = _read_again(sample, window, evidence)
        if again != sample:
            changed = [name for name in Sample.model_fields if getattr(again, name) != getattr(sample, name)]
            raise TrustError(
                "the sample is not what its instrument reads from the evidence",
                where=place,
                expected=f"what {sample.instrument} reads",
                found=f"another {', '.join(changed)}",
            )
        replayed.append(sample.window)
    return tuple(replayed), tuple(missing)


__all__ = ["replay"]
