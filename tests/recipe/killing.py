"""Kill one piece of work at random points: ``python -m tests.recipe.killing WORK SIZE FOLDER TIMES SEED``.

One process with one thread forks a worker, kills it after a random while, and looks at what is left: the product is
absent or complete, and the inputs are what they were. What was begun is then gone on with by the next worker, also
after several kills in a row. Answers with one line of JSON.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

from tests.recipe.overlays import contents
from tests.recipe.works import WORKS, Work


def main(name: str, size: str, folder: Path, times: int, seed: int) -> dict[str, float]:
    """Seconds of the whole work, counts of kills and of what they left; AssertionError where a promise is broken."""
    folder.mkdir(parents=True, exist_ok=True)
    given = WORKS[name](folder, size)
    inputs = {place: contents(place) for place in given.inputs}
    given.prepare(folder / "whole")
    began = time.monotonic()
    assert attempt(given, folder / "whole", None) == 0
    takes = time.monotonic() - began
    expected = contents(folder / "whole/product")
    draw, place = random.Random(seed), folder / "killed"
    killed = finished = attempts = resumed = 0
    while killed < times:
        given.prepare(place)
        ended = attempt(given, place, draw.uniform(0, 1.5 * takes))
        attempts += 1
        killed += ended == signal.SIGKILL
        assert ended in (0, signal.SIGKILL), ended
        if given.finished(place / "product", expected):
            finished, resumed, attempts = finished + 1, resumed + (attempts > 1), 0
            shutil.rmtree(place)
    given.prepare(place)
    assert attempt(given, place, None) == 0
    assert contents(place / "product") == expected, "what was killed and gone on with is the same to the byte"
    left = {path.name for path in place.iterdir()} - {"product", "work"}
    assert not left, f"left behind: {left}"
    assert {place: contents(place) for place in given.inputs} == inputs, "inputs are never written to"
    return {"seconds": round(takes, 2), "killed": killed, "finished": finished, "resumed": resumed}


def attempt(given: Work, place: Path, after: float | None) -> int:
    """The work in a process of its own, killed ``after`` seconds: 0, or the signal that ended it."""
    child = os.fork()
    if child == 0:
        try:
            given.do(place)
        finally:
            os._exit(1 if sys.exc_info()[0] else 0)
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


if __name__ == "__main__":
    work, size, where, count, drawn = sys.argv[1:]
    print(json.dumps(main(work, size, Path(where), int(count), int(drawn))))
