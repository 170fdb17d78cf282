"""Several processes at one piece of work: ``python -m tests.recipe.racing WORK FOLDER COUNT``.

One process with one thread forks them all; each makes the product, or finds it made, or is told that another process is
at it. Afterwards the product is the same as one made alone. Answers with one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path

from runner.errors import StateError
from tests.recipe.overlays import contents
from tests.recipe.works import WORKS, Work

MADE, TOLD, BROKEN = 0, 10, 1
_TELLING = ("another process is at work here", "the folder exists already")


def main(name: str, folder: Path, count: int) -> dict[str, int]:
    """How many ended which way; AssertionError where one ended otherwise or the product is not whole."""
    folder.mkdir(parents=True, exist_ok=True)
    given = WORKS[name](folder, "small")
    for place in ("alone", "together"):
        given.prepare(folder / place)
    given.do(folder / "alone")
    children = [racer(given, folder / "together") for _ in range(count)]
    ended = Counter(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
    assert not ended.keys() - {MADE, TOLD}, ended
    given.do(folder / "together")
    assert contents(folder / "together/product") == contents(folder / "alone/product")
    left = {path.name for path in (folder / "together").iterdir()} - {"product", "work"}
    assert not left, f"left behind: {left}"
    return {"made": ended[MADE], "told": ended[TOLD]}


def racer(given: Work, place: Path) -> int:
    """A process at the work; its id."""
    child = os.fork()
    if child:
        return child
    code = BROKEN
    try:
        given.do(place)
        code = MADE
    except StateError as error:
        code = TOLD if error.what in _TELLING else BROKEN
        print(error, file=sys.stderr, flush=True)
    finally:
        os._exit(code)


if __name__ == "__main__":
    work, where, times = sys.argv[1:]
    print(json.dumps(main(work, Path(where), int(times))))
