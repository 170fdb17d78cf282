"""The desk: no engine, kernels alone in a process of their own."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.boots import new_record
from runner.digest import sha256_file
from runner.model.boot import NO_WEIGHTS, RankIdentity
from runner.sandbox import available
from serve.adapters.offline import OfflineBoot, require_built
from serve.adapters.side import run_job
from serve.seat import BootRequest

JOBS = ("parity",)
TIMEOUT_SECONDS = 300.0


@dataclass
class DeskBoot(OfflineBoot):
    """``serve.seat.Boot`` without an engine: ``call`` runs a job and gives its answer; nothing is counted."""

    variant: str = ""

    def call(self, method: str, arguments: dict[str, Any] | None = None) -> list[Any]:
        """``parity`` {"variant", ...}: the cases of that variant's library. Raises SeatError where it cannot run."""
        wanted = dict(arguments or {})
        variant = str(wanted.pop("variant", self.variant))
        self.require_job(JOBS, method, variant)
        library = str(self.libraries[variant].resolve())
        request = {"job": method, "library": library, **wanted}
        answer = run_job(
            "carve_kernels.desk.job",
            request,
            timeout=TIMEOUT_SECONDS,
            reads=(Path(library),),
            sandboxed=self.record.sandbox.tool != "none",
        )
        self.words += f"{method} of {variant}: {len(answer['cases'])} cases\n"
        return [answer]

    def switch(self, variant: str, ranks: tuple[int, ...] | None = None) -> None:
        """The variant that the next job runs where it names none."""
        self.variant = variant


class DeskSeat:
    """Gives desk boots."""

    def boot(self, request: BootRequest) -> DeskBoot:
        """Nothing starts until a job is called. Raises SeatError where a library is missing."""
        require_built(request)
        identity = RankIdentity(
            rank=0,
            pid=os.getpid(),
            libraries={name: sha256_file(path) for name, path in request.libraries.items()},
            trees={},
            weights=NO_WEIGHTS,
        )
        record = new_record(request.planned.id, label="cpu", pid=os.getpid(), ranks=(identity,), sandbox=available())
        return DeskBoot(record, dict(request.libraries), time.monotonic(), variant=request.variant)
