"""``runner canon`` and ``runner verify`` over many reports: ``python -m tests.benchmarks.many_reports [COUNT]``.

A benchmark, not a test: it prints seconds and peak memory beside the limits, and exits 1 where one is not kept. The
reports are made up (one boot, six quads, two ranks) and signed with throw-away keys in a temporary workspace; one in a
hundred is adopted, one in two hundred rejected. Of reports as large as ours: ``tests.benchmarks.committed_reports``.
"""

from __future__ import annotations

import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from runner import ledger, verify_plan
from runner.attest.keys import PrivateKey
from runner.attest.statement import sign
from runner.gates import registry as gates
from runner.ledger import ADOPTIONS, LEDGER, SUFFIX
from runner.model.adoption import Adoption, ReportName
from runner.model.run import Intent
from runner.model.statement import SignedIntent
from runner.report import REPORT, predicate, subject_digests
from serve.instruments import registry as instruments
from tests.benchmarks.limits import measure
from tests.runner.records import (
    START,
    RateGate,
    RateInstrument,
    instant,
    make_run,
    make_workspace,
)


def write_reports(workspace: Path, runner: PrivateKey, adopter: PrivateKey, count: int) -> int:
    """``count`` intents and reports, and some decisions; bytes of one report."""
    made = make_run()
    whole, subjects = predicate(made.record), subject_digests(made.record)
    candidate = {"library.lna2": subjects["library.lna2"]}
    size = 0
    for number in range(count):
        run, started = f"r{number:05d}", START + timedelta(minutes=number)
        intent = SignedIntent(
            parents=(),
            **Intent(
                run=run,
                order=made.record.plan.order,
                order_digest=made.record.order_digest,
                plan_digest=made.record.plan_digest,
                seed_commitment=made.record.plan.seed_commitment,
                candidate=candidate,
                created_at=instant(START - timedelta(days=30)),
            ).model_dump(),
        )
        path = ledger.append(workspace, LEDGER, sign(intent, subjects, runner))
        own = path.name.removesuffix(SUFFIX)
        report = whole.model_copy(
            update={
                "run": run,
                "parents": (own,),
                "created_at": instant(started + timedelta(hours=1)),
                "plan": whole.plan.model_copy(update={"intent": own}),
            }
        )
        data = sign(report, subjects, runner)
        folder = workspace / "reports" / report.order.name / run
        folder.mkdir(parents=True)
        (folder / REPORT).write_bytes(data)
        size = len(data)
        if number % 100 == 0 or number % 200 == 1:
            digest = ledger.append(workspace, Path(), data)
            name = ReportName(run=run, order=report.order.name, digest=digest.name.removesuffix(SUFFIX))
            digest.unlink()
            decision = Adoption(
                created_at=instant(started + timedelta(hours=2)),
                parents=(name.digest,),
                result="ADOPTED" if number % 100 == 0 else "REJECTED",
                report=name,
                seat=report.seat.name,
                scope="standing",
                waivers=(),
                reason="made up",
            )
            ledger.append(workspace, ADOPTIONS, sign(decision, {"report": name.digest}, adopter))
    return size


def main(count: int) -> None:
    """Make the reports, then each command in a process of its own."""
    gates._GATES, instruments._INSTRUMENTS = (RateGate(),), (RateInstrument(),)
    verify_plan.OLDER_PLANS = frozenset({make_run().record.plan_digest})  # no order names the made-up gate
    runner, adopter = PrivateKey.generate(), PrivateKey.generate()
    with tempfile.TemporaryDirectory(prefix="carve-benchmark-") as folder:
        workspace = make_workspace(Path(folder) / "workspace", runner_runner=runner, adopter_adopter=adopter)
        size = write_reports(workspace, runner, adopter, count)
        print(f"{count} reports of {size} bytes")
        kept = measure(workspace)
    sys.exit(not kept)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
