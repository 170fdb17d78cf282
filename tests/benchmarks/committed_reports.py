"""``runner canon`` and ``runner verify`` over reports as large as ours.

``python -m tests.benchmarks.committed_reports [COUNT] [SMALLEST]``: COUNT copies (10,000) of the committed reports of
SMALLEST bytes or more (0), each with an intent of its own under a run of its own, its text and its evidence archive,
all signed anew with throw-away keys; one in a hundred is adopted or rejected. Prints seconds and peak memory beside the
limits, and exits 1 where one is not kept.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from runner import ledger
from runner.attest import dsse
from runner.attest.keys import PrivateKey
from runner.attest.statement import sign
from runner.digest import canonical_json, sha256_bytes
from runner.ledger import ADOPTIONS, LEDGER, SUFFIX
from runner.model.adoption import Adoption, ReportName
from runner.paths import source_root
from runner.report import EVIDENCE, REPORT, TEXT
from tests.benchmarks.limits import measure
from tests.runner.records import make_workspace

_DECIDED_AT = "2027-01-01T00:00:00Z"


@dataclass(frozen=True)
class Copier:
    """Writes copies of signed files into a workspace."""

    workspace: Path
    runner: PrivateKey
    adopter: PrivateKey

    def report(self, folder: Path, number: int) -> int:
        """A copy of the report in ``folder``; bytes of its envelope."""
        run = f"r{number:05d}"
        statement = _statement(folder / REPORT)
        old = statement["predicate"]
        intent, challenge = old["plan"]["intent"], old.get("challenge")
        announced = self._entry(intent, {"run": run})
        predicate = old | {"run": run, "parents": [announced], "plan": old["plan"] | {"intent": announced}}
        changed = {old["run"]: run, intent[:16]: announced[:16]}
        if challenge:
            predicate["challenge"] = self._entry(challenge, {})
            changed[challenge[:16]] = predicate["challenge"][:16]
        data = self._signed(statement, predicate)
        own = self.workspace / "reports" / predicate["order"]["name"] / run
        own.mkdir(parents=True)
        (own / REPORT).write_bytes(data)
        text = (folder / TEXT).read_text(encoding="utf-8")
        for was, is_ in changed.items():
            text = text.replace(was, is_)
        (own / TEXT).write_text(text, encoding="utf-8")
        if (folder / EVIDENCE).exists():
            _same_file(folder / EVIDENCE, own / EVIDENCE)
        if number % 100 == 0:
            self._decide(predicate, sha256_bytes(data))
        return len(data)

    def _entry(self, digest: str, changes: dict[str, Any]) -> str:
        """A copy of a ledger's entry without its parents; its digest."""
        statement = _statement(source_root() / LEDGER / (digest + SUFFIX))
        data = self._signed(statement, statement["predicate"] | {"parents": []} | changes)
        (self.workspace / LEDGER).mkdir(exist_ok=True)
        (self.workspace / LEDGER / (sha256_bytes(data) + SUFFIX)).write_bytes(data)
        return sha256_bytes(data)

    def _signed(self, statement: dict[str, Any], predicate: dict[str, Any]) -> bytes:
        return dsse.sign(canonical_json(statement | {"predicate": predicate}), self.runner)

    def _decide(self, report: dict[str, Any], digest: str) -> None:
        decision = Adoption(
            created_at=_DECIDED_AT,
            parents=(digest,),
            result="ADOPTED" if report["verdict"] == "PASS" else "REJECTED",
            report=ReportName(run=report["run"], order=report["order"]["name"], digest=digest),
            seat=report["seat"]["name"],
            scope="descriptive",
            waivers=(),
            reason="made up",
        )
        ledger.append(self.workspace, ADOPTIONS, sign(decision, {"report": digest}, self.adopter))


@cache
def _statement(path: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(base64.b64decode(json.loads(path.read_bytes())["payload"]))
    return read


def _same_file(source: Path, target: Path) -> None:
    """A second name where the file system has it, so that 10,000 archives take no gigabyte."""
    try:
        os.link(source, target)
    except OSError:
        target.write_bytes(source.read_bytes())


def main() -> None:
    """Make the copies and measure."""
    count, smallest = map(int, (*sys.argv[1:], *("10000", "0")[len(sys.argv) - 1 :]))
    folders = [
        path.parent
        for path in sorted((source_root() / "reports").glob(f"*/*/{REPORT}"))
        if path.stat().st_size >= smallest
    ]
    with tempfile.TemporaryDirectory(prefix="carve-benchmark-") as scratch:
        runner, adopter = PrivateKey.generate(), PrivateKey.generate()
        workspace = make_workspace(Path(scratch) / "workspace", runner_runner=runner, adopter_adopter=adopter)
        copier = Copier(workspace, runner, adopter)
        size = sum(copier.report(folders[number % len(folders)], number) for number in range(count))
        print(f"{count} copies of {len(folders)} reports, {size // count} bytes on average", flush=True)
        kept = measure(workspace)
    sys.exit(not kept)


if __name__ == "__main__":
    main()
