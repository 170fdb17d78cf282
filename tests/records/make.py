"""Makes ``tests/records/<version>``: signed files of every kind, kept for ever so that later code must still read them.

    python -m tests.records.make tests/records/v1

The toy seat measures; both keys are made for this and thrown away with their folder. A folder that stands is never
written over: a released version of a record keeps the golden files it was released with.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from runner.attest.keys import PrivateKey
from runner.attest.statement import sign
from runner.attest.trust import load_trust, repository_file, signer_line, trust_key
from runner.challenge import attempt, concluded, control_of
from runner.decide import Desk, reject, revoke
from runner.errors import InputError
from runner.exploits.corpus import corpus
from runner.exploits.honest import load as load_honest
from runner.ledger import LEDGER, append, append_observation, load
from runner.model.adoption import Observation, ReportName, Reproduction, Waiver
from runner.model.report import ReportPredicate
from runner.paths import source_root
from runner.session import open_run
from runner.steps.build import build
from runner.steps.preflight import preflight
from runner.steps.seal import runner_key, seal
from runner.steps.state import Silent
from runner.workflow import execute
from runner.workspace import make_workspace
from tests.runner.flow_orders import QUALITY, gate_order, kernel_order, write_order

GOLDEN = "demo-golden"


def orders(folder: Path) -> dict[str, Path]:
    """One order that passes, one that fails, one whose candidate never ran, and an engine against itself."""
    texts = {
        "passes": (source_root() / "orders" / "fake-lna2.yaml").read_text(encoding="utf-8"),
        "fails": kernel_order("half-k", gates=QUALITY) + "kill_lines:\n  - gate: kld\n",
        "invalid": kernel_order("one-rank", seat="fake-tp2", gates=""),
        "same": gate_order(tokens=200),
    }
    paths = {}
    for name, text in texts.items():
        (folder / name).mkdir()
        paths[name] = write_order(folder / name, text)
    return paths


def measure(order: Path) -> str:
    """Run one order to its report; the run's name."""
    run = open_run(order, progress=Silent())
    execute(run)
    return run.name


def abandon(order: Path) -> None:
    """Announce a run that never comes."""
    seal(build(preflight(open_run(order, progress=Silent()))))


def make(target: Path) -> None:
    """Raises InputError where ``target`` stands already."""
    if target.exists():
        raise InputError("golden records are kept for ever", where=str(target), expected="a new folder")
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        workspace = make_workspace(home / "workspace")
        os.environ |= {
            "CARVE_WORKSPACE": str(workspace),
            "CARVE_STATE": f"{home}/state",
            "CARVE_CONFIG": f"{home}/config",
        }
        adopter = PrivateKey.generate()
        trust_key(repository_file(workspace), signer_line("runner", GOLDEN, runner_key().public))
        trust_key(repository_file(workspace), signer_line("adopter", GOLDEN, adopter.public))
        (home / "orders").mkdir()
        paths = orders(home / "orders")
        runs = {name: measure(path) for name, path in paths.items()}
        abandon(paths["fails"])
        try_exploits(workspace)
        reproduce(workspace, runs["same"])
        observe(workspace)
        reject(Desk.open(workspace, adopter), runs["fails"], "Half of the sum is not the sum.")
        revoke(Desk.open(workspace, adopter), waive_engagement(workspace, adopter, runs["invalid"]), "It proves.")
        for text in paths.values():
            shutil.copy(text, workspace / "orders" / f"{text.parent.name}.yaml")
        shutil.copytree(workspace, target)


def waive_engagement(workspace: Path, adopter: PrivateKey, run: str) -> str:
    """A waiver of what nobody may waive, signed all the same; its digest."""
    desk = Desk.open(workspace, adopter)
    entry, name = desk.report(run)
    waiver = Waiver(
        created_at=desk.at,
        parents=desk.ledger.heads(),
        report=name,
        gate="engaged",
        reason="To be taken back.",
        expires_at="2027-01-01T00:00:00Z",
    )
    return desk.sign(waiver, {"report": entry.digest}).name.split(".")[0]


def try_exploits(workspace: Path) -> None:
    """A challenge of the toy seat, without the libraries that would have to run again."""
    trust = load_trust(workspace)
    honest = load_honest(control_of(workspace, "fake", load(workspace, trust)), workspace, trust)
    tried = [attempt(exploit, honest, "fake", Silent()) for exploit in corpus() if exploit.kind != "candidate"]
    challenge = concluded(honest, "fake", tried, load(workspace, trust).heads())
    append(workspace, LEDGER, sign(challenge, {"report": honest.digest}, runner_key()))


def reproduce(workspace: Path, run: str) -> None:
    """The form of a reproduction; a run that names itself counts for nothing."""
    book = load(workspace, load_trust(workspace))
    ((entry, report),) = (found for found in book.of(ReportPredicate) if found[1].run == run)
    name = ReportName(run=run, order=report.order.name, digest=entry.digest)
    made = Reproduction(
        created_at=report.created_at, parents=book.heads(), report=name, again=name, plan=report.plan.digest
    )
    append(workspace, LEDGER, sign(made, {"report": entry.digest}, runner_key()))


def observe(workspace: Path) -> None:
    """A seat as it was seen."""
    heads = load(workspace, load_trust(workspace)).heads()
    seen = Observation(
        created_at=load(workspace, load_trust(workspace)).oldest_first[-1].predicate.created_at,
        parents=heads,
        seat="fake",
        label="simulated",
        subjects={"engine.record": "0" * 64},
        resolved={"max_model_len": 2048},
    )
    append_observation(workspace, seen, runner_key())


if __name__ == "__main__":
    make(Path(sys.argv[1]))
