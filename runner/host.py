"""The measured part of a run on the seat's own machine: ``python3 -P -m runner.host JOB``.

It runs the same step that measures everywhere else, and leaves an unsigned bundle. It needs no key, no git and no
network.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from runner.away import check_job, write_bundle
from runner.clock import now
from runner.errors import CarveError, TrustError
from runner.graders import tree_subjects
from runner.model.order import load_order
from runner.model.plan import Plan
from runner.paths import source_root
from runner.plan import plan_digest
from runner.steps.boots import boots
from runner.steps.journal import Journal
from runner.steps.seats import load_manifest
from runner.steps.state import Built, Run, Sealed


class Lines:
    """Progress on standard error, a line each."""

    def expect(self, seconds: int) -> None:
        """The whole will take about this long."""
        self.note(f"about {seconds} s")

    def begin(self, what: str, seconds: int) -> None:
        """Something of about ``seconds`` starts."""
        self.note(f"{what} (about {seconds} s)")

    def note(self, what: str) -> None:
        """One line."""
        sys.stderr.write(f"{now()} {what}\n")
        sys.stderr.flush()


def reopen(folder: Path) -> Run:
    """The sealed run whose job lies in ``folder``. TrustError where plan, libraries or graders are not the sealed."""
    told = json.loads((folder / "job.json").read_bytes())
    plan = Plan.model_validate_json((folder / "plan.json").read_bytes())
    digest = plan_digest(plan)
    if digest != told["plan_digest"]:
        raise TrustError("the plan was changed", where=str(folder), expected=told["plan_digest"], found=digest)
    libraries = {path.stem: path for path in sorted((folder / "libraries").glob("*.so"))}
    check_job(folder, libraries, plan.subjects, tree_subjects())
    return Run(
        name=told["run"],
        folder=folder,
        workspace=folder,
        order=load_order(folder / "order.yaml"),
        manifest=load_manifest(plan.seat),
        journal=Journal(folder / "journal.jsonl"),
        progress=Lines(),
        started_at=now(),
        built=Built(libraries, plan.subjects),
        seal=Sealed(plan, digest, bytes.fromhex((folder / "seed").read_text()), ""),
    )


def main(arguments: Sequence[str]) -> int:
    """0 where every boot of the plan ended and the bundle is written; 2 or 3 with the reason on standard error."""
    folder = Path(arguments[0] if arguments else ".").resolve()
    root = source_root()
    ours = [str(root), str(root / "kernels")]
    os.environ["PYTHONPATH"] = os.pathsep.join([*ours, *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        run = reopen(folder)
        boots(run)
    except CarveError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    sys.stdout.write(f"{write_bundle(run)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
