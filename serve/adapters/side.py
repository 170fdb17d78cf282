"""A job in a process of its own: it may crash, hang or need torch, and the runner does not."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.errors import SeatError
from runner.paths import cache_home
from runner.sandbox import Reach, confined, devices
from serve.adapters.booted import last_words
from serve.adapters.supervisor import Supervised, home_of, import_path

POLL_SECONDS = 0.05


def run_job(
    module: str,
    request: Mapping[str, Any],
    *,
    timeout: float,
    reads: Sequence[Path] = (),
    sandboxed: bool = False,
    passed_on: Mapping[str, str] | None = None,
) -> Any:
    """``python -P -m <module> REQUEST.json ANSWER.json``: write the request, wait, read the answer.

    A ``sandboxed`` job sees, of what the user has, its own folder, built libraries and ``reads`` alone.
    ``passed_on`` is added to the environment of every job.
    Raises SeatError with the job's last words when it fails, and when ``timeout`` seconds pass.
    """
    folder = Path(tempfile.mkdtemp(prefix="carve-job-"))
    try:
        asked, answered = folder / "request.json", folder / "answer.json"
        asked.write_text(json.dumps(request), encoding="utf-8")
        argv = [sys.executable, "-P", "-m", module, str(asked), str(answered)]
        environment = _environment() | dict(passed_on or {})
        if sandboxed:
            kept = cache_home()
            kept.mkdir(parents=True, exist_ok=True)
            argv = confined(argv, Reach(reads=(kept, *reads), writes=(folder,), devices=devices()), home_of(folder))
        job = Supervised.start(argv, environment, folder, orphan=True, sandboxed=sandboxed)
        try:
            limit = time.monotonic() + timeout
            while (code := job.poll()) is None:
                if time.monotonic() > limit:
                    raise SeatError(
                        f"{module} did not finish", expected=f"within {timeout:.0f} s", found=job.text()[-500:]
                    )
                time.sleep(POLL_SECONDS)
        finally:
            job.stop()
        if code != 0 or not answered.exists():
            raise SeatError(f"{module} failed", expected="exit code 0", found=last_words(job.text(), code))
        return json.loads(answered.read_text(encoding="utf-8"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name.startswith("CARVE_") or name == "CXX"}
    return (
        kept
        | import_path()
        | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "XDG_CACHE_HOME": str(_cache())}
    )


def _cache() -> Path:
    """HOME moves for a job; the user's cache of built libraries stays where it is."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
