"""Kill every kind of recipe work at random points: ``python -m tests.benchmarks.kills FOLDER [WORK...]``.

Two hundred kills of work that takes about a second, twenty of work on the small model's own pack. Prints one line of
JSON a run: seconds of the whole work, kills, products found complete, and how many of those had been killed before.
Exit code 1 where a promise is broken. ``tests/recipe/killing.py`` says which promises.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

from runner.paths import source_root
from tests.recipe.works import WORKS

TIMES = {"second": 200, "mini": 20}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("works", nargs="*", choices=[[], *WORKS], metavar="WORK", default=[])
    parser.add_argument("--seed", default="1")
    arguments = parser.parse_args()
    broken = False
    for name in arguments.works or WORKS:
        for size, times in TIMES.items():
            if name.startswith("patch") and size == "mini":
                continue  # a patch has no pack
            place = arguments.folder / f"{name}-{size}"
            argv = [sys.executable, "-m", "tests.recipe.killing", name, size, str(place), str(times), arguments.seed]
            done = subprocess.run(argv, capture_output=True, text=True, cwd=source_root(), check=False)
            told = json.loads(done.stdout) if done.returncode == 0 else {"broken": done.stderr[-500:]}
            broken |= done.returncode != 0
            print(json.dumps({"work": name, "size": size} | told), flush=True)
            shutil.rmtree(place)
    sys.exit(broken)


if __name__ == "__main__":
    main()
