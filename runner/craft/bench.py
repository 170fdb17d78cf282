"""Where one version of an order is worked on: ``<state>/craft/<order>-<digest>``, its attempts, its lease, its lock.

store.git/             every frozen candidate
candidate.json         the newest one
passed-over.json       runs whose seat was broken: they judge nobody
lease.json             files that no other order may touch until this one is finished or let go
attempts/<n>/          clone, brief.md, transcript.log, journal.jsonl, attempt.json
reviews/<n>/           the same for each reviewer
sealed/seed            a trap: nothing was sealed with it, so whoever repeats it has read where nobody may
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from runner.clock import now
from runner.craft.globs import meet, permitted
from runner.digest import canonical_json
from runner.errors import StateError
from runner.files import write_whole
from runner.model.attempt import Attempt, CandidateFile, History
from runner.model.base import Digest, Instant, Record, Slug
from runner.model.order import OrderFile
from runner.paths import state_home

CRAFT = "craft"
REVIEWS = "reviews"
SEALED = "sealed"
CANDIDATE = "candidate.json"
PASSED_OVER = "passed-over.json"


class Lease(Record):
    """One order's hold on files of the checkout."""

    order: Slug
    craftsperson: Slug
    files: tuple[str, ...]
    """Globs, as the order allows them."""
    since: Instant


@dataclass(frozen=True)
class Bench:
    """The folder of one version of one order."""

    folder: Path
    order: Slug
    digest: Digest

    @classmethod
    def of(cls, file: OrderFile) -> Bench:
        """The bench of this very text of the order."""
        return cls.named(file.order.id, file.digest)

    @classmethod
    def named(cls, order: Slug, digest: Digest) -> Bench:
        """The bench of the order with this id and digest."""
        return cls(crafts() / f"{order}-{digest[:12]}", order, digest)

    def attempts(self) -> tuple[Attempt, ...]:
        """Every finished attempt, oldest first."""
        paths = sorted((self.folder / "attempts").glob("*/attempt.json"), key=lambda path: int(path.parent.name))
        return tuple(Attempt.model_validate_json(path.read_bytes()) for path in paths)

    def attempt_folder(self, number: int) -> Path:
        """Where attempt ``number`` works and is kept."""
        return self.folder / "attempts" / str(number)

    def keep(self, attempt: Attempt) -> None:
        """Write ``attempt.json``."""
        path = self.attempt_folder(attempt.number) / "attempt.json"
        write_whole(path, canonical_json(attempt.model_dump(mode="json")))

    def history(self) -> History:
        """All attempts."""
        return History(order=self.order, order_digest=self.digest, attempts=self.attempts())

    def candidate(self) -> CandidateFile | None:
        """The newest frozen candidate."""
        path = self.folder / CANDIDATE
        return CandidateFile.model_validate_json(path.read_bytes()) if path.is_file() else None

    def pass_over(self, run: Slug) -> None:
        """This run judges nobody: its seat was broken."""
        write_whole(self.folder / PASSED_OVER, canonical_json(sorted({*self.passed_over(), run})))

    def passed_over(self) -> frozenset[str]:
        """Runs that judge nobody."""
        path = self.folder / PASSED_OVER
        return frozenset(json.loads(path.read_bytes())) if path.is_file() else frozenset()

    def lease(self) -> Lease | None:
        """The files this order holds."""
        path = self.folder / "lease.json"
        return Lease.model_validate_json(path.read_bytes()) if path.is_file() else None

    def release(self) -> bool:
        """Let the files go; whether any were held."""
        path = self.folder / "lease.json"
        held = path.is_file()
        path.unlink(missing_ok=True)
        return held

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Only one process works on an order. Raises StateError where another one does."""
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StateError("somebody works on this order now", where=str(self.folder)) from None
        else:
            yield
        finally:
            os.close(descriptor)

    def at_work(self) -> bool:
        """Whether a process works on this order now."""
        try:
            with self.hold():
                return False
        except StateError:
            return True

    def trap(self) -> str:
        """A seed that nobody seals with, kept where a snooper would look."""
        path = self.folder / SEALED / "seed"
        if not path.is_file():
            write_whole(path, secrets.token_hex(32).encode(), mode=0o600)
        return path.read_text()


def crafts() -> Path:
    """The folder of all benches."""
    return state_home() / CRAFT


def benches() -> list[Bench]:
    """Every bench of this user that has a lease or an attempt."""
    found = []
    for path in sorted(crafts().glob("*/bench.json")):
        about = json.loads(path.read_bytes())
        found.append(Bench(path.parent, about["order"], about["digest"]))
    return found


def take_lease(bench: Bench, name: str, allowed: Sequence[str], files: Sequence[str]) -> None:
    """Hold ``allowed`` for this order. ``files`` are the checkout's, to see where two globs meet.

    An earlier text of the order lets go. Raises StateError where another order holds one of the same files.
    """
    write_whole(bench.folder / "bench.json", canonical_json({"order": bench.order, "digest": bench.digest}))
    for other in benches():
        lease = other.lease()
        if lease is None or other.folder == bench.folder:
            continue
        if other.order == bench.order and not other.at_work():
            other.release()  # an earlier text of this order, which nobody can go on with
            continue
        if both := _both(allowed, lease.files, files):
            raise StateError(
                "another order holds these files",
                where=", ".join(both),
                expected="files that no order is working on",
                found=f"{lease.order}, given to {lease.craftsperson} at {lease.since}",
                next_step=f"finish it, or let them go: runner dispatch orders/{lease.order}.yaml --release",
            )
    lease = Lease(order=bench.order, craftsperson=name, files=tuple(allowed), since=now())
    write_whole(bench.folder / "lease.json", canonical_json(lease.model_dump(mode="json")))


def _both(allowed: Sequence[str], others: Sequence[str], files: Sequence[str]) -> list[str]:
    """What two orders may both change: the files there are, or else globs that could take the same new file."""
    there = sorted(path for path in files if permitted(path, allowed) and permitted(path, others))
    new = {" and ".join(sorted({one, other})) for one in allowed for other in others if meet(one, other)}
    return there or sorted(new)


__all__ = ["CANDIDATE", "CRAFT", "REVIEWS", "Bench", "Lease", "benches", "crafts", "take_lease"]
