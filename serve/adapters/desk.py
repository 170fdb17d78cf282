"""The desk: no engine, kernels alone in a process of their own."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.boots import new_record
from runner.digest import sha256_file
from runner.errors import SeatError
from runner.model.boot import NO_WEIGHTS, BootRecord, RankIdentity
from runner.model.evidence import RankCounters
from runner.sandbox import available
from serve.adapters.side import run_job
from serve.seat import BootRequest

JOBS = ("parity",)
TIMEOUT_SECONDS = 300.0


@dataclass
class DeskBoot:
    """``serve.seat.Boot`` without an engine: ``call`` runs a job and gives its answer; nothing is counted."""

    record: BootRecord
    libraries: dict[str, Path]
    started: float
    base_url: str = ""
    variant: str = ""
    words: str = ""

    def call(self, method: str, arguments: dict[str, Any] | None = None) -> list[Any]:
        """``parity`` {"variant", ...}: the cases of that variant's library. Raises SeatError where it cannot run."""
        wanted = dict(arguments or {})
        variant = str(wanted.pop("variant", self.variant))
        if method not in JOBS or variant not in self.libraries:
            raise SeatError(
                "the desk does not know this job",
                where=self.record.id,
                expected=f"one of {', '.join(JOBS)} with a variant of {', '.join(sorted(self.libraries))}",
                found=f"{method} of {variant}",
            )
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

    def counters(self) -> tuple[RankCounters, ...]:
        """No engine, no counters."""
        return ()

    def switch(self, variant: str, ranks: tuple[int, ...] | None = None) -> None:
        """The variant that the next job runs where it names none."""
        self.variant = variant

    def logs(self) -> str:
        """One line for each job."""
        return self.words

    def stop(self) -> BootRecord:
        """Every job has ended with its call."""
        seconds = round(time.monotonic() - self.started)
        self.record = self.record.model_copy(update={"ended": "stopped", "seconds": seconds})
        return self.record


class DeskSeat:
    """Gives desk boots."""

    def boot(self, request: BootRequest) -> DeskBoot:
        """Nothing starts until a job is called. Raises SeatError where a library is missing."""
        missing = [f"{name}: {path}" for name, path in request.libraries.items() if not path.is_file()]
        if missing:
            raise SeatError("a library of the desk is missing", expected="built libraries", found=", ".join(missing))
        identity = RankIdentity(
            rank=0,
            pid=os.getpid(),
            libraries={name: sha256_file(path) for name, path in request.libraries.items()},
            trees={},
            weights=NO_WEIGHTS,
        )
        record = new_record(request.planned.id, label="cpu", pid=os.getpid(), ranks=(identity,), sandbox=available())
        return DeskBoot(record, dict(request.libraries), time.monotonic(), variant=request.variant)
