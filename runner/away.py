"""A seat on another machine: the job that travels there, and the bundle that comes back.

No key and no git go there, because candidate code runs there. The plan is sealed and the intent signed before the job
is written; what comes back is evidence that only fits this plan, and it is judged and signed here.

    runs/<run>/job/          measure, job.json, order.yaml, plan.json, seed, libraries/, code/
    <job>/bundle/            bundle.json (run, plan, digest of every file), evidence.tar.xz
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from runner import archive
from runner.digest import canonical_json, sha256_bytes, sha256_file
from runner.errors import InputError, TrustError
from runner.files import write_whole
from runner.graders import GRADERS
from runner.model.boot import BootRecord
from runner.model.plan import Plan
from runner.paths import source_root
from runner.plan import plan_digest
from runner.steps.journal import Event, Journal
from runner.steps.state import Run

JOB, BUNDLE, NAMES, FILES = "job", "bundle", "bundle.json", "evidence.tar.xz"
JOURNAL = "journal.jsonl"
_TRAVELS = ("*.py", "*.yaml", "*.cpp", "*.j2")
_KEPT = ("boots/*.json", "evidence/*.json", "evidence/*/*.json", "logs/*.log")
_EVENTS = ("boot-", "window-", "block-")
_SCRIPT = """#!/bin/sh
# Measure this job on the machine it is for: Python with torch, pydantic, PyYAML and httpx, no key, no git.
cd "$(dirname "$0")" || exit 3
PYTHONPATH="$PWD/code:$PWD/code/kernels${PYTHONPATH:+:$PYTHONPATH}" exec python3 -P -m runner.host .
"""


def write_job(run: Run) -> Path:
    """The folder to carry to the seat's machine, made anew: everything a measurement needs and nothing that signs."""
    job = run.folder / JOB
    shutil.rmtree(job, ignore_errors=True)
    for name, library in run.built.libraries.items():
        _copy(library, job / "libraries" / f"{name}.so")
    root = source_root()
    for tree in GRADERS:
        for pattern in _TRAVELS:
            for path in (root / tree).rglob(pattern):
                _copy(path, job / "code" / path.relative_to(root))
    for name in ("order.yaml", "plan.json", "seed"):
        _copy(run.folder / name, job / name)
    write_whole(job / "job.json", canonical_json({"run": run.name, "plan_digest": run.sealed.digest}))
    write_whole(job / "measure", _SCRIPT.encode(), mode=0o755)
    return job


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def write_bundle(run: Run) -> Path:
    """What was measured in ``run``'s folder, on the seat's machine: two files in ``bundle/``."""
    paths = [run.folder / JOURNAL, *(path for pattern in _KEPT for path in sorted(run.folder.glob(pattern)))]
    files = {path.relative_to(run.folder).as_posix(): path.read_bytes() for path in paths}
    data = archive.build(files, sum(map(len, files.values())) + (1 << 20)).data
    names = {name: sha256_bytes(content) for name, content in files.items()}
    content = {"run": run.name, "plan_digest": run.sealed.digest, "files": names}
    write_whole(run.folder / BUNDLE / FILES, data)
    write_whole(run.folder / BUNDLE / NAMES, canonical_json(content))
    return run.folder / BUNDLE


def take_in(run: Run, bundle: Path) -> None:
    """Put a bundle's files and events into the run's folder.

    Raises InputError where it is no bundle and TrustError where it is another run's or plan's, does not hold what it
    says, or was measured with another library than was planned.
    """
    plan = Plan.model_validate_json((run.folder / "plan.json").read_bytes())
    sealed = (run.name, plan_digest(plan))
    try:
        names = json.loads((bundle / NAMES).read_bytes())
        data = (bundle / FILES).read_bytes()
        told, files = (names["run"], names["plan_digest"]), dict(names["files"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        expected = f"{NAMES} and {FILES}"
        raise InputError("no bundle here", where=str(bundle), expected=expected, found=str(error)) from error
    if told != sealed:
        expected = f"run {sealed[0]}, plan {sealed[1]}"
        raise TrustError(
            "a bundle of another run", where=str(bundle), expected=expected, found=f"run {told[0]}, plan {told[1]}"
        )
    contents = archive.read(data, files, str(bundle))
    for name, content in contents.items():
        if name == JOURNAL:
            continue
        if ".." in name or not any(Path(name).match(pattern) for pattern in _KEPT):
            raise TrustError("a file that no measurement leaves", where=str(bundle), found=name)
        if name.startswith("boots/"):
            _check_boot(BootRecord.model_validate_json(content), plan.subjects, str(bundle))
    for name, content in contents.items():
        if name != JOURNAL:
            write_whole(run.folder / name, content)
    known = {_line(event) for event in _events(run.journal)}
    for event in _read(contents.get(JOURNAL, b""), run.folder):
        if _line(event) not in known:
            run.journal.write(event.kind, **event.facts)


def _check_boot(record: BootRecord, subjects: dict[str, str], where: str) -> None:
    for rank in record.ranks:
        for name, digest in rank.libraries.items():
            planned = subjects.get(f"library.{name}", "not planned")
            if digest != planned:
                raise TrustError(
                    "another library than was planned ran", where=f"{where}, {name}", expected=planned, found=digest
                )


def _events(journal: Journal) -> list[Event]:
    return [event for event in journal.all() if event.kind.startswith(_EVENTS)]


def _read(data: bytes, folder: Path) -> list[Event]:
    """The measured events of a journal that came in."""
    path = folder / f".incoming-{JOURNAL}"
    write_whole(path, data)
    try:
        return _events(Journal(path))
    finally:
        path.unlink()


def _line(event: Event) -> str:
    return json.dumps([event.kind, event.facts], sort_keys=True)


def check_job(folder: Path, libraries: dict[str, Path], subjects: dict[str, str], trees: dict[str, str]) -> None:
    """Libraries and graders are those of the sealed plan. Raises TrustError for the first that is not."""
    found = {f"library.{name}": sha256_file(path) for name, path in libraries.items()} | trees
    for name, digest in subjects.items():
        if name.startswith(("library.", "tree.")) and digest != found.get(name):
            raise TrustError(
                "the job is not what was sealed",
                where=f"{folder}, {name}",
                expected=digest,
                found=found.get(name, "nothing"),
                next_step="carry the job folder again as `runner execute` left it",
            )


__all__ = ["check_job", "take_in", "write_bundle", "write_job"]
