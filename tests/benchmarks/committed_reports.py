"""``runner canon`` and ``runner verify`` over reports as large as ours.

``python -m tests.benchmarks.committed_reports [N]``: the canon is made of N copies of the committed reports under other
names, signed anew with a throw-away key; ``verify`` reads the committed ones N times in all, each time whole. Prints
seconds, seconds of processor time and peak memory.
"""

from __future__ import annotations

import base64
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from runner import canon
from runner.attest import dsse
from runner.attest.keys import PrivateKey
from runner.digest import canonical_json, sha256_bytes
from runner.paths import source_root
from runner.report import REPORT
from runner.verify_many import verify_many
from tests.runner.records import make_workspace, trust_of


def write_copies(workspace: Path, count: int, key: PrivateKey) -> int:
    """Mean bytes of a report."""
    statements = [
        json.loads(base64.b64decode(json.loads(path.read_bytes())["payload"]))
        for path in sorted((source_root() / "reports").glob(f"*/*/{REPORT}"))
    ]
    size = 0
    for number in range(count):
        statement = statements[number % len(statements)]
        predicate = statement["predicate"] | {"run": f"r{number:05d}", "parents": []}
        predicate["plan"] = predicate["plan"] | {"intent": sha256_bytes(b"%d" % number)}
        data = dsse.sign(canonical_json(statement | {"predicate": predicate}), key)
        folder = workspace / "reports" / predicate["order"]["name"] / predicate["run"]
        folder.mkdir(parents=True)
        (folder / REPORT).write_bytes(data)
        size += len(data)
    return size // count


def read_canon(workspace: Path) -> str:
    """What the canon says of them."""
    return f"canon of {len(canon.generate(workspace, trust_of(workspace)))} bytes"


def read_reports(count: int) -> str:
    """How many verify."""
    folder = source_root() / "reports"
    answers = [answer for _, answer in verify_many([folder])]
    rounds = max(1, round(count / len(answers)))
    answers = [answer for _, answer in verify_many([folder] * rounds)]
    refused = sum(isinstance(answer, Exception) for answer in answers)
    return f"verify of {len(answers)}, {refused} refused"


def measured(work: Callable[[], str]) -> None:
    """Print what ``work`` says and what it took; in a process of its own, so that peaks do not add up."""
    started = time.monotonic()
    said, times = work(), [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds, processor = time.monotonic() - started, sum(one.ru_utime + one.ru_stime for one in times)
    peaks = " + ".join(f"{one.ru_maxrss >> 10} MiB" for one in times)
    print(f"{said}: {seconds:.1f} s, {processor:.1f} s of processors, {peaks}", flush=True)


def main() -> None:
    """Measure both."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    forked = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as scratch:
        key = PrivateKey.generate()
        workspace = make_workspace(Path(scratch) / "workspace", runner_runner=key)
        print(f"{count} copies, {write_copies(workspace, count, key)} bytes each on average", flush=True)
        for work in (lambda: read_canon(workspace), lambda: read_reports(count)):
            one = forked.Process(target=measured, args=(work,))
            one.start()
            one.join()


if __name__ == "__main__":
    main()
