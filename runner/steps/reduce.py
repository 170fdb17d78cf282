"""Samples from evidence, by the instruments' pure functions."""

from __future__ import annotations

from runner.errors import EvidenceError
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import Sample
from runner.steps.evidence import kept_evidence, set_aside_evidence
from runner.steps.state import Run
from serve.instruments.base import inputs
from serve.instruments.registry import read


def reduce(run: Run) -> Run:
    """Every window that has its evidence, and the evidence it refers to, becomes one sample.

    Samples of disturbed blocks that were measured again stay in the record before those that count.
    """
    samples: list[Sample] = []
    for window in run.plan.windows:
        for evidence in set_aside_evidence(run, window.id, "disturbed"):
            old = _reduced(run, window, [evidence])
            samples += [old] if old is not None and old.disturbed else []
        kept = sample_of(run, window)
        samples += [kept] if kept is not None else []
    return run.with_outcome(samples=tuple(samples))


def sample_of(run: Run, window: PlannedWindow) -> Sample | None:
    """The window's sample, or None where evidence is missing or cannot be read as a measurement."""
    found: list[Evidence] = []
    for name in inputs(window):
        evidence = kept_evidence(run, name)
        if evidence is None:
            return None
        found.append(evidence)
    return _reduced(run, window, found)


def _reduced(run: Run, window: PlannedWindow, found: list[Evidence]) -> Sample | None:
    try:
        return read(found, window)
    except EvidenceError as error:
        run.progress.note(f"{window.id}: {error.what}: {error.found}")
        return None
