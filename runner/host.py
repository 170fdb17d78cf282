"""The measured part of a run on the seat's own machine: ``python3 -P -m runner.host JOB [SECONDS]``.

It runs the same step that measures everywhere else, and leaves an unsigned bundle, also of a part: run again, it goes
on. It needs no key, no git and no network, and goes on only on the machine where it began, as blocks of two machines
are never pooled.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from runner.away import HOST, LIBRARIES, MEASURING, check_files, check_job, library_in, write_bundle
from runner.clock import now
from runner.digest import canonical_json
from runner.errors import AbsentError, CarveError, TrustError
from runner.files import write_whole
from runner.graders import tree_subjects
from runner.model.host import Host, this_host
from runner.model.order import load_order
from runner.model.plan import Plan
from runner.model.seat import SeatManifest
from runner.model.verdict import Status
from runner.paths import source_root
from runner.plan import plan_digest
from runner.steps.boots import boot_records, boots, nothing_answered, to_measure
from runner.steps.journal import Journal
from runner.steps.seats import load_manifest
from runner.steps.state import Built, Run, Sealed
from runner.visible import told, visible
from serve.adapters.process import installed_engine


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
        sys.stderr.write(f"{now()} {visible(what)}\n")
        sys.stderr.flush()


def reopen(folder: Path) -> Run:
    """The sealed run whose job lies in ``folder``. TrustError where plan, libraries or graders are not the sealed."""
    told = check_files(folder)
    plan = Plan.model_validate_json((folder / "plan.json").read_bytes())
    digest = plan_digest(plan)
    if digest != told["plan_digest"]:
        raise TrustError("the plan was changed", where=str(folder), expected=told["plan_digest"], found=digest)
    libraries = {name: library_in(folder, file) for name, file in told[LIBRARIES].items()}
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


def same_host(run: Run) -> Host:
    """This machine: remembered, or seen to be still the one where the job began. Raises TrustError.

    The journal and every boot say where, too: a note that was removed is missed.
    """
    here, path = this_host(), run.folder / HOST
    told = {str(event.facts.get("host")) for event in run.journal.of(MEASURING)}
    told |= {str(boot.host) for boot in boot_records(run)}
    if path.exists():
        told.add(_noted(path))
    elif run.journal.all() or told:
        told.add(f"no {HOST}")
    if told - {here.identity}:
        raise TrustError(
            "this job was begun on another machine, or before this one started anew",
            where=str(path),
            expected=f"host {here.identity} in {HOST}, the journal and every boot",
            found=", ".join(sorted(told)),
            next_step="bring back the bundle as it is, or measure the job anew from a fresh copy",
        )
    if not path.exists():
        write_whole(path, canonical_json(here.model_dump(mode="json")))
    return here


def _noted(path: Path) -> str:
    try:
        return Host.model_validate_json(path.read_bytes()).identity
    except ValidationError:
        return f"no host in {path.name}"


def require_seat(manifest: SeatManifest) -> None:
    """Raises AbsentError with what this machine lacks, before any boot is spent on it."""
    if manifest.adapter != "process":
        return
    installed_engine(manifest.distribution)
    found = visible_gpus() if manifest.gpu else ""
    if manifest.gpu and not (found.isdigit() and int(found) > 0):
        raise AbsentError(
            "the seat's engine has no GPU here",
            where=platform.node(),
            expected="a CUDA device that torch reaches",
            found=found,
            next_step="measure on a machine with the seat's GPUs, or name them in CUDA_VISIBLE_DEVICES",
        )


def visible_gpus() -> str:
    """How many CUDA devices this Python's torch reaches, or the last words of why it cannot say."""
    words = "import torch; print(torch.cuda.device_count())"
    asked = subprocess.run([sys.executable, "-P", "-c", words], capture_output=True, text=True, check=False)
    said = (asked.stdout if asked.returncode == 0 else asked.stderr).split("\n")
    return next((line.strip() for line in reversed(said) if line.strip()), "nothing")


def main(arguments: Sequence[str]) -> int:
    """0 where every boot of the plan ended; 2 where time ended first or no engine answered, with a bundle of what there
    is; 2 or 3 and no new bundle where the machine lacks the seat or the job is not what was written.

    The reason is on standard error.
    """
    folder = Path(arguments[0] if arguments else ".").resolve()
    deadline = time.monotonic() + float(arguments[1]) if len(arguments) > 1 else None
    try:
        run = replace(reopen(folder), deadline=deadline)
        host = same_host(run).identity
        require_seat(run.manifest)
        run.journal.write(MEASURING, seconds=arguments[1] if deadline else "", host=host)
        measured = boots(replace(run, host=host)).outcome
    except CarveError as error:
        sys.stderr.write(f"error: {told(error)}\n")
        return error.exit_code
    sys.stdout.write(f"{write_bundle(run)}\n")
    left = [name for name in to_measure(run.plan) if not run.journal.of("boot-ended", planned=name)]
    if left and not run.journal.of("killed"):
        sys.stderr.write(f"time ended before {', '.join(left)}: run ./measure again for the rest\n")
        return Status.NOT_RUN.exit_code
    if not left and nothing_answered(measured.boots, run.plan):
        last = sorted({boot.ended_reason.strip().rpartition("\n")[2] for boot in measured.boots})
        sys.stderr.write(f"no engine answered in any boot, nothing was measured: {visible('; '.join(last))}\n")
        return Status.NOT_RUN.exit_code
    return 0


def surroundings(folder: Path) -> None:
    """Where this process and those that it starts find the job's code and keep what they build: beside the job.

    The job is the workspace here: a sandbox hides it, with its seed.
    """
    os.environ["CARVE_WORKSPACE"] = str(folder)
    root = source_root()
    path = os.pathsep.join([str(root), str(root / "kernels"), *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ["PYTHONPATH"] = os.environ["CARVE_PYTHONPATH"] = path
    os.environ.setdefault("CARVE_CACHE", str(folder.parent / f"{folder.name}-cache"))


if __name__ == "__main__":
    surroundings(Path(sys.argv[1]).resolve())
    sys.exit(main(sys.argv[1:]))
