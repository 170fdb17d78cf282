"""``record.json``: all that the report is made from, in one file."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import JsonValue

from runner import ledger
from runner.attest.trust import load_trust
from runner.clock import now
from runner.costs import costs
from runner.craft.taken import taken
from runner.digest import canonical_json
from runner.files import write_whole
from runner.model.host import Host, this_host
from runner.model.run import RunRecord
from runner.steps.evidence import all_evidence, digests
from runner.steps.journal import TAKEN_IN
from runner.steps.measure import WAITED
from runner.steps.state import Run


def record(run: Run) -> Run:
    """Write the record once; a resumed run finds it and keeps its time of end."""
    path = run.folder / "record.json"
    if not path.exists():
        write_whole(path, canonical_json(_record(run).model_dump(mode="json")))
    return run


def _record(run: Run) -> RunRecord:
    sealed, outcome = run.sealed, run.outcome
    return RunRecord(
        run=run.name,
        order_text=run.order.text,
        order_digest=run.order.digest,
        plan=sealed.plan,
        plan_digest=sealed.digest,
        seed=sealed.seed.hex(),
        intent_digest=sealed.intent_digest,
        started_at=run.journal.of("step-ended", step="seal")[0].at,
        ended_at=now(),
        boots=outcome.boots,
        samples=outcome.samples,
        verdicts=outcome.verdicts,
        self_tests=outcome.self_tests,
        subjects=sealed.plan.subjects,
        environment=_environment(run),
        costs=costs(sealed.plan, outcome.boots, _durations(run)),
        evidence=digests(run),
        repeats=outcome.repeats,
        manifest=run.manifest.model_dump(mode="json"),
        challenge=ledger.load(run.workspace, load_trust(run.workspace)).challenge_of(sealed.plan.seat),
        craft=candidate.history if (candidate := taken(run.folder)) else None,
    )


def _environment(run: Run) -> dict[str, JsonValue]:
    """Of the machine that measured: this one, or the one from which the bundle came."""
    waited = sum(int(event.facts["seconds"]) for event in run.journal.of(WAITED))
    came = run.journal.of(TAKEN_IN)
    host = Host.model_validate(came[-1].facts["host"]) if came else this_host()
    return {
        **host.environment,
        **({"seconds waited for the seat": waited} if run.journal.of(WAITED) else {}),
    }


def _durations(run: Run) -> Iterator[tuple[str, str, int]]:
    """(window, boot id, nanoseconds) of everything measured, what was set aside included."""
    for evidence in all_evidence(run):
        yield evidence.window, evidence.boot, evidence.closed_ns - evidence.opened_ns
