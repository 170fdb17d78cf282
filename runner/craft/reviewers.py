"""Reviewers with lenses, side by side: each in a clone of its own, each giving claims and nothing else."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from runner.brief.render import brief_of, fenced
from runner.craft import sandbox
from runner.craft.attempt import Task, prepare, sit
from runner.craft.bench import REVIEWS, Bench
from runner.craft.crew import craftsperson
from runner.craft.store import Store
from runner.errors import InputError
from runner.files import write_whole
from runner.model.base import Record
from runner.model.order import load_order
from runner.model.order.review import Review, ReviewClaim, ReviewFile
from runner.yaml_strict import MAX_BYTES, parse

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


def review(order: Path, workspace: Path, checkout: Path) -> tuple[Path, dict[str, str]]:
    """Ask every reviewer of the order, side by side.

    Gives the file of their claims, ``orders/reviews/<order>-<version>.yaml``, and who gave none, with the reason.
    Raises InputError where the order names no reviewer, where one is not in the crew, or where the file is there.
    """
    file = load_order(order)
    reviewers = file.order.people.reviewers
    path = workspace / FOLDER / f"{file.order.id}-{file.order.version}.yaml"
    if not reviewers:
        raise InputError("the order names no reviewer", where=f"{order}: people.reviewers", expected="name and lens")
    if path.exists():
        raise InputError("this version is reviewed already", where=str(path), next_step="add to the file, or move it")
    bench = Bench.of(file)
    with bench.hold():
        store, base = Store.of(bench.folder / "store.git", checkout)
        tasks = []
        for number, one in enumerate(reviewers, 1):
            task = Task(
                bench=bench,
                folder=bench.folder / REVIEWS / str(number),
                number=number,
                name=one.name,
                entry=craftsperson(workspace, one.name),
                brief=brief_of(order) + _ASKED.format(lens=fenced(one.lens), claims=CLAIMS),
                order=order.resolve(),
                checkout=checkout,
                workspace=workspace,
                allowed=(CLAIMS,),
                forbidden=(),
                base=base,
                start=base,
                deviations=(),
                sandboxed=bool(sandbox.version()),
            )
            prepare(task, store)
            tasks.append(task)
        with ThreadPoolExecutor(max_workers=len(tasks)) as pool:
            answers = list(pool.map(_claims, tasks))
    reviews, silent = [], {}
    for one, answer in zip(reviewers, answers, strict=True):
        if isinstance(answer, str):
            silent[one.name] = answer
        else:
            reviews.append(Review(reviewer=one.name, lens=one.lens, claims=answer))
    found = ReviewFile(schema_version=1, order=file.order.id, version=file.order.version, reviews=tuple(reviews))
    text = yaml.safe_dump(found.model_dump(mode="json"), allow_unicode=True, sort_keys=False, width=1000)
    write_whole(path, text.encode())
    return path, silent


def _claims(task: Task) -> tuple[ReviewClaim, ...] | str:
    """The claims of one session, or why there are none. A link in their place is not followed."""
    _, findings = sit(task)
    if findings:
        return "; ".join(f"{one.kind}: {one.detail}" for one in findings)
    try:
        descriptor = os.open(task.walls.clone / CLAIMS, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        found: Claims = parse(data, CLAIMS).validate(Claims)
    except OSError as error:
        return f"no {CLAIMS}: {error.strerror}"
    except InputError as error:
        return str(error)
    return found.claims


__all__ = ["CLAIMS", "FOLDER", "review"]
