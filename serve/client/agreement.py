"""Another engine's record beside our own forward, and the served engine asked for the same tokens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from runner.errors import InputError, StateError
from runner.model.evidence import Evidence
from runner.paths import source_root
from serve.client.capture import Capture, record
from serve.client.context import WindowContext

_SECONDS = 300


def agreement(context: WindowContext) -> Evidence:
    """Argument ``record``: the file that ``recipe.exllamav3_host`` left, relative to the checkout.

    Our own forward is computed before the window opens, in a process of its own. Raises InputError where there is no
    such file, StateError where it cannot be compared.
    """
    file = source_root() / context.text("record")
    if not file.is_file():
        raise InputError(
            "the record of the other engine is missing",
            where=str(file),
            expected="what `python -m recipe.exllamav3_host logits` left",
            found="none",
        )
    told = _measured(context.pack, file)
    prompts = {f"d{number}": document["tokens"] for number, document in enumerate(told["documents"], 1)}

    def collect(capture: Capture) -> None:
        for name, tokens in prompts.items():
            capture.complete(name, prompt=tokens, max_tokens=1, prompt_logprobs=0)

    return record(context, collect, material={}, facts={"agreement": told})


def _measured(pack: Path, file: Path) -> dict[str, Any]:
    command = [sys.executable, "-P", "-m", "recipe.agreement", "measure", str(pack), str(file)]
    path = os.pathsep.join([str(source_root()), str(source_root() / "kernels")])
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        raise StateError(
            "the record cannot be compared with our own forward",
            where=str(file),
            expected="exit code 0",
            found="\n    ".join(["", *done.stderr.strip().splitlines()[-4:]]),
            next_step="torch is needed: run `scripts/setup engine`",
        )
    found: dict[str, Any] = json.loads(done.stdout)
    return found
