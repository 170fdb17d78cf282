"""Reviewers with lenses, side by side: each in a clone of its own, each giving claims and nothing else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event, Lock

import yaml

from runner.brief.render import brief_of, fenced
from runner.craft import sandbox
from runner.craft.attempt import Task, prepare, sit
from runner.craft.bench import REVIEWS, Bench
from runner.craft.crew import craftsperson
from runner.craft.next_version import added
from runner.craft.start import deviations, require_startable
from runner.craft.store import Store
from runner.errors import CarveError, InputError, StateError
from runner.files import write_whole
from runner.model.base import Record
from runner.model.order import WorkOrder, load_order
from runner.model.order.review import Review, ReviewClaim, ReviewFile
from runner.yaml_strict import MAX_BYTES, parse, read

CLAIMS = "claims.yaml"
FOLDER = Path("orders/reviews")

_ASKED = """
## What you are asked

You review this order; you change nothing of it. You look through this lens and no other:

{lens}

Write the file `{claims}` into the folder you are started in. Nothing else that you write is read. Its form:

```yaml
claims:
  - question: step-count        # one short name for one question; others may answer the same one
    value: 24                   # a plain decimal number
    unit: steps
    evidence: file and line, command, or the reckoning itself
    confidence: low             # low, medium or high
```

Claim only what you can show. How many reviewers agree decides nothing; what is claimed is reckoned again.
"""


class Claims(Record):
    """What a reviewer's file holds; who it is and through which lens is known here."""

    claims: tuple[ReviewClaim, ...]


def review(order: Path, workspace: Path, checkout: Path, deviation: str = "") -> tuple[Path, dict[str, str]]:
    """Ask every reviewer of the order who has not given claims yet, side by side. Each review is kept as it ends.

    Gives the file of their claims, ``orders/reviews/<order>-<version>.yaml``, and who gave none, with the reason.
    ``deviation`` says why a reviewer may use a network that the order closes. Raises InputError where the order names
    no reviewer, where one is not in the crew or may not be started, or where all have answered, and StateError where
    nobody gave any claims.
    """
    file = load_order(order)
    reviewers = file.order.people.reviewers
    path = workspace / FOLDER / f"{file.order.id}-{file.order.version}.yaml"
    if not reviewers:
        raise InputError("the order names no reviewer", where=f"{order}: people.reviewers", expected="name and lens")
    answered = _answered(path, file.order)
    bench, silent = Bench.of(file), {}
    with bench.hold():
        store, base = Store.of(bench.folder / "store.git", checkout)
        tasks = []
        for number, one in enumerate(reviewers, 1):
            if (one.name, one.lens) in answered:
                continue
            entry = craftsperson(workspace, one.name)
            if entry.kind == "person":
                silent[one.name] = f"a person, who adds a review of their own to {path}"
                continue
            require_startable(one.name, entry, file.order, workspace, checkout, deviation=deviation)
            task = Task(
                bench=bench,
                folder=bench.folder / REVIEWS / str(number),
                number=number,
                name=one.name,
                entry=entry,
                brief=brief_of(order) + _ASKED.format(lens=fenced(one.lens), claims=CLAIMS),
                order=order.resolve(),
                checkout=checkout,
                workspace=workspace,
                allowed=(CLAIMS,),
                forbidden=(),
                base=base,
                start=base,
                deviations=deviations(entry, file.order, deviation),
                sandboxed=bool(sandbox.version()),
            )
            tasks.append((task, one.lens))
        for task, _ in tasks:
            prepare(task, store)
        silent |= _asked(tasks, file.order, path)
    if not path.exists():
        reasons = "\n    ".join(["", *(f"{name}: {why}" for name, why in silent.items())])
        raise StateError("nobody gave any claims", where=str(order), found=reasons)
    return path, silent


def _answered(path: Path, order: WorkOrder) -> set[tuple[str, str]]:
    """Names and lenses of the reviews that are there. Raises InputError where none is missing or none can be added."""
    if not path.exists():
        return set()
    kept: ReviewFile = read(path).validate(ReviewFile)
    answered = {(one.reviewer, one.lens) for one in kept.reviews}
    if answered >= {(one.name, one.lens) for one in order.people.reviewers}:
        raise InputError("this version is reviewed already", where=str(path), next_step="add to the file, or move it")
    added(path.read_text(encoding="utf-8"), "reviews", [])
    return answered


def _asked(tasks: Sequence[tuple[Task, str]], order: WorkOrder, path: Path) -> dict[str, str]:
    """Hold every session; who gave no claims, with the reason. An interrupt ends them all, and what is kept stays."""
    stop, writing = Event(), Lock()

    def ask(task: Task, lens: str) -> str:
        answer = _claims(task, stop)
        if isinstance(answer, str):
            return answer
        with writing:
            _keep(path, order, Review(reviewer=task.name, lens=lens, claims=answer, deviations=task.deviations))
        return ""

    if not tasks:
        return {}
    with ThreadPoolExecutor(max_workers=len(tasks)) as pool:
        futures = [pool.submit(ask, *one) for one in tasks]
        try:
            wait(futures)
        except KeyboardInterrupt:
            stop.set()
            raise
        return {task.name: why for (task, _), one in zip(tasks, futures, strict=True) if (why := one.result())}


def _keep(path: Path, order: WorkOrder, review: Review) -> None:
    """One more review in the file, all else in it as it was."""
    if path.exists():
        dumped = review.model_dump(mode="json", exclude_defaults=True)
        text = added(path.read_text(encoding="utf-8"), "reviews", [dumped])
    else:
        found = ReviewFile(schema_version=1, order=order.id, version=order.version, reviews=(review,))
        value = found.model_dump(mode="json", exclude_defaults=True)
        text = yaml.safe_dump(value, allow_unicode=True, sort_keys=False, width=1000)
    parse(text.encode(), str(path)).validate(ReviewFile)
    write_whole(path, text.encode())


def _claims(task: Task, stop: Event) -> tuple[ReviewClaim, ...] | str:
    """The claims of one session, or why there are none. A link in their place is not followed."""
    try:
        _, findings = sit(task, stop)
        if findings:
            return "; ".join(f"{one.kind}: {one.detail}" for one in findings)
        descriptor = os.open(task.walls.clone / CLAIMS, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        found: Claims = parse(data, CLAIMS).validate(Claims)
    except OSError as error:
        return f"no {CLAIMS}: {error.strerror}"
    except CarveError as error:
        return " ".join(line.strip() for line in str(error).splitlines())
    return found.claims


__all__ = ["CLAIMS", "FOLDER", "review"]
