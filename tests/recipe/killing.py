"""Kill one piece of work at random points: ``python -m tests.recipe.killing FOLDER SOURCE DONOR TIMES SEED``.

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

from recipe import overlay
from recipe.product import Job
from tests.recipe.overlays import contents, job_of, recipe_of


def main(folder: Path, source: Path, donor: Path, times: int, seed: int) -> dict[str, int]:
    """Counts of kills, and of products found whole; AssertionError where a promise is broken."""
    inputs = {pack: contents(pack) for pack in (source, donor)}
    whole = job_of(folder / "whole", source, recipe_of(donor))
    began = time.monotonic()
    assert work(whole, None) == 0
    takes = time.monotonic() - began
    expected = contents(whole.product)
    draw, job = random.Random(seed), job_of(folder / "killed", source, recipe_of(donor))
    killed = finished = resumed = 0
    while killed < times:
        begun = job.product.with_name(f".{job.product.name}.partial").exists()
        ended = work(job, draw.uniform(0, 1.2 * takes))
        killed += ended == signal.SIGKILL
        assert ended in (0, signal.SIGKILL), ended
        if job.product.exists():
            assert contents(job.product) == expected, "the product is complete or absent"
            finished, resumed = finished + 1, resumed + begun
            shutil.rmtree(folder / "killed")
    assert work(job, None) == 0
    assert contents(job.product) == expected, "what was killed and gone on with is the same to the byte"
    assert {pack: contents(pack) for pack in (source, donor)} == inputs, "inputs are never written to"
    return {"killed": killed, "finished": finished, "resumed": resumed}


def work(job: Job, after: float | None) -> int:
    """Make the product in a process of its own, killed ``after`` seconds: 0, or the signal that ended it."""
    child = os.fork()
    if child == 0:
        try:
            overlay.make(job)
        finally:
            os._exit(1 if sys.exc_info()[0] else 0)
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


if __name__ == "__main__":
    first, second, third, count, drawn = sys.argv[1:]
    print(json.dumps(main(Path(first), Path(second), Path(third), int(count), int(drawn))))
