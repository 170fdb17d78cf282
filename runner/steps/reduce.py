"""Samples from evidence, by the instruments' pure functions."""

from __future__ import annotations

from runner.errors import EvidenceError
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import Sample
from runner.steps.evidence import kept_evidence
from runner.steps.state import Run
from serve.instruments.base import inputs
from serve.instruments.registry import instrument, parse


def reduce(run: Run) -> Run:
    """Every window that has its evidence, and the evidence it refers to, becomes one sample."""
    samples = tuple(sample for window in run.plan.windows if (sample := sample_of(run, window)))
    return run.with_outcome(samples=samples)


def sample_of(run: Run, window: PlannedWindow) -> Sample | None:
    """The window's sample, or None where evidence is missing or cannot be read as a measurement."""
    found: list[Evidence] = []
    for name in inputs(window):
        evidence = kept_evidence(run, name)
        if evidence is None:
            return None
        found.append(evidence)
    try:
        return instrument(*parse(window.instrument)).reduce(found, window)
    except EvidenceError as error:
        run.progress.note(f"{window.id}: {error.what}: {error.found}")
        return None
