"""Samples read again from the kept evidence by the instruments that made them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from runner.alike import alike
from runner.attest.canonical import first_fault
from runner.errors import EvidenceError, TrustError
from runner.model.evidence import EVERY_POSITION, Divergences, Evidence
from runner.model.plan import PlannedWindow
from runner.model.report import EvidencePart, Measured
from runner.model.sample import DivergenceMeasure, Sample
from runner.verify_statement import SET_ASIDE


@dataclass
class Replayed:
    """Windows by what could be read again."""

    whole: list[str] = field(default_factory=list)
    drawn: list[str] = field(default_factory=list)
    """Only the positions drawn from the seed: their evidence is too large to be kept in whole."""
    missing: list[str] = field(default_factory=list)
    """Nothing: their evidence is in the run folder only."""


def replay(
    measured: Measured, index: EvidencePart, kept: Mapping[str, bytes], where: str, *, full: Collection[str] = ()
) -> Replayed:
    """Read every sample again whose evidence is here.

    ``full`` names the files in ``kept`` that are no extracts: from these a divergence is read in whole.

    Raises TrustError where a sample is not what its instrument reads or evidence that can be read gave none, InputError
    for an unknown instrument.
    """
    by_digest = {index.files[name]: data for name, data in kept.items()}
    whole = {index.files[name] for name in full}
    windows = {window.id: window for window in measured.plan.windows}
    replayed = Replayed()
    for sample in measured.samples:
        place = f"{where}, window {sample.window}"
        if not by_digest.keys() >= set(sample.evidence):
            replayed.missing.append(sample.window)
            continue
        evidence = [read_evidence(by_digest[digest], place) for digest in sample.evidence]
        if isinstance(sample.measure, DivergenceMeasure) and not whole.issuperset(sample.evidence):
            _compare_drawn(sample.measure, evidence, place)
            if windows[sample.window].arguments.get(EVERY_POSITION) is True:
                _compare_positions(sample.measure, evidence[0].divergences or {}, place)
            _compare(sample, windows[sample.window], evidence, place, extracts=True)
            replayed.drawn.append(sample.window)
        else:
            _compare(sample, windows[sample.window], evidence, place)
            replayed.whole.append(sample.window)
    _all_are_sampled(measured, kept, where)
    _disturbed_are_sampled(measured, index, kept, where)
    return replayed


def _all_are_sampled(measured: Measured, kept: Mapping[str, bytes], where: str) -> None:
    """Whatever was measured is judged: a reading that was left out could be the one that fails."""
    from serve.instruments.base import inputs  # noqa: PLC0415  # only --deep needs the instruments
    from serve.instruments.registry import instrument, parse  # noqa: PLC0415

    sampled = {sample.window for sample in measured.samples}
    for window in measured.plan.windows:
        names = [f"evidence/{name}.json" for name in inputs(window)]
        if window.id in sampled or not kept.keys() >= set(names):
            continue
        place = f"{where}, window {window.id}"
        try:
            instrument(*parse(window.instrument)).reduce([read_evidence(kept[name], place) for name in names], window)
        except EvidenceError:
            continue  # it says nothing that could be judged
        raise TrustError("a sample was left out", where=place, expected="what its evidence gives", found="no sample")


def _disturbed_are_sampled(measured: Measured, index: EvidencePart, kept: Mapping[str, bytes], where: str) -> None:
    """A disturbed block stays in the record beside the one that was measured in its place."""
    from serve.instruments.registry import instrument, parse  # noqa: PLC0415  # only --deep needs the instruments

    windows = {window.id: window for window in measured.plan.windows}
    named = {digest for sample in measured.samples for digest in sample.evidence}
    for name in sorted(kept):
        if not name.startswith(SET_ASIDE) or index.files[name] in named:
            continue
        place = f"{where}, {name}"
        evidence = read_evidence(kept[name], place)
        window = windows.get(evidence.window)
        if window is None:
            continue  # refused where the material is compared with the plan
        try:
            disturbed = instrument(*parse(window.instrument)).reduce([evidence], window).disturbed
        except EvidenceError:
            continue  # it says nothing that could be judged
        if disturbed:
            found = "; ".join(disturbed)
            raise TrustError("a disturbed sample was left out", where=place, expected="its sample", found=found)


def read_evidence(data: bytes, where: str) -> Evidence:
    """One file of the archive. Raises TrustError where it is no evidence record."""
    try:
        return Evidence.model_validate_json(data, strict=True)
    except ValidationError as error:
        raise TrustError("evidence that is no evidence record", where=where, found=first_fault(error)) from error


def _compare(
    sample: Sample, window: PlannedWindow, evidence: Sequence[Evidence], where: str, *, extracts: bool = False
) -> None:
    """Every field of the sample; of a divergence from ``extracts`` all but its whole figures."""
    from serve.instruments.drawn import reduce_extracts  # noqa: PLC0415  # only --deep needs the instruments
    from serve.instruments.registry import instrument, parse  # noqa: PLC0415

    try:
        reader = instrument(*parse(sample.instrument))
        again = reduce_extracts(evidence, window, sample) if extracts else reader.reduce(evidence, window)
    except (ArithmeticError, AttributeError, EvidenceError, LookupError, TypeError, ValueError) as error:
        raise TrustError(
            "evidence that its instrument cannot read", where=where, expected=sample.instrument, found=repr(error)
        ) from error
    names = [name for name in Sample.model_fields if name != "evidence"]  # extracts have digests of their own
    here, said = again.model_dump(), sample.model_dump()
    changed = [name for name in names if not alike(here[name], said[name])]
    if changed:
        raise TrustError(
            "the sample is not what its instrument reads from the evidence",
            where=where,
            expected=f"what {sample.instrument} reads",
            found=f"another {', '.join(changed)}",
        )


def _compare_drawn(measure: DivergenceMeasure, evidence: Sequence[Evidence], where: str) -> None:
    from serve.instruments.kld import read_drawn  # noqa: PLC0415  # only --deep needs the instruments

    for document in measure.documents:
        place = f"{where}, {document.id}"
        try:
            again = read_drawn(evidence, document.id, [each.position for each in document.drawn])
        except (LookupError, ValueError) as error:
            raise TrustError("the evidence lacks a drawn position", where=place, found=repr(error)) from error
        if not alike([one.model_dump() for one in again], [one.model_dump() for one in document.drawn]):
            raise TrustError(
                "the drawn positions are not what their instrument reads from the evidence",
                where=place,
                expected=str(again),
                found=str(document.drawn),
            )


def _compare_positions(measure: DivergenceMeasure, kept: Mapping[str, Divergences], where: str) -> None:
    """A document's whole figures, and its drawn positions, are those of all its positions as they were kept."""
    from serve.instruments.drawn import at_odds  # noqa: PLC0415  # only --deep needs the instruments

    for document in measure.documents:
        place = f"{where}, {document.id}"
        if document.id not in kept:
            raise TrustError("the extract lacks the divergence at every position", where=place, found="nothing")
        try:
            fault = at_odds(document, kept[document.id])
        except (ArithmeticError, LookupError) as error:
            raise TrustError("divergences that cannot be read", where=place, found=repr(error)) from error
        if fault:
            what, expected, found = fault
            raise TrustError(f"{what} is not that of its positions", where=place, expected=expected, found=found)


__all__ = ["Replayed", "read_evidence", "replay"]
