"""What every desk boot does alike: it holds libraries and runs jobs one after the other; nothing is served."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from runner.errors import SeatError
from runner.model.boot import BootRecord
from runner.model.evidence import RankCounters
from serve.seat import BootRequest


def require_built(request: BootRequest) -> None:
    """Raises SeatError naming every library that is not there."""
    missing = [f"{name}: {path}" for name, path in request.libraries.items() if not path.is_file()]
    if missing:
        raise SeatError("a library of the desk is missing", expected="built libraries", found=", ".join(missing))


@dataclass
class OfflineBoot:
    """The parts of ``serve.seat.Boot`` that need no engine."""

    record: BootRecord
    libraries: dict[str, Path]
    started: float
    """Monotonic clock at launch."""
    base_url: str = ""
    words: str = ""

    def require_job(self, jobs: Collection[str], method: str, variant: str) -> None:
        """Raises SeatError for a job that this desk does not run, or a variant whose library it does not hold."""
        if method not in jobs or variant not in self.libraries:
            raise SeatError(
                "the desk does not know this job",
                where=self.record.id,
                expected=f"one of {', '.join(jobs)} with a variant of {', '.join(sorted(self.libraries))}",
                found=f"{method} of {variant}",
            )

    def counters(self) -> tuple[RankCounters, ...]:
        """No engine, no counters."""
        return ()

    def logs(self) -> str:
        """One line for each job."""
        return self.words

    def stop(self) -> BootRecord:
        """Every job has ended with its call."""
        seconds = round(time.monotonic() - self.started)
        self.record = self.record.model_copy(update={"ended": "stopped", "seconds": seconds})
        return self.record
