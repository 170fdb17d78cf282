"""Where one version of an order is worked on: ``<state>/craft/<order>-<digest>``, its attempts, its lease, its lock.

store.git/             every frozen candidate
candidate.json         the newest one
passed-over.json       runs whose seat was broken: they judge nobody
bench.json             whose bench it is
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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from runner.digest import canonical_json, sha256_file
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
KNOWN = "bench.json"
PASSED_OVER = "passed-over.json"


class Lease(Record):
    """One order's hold on files of the checkout."""

    order: Slug
    craftsperson: Slug
    files: tuple[str, ...]
    """Globs, as the order allows them."""
    since: Instant


class Known(Record):
    """``bench.json``."""

    order: Slug
    digest: Digest
    version: int | None = None
    path: str = ""
    """Where the order stood when it was last given to somebody. Benches of earlier releases say neither."""


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

    def introduce(self, path: Path, version: int) -> None:
        """Write ``bench.json``: from now on it is one of :func:`benches`."""
        known = Known(order=self.order, digest=self.digest, version=version, path=str(path.resolve()))
        write_whole(self.folder / KNOWN, canonical_json(known.model_dump(mode="json")))

    def known(self) -> Known:
        """Whose bench it is."""
        return Known.model_validate_json((self.folder / KNOWN).read_bytes())

    def stands(self) -> bool:
        """Whether its very text stands where it stood: somebody can still go on with it."""
        path = self.known().path
        return bool(path) and Path(path).is_file() and sha256_file(Path(path)) == self.digest

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
            raise StateError(
                "somebody works on this order now",
                where=str(self.folder),
                next_step="wait until that is over, or interrupt it: what was done so far is kept",
            ) from None
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
    """Every bench of this user that somebody was given an order at."""
    found = []
    for path in sorted(crafts().glob(f"*/{KNOWN}")):
        known = Known.model_validate_json(path.read_bytes())
        found.append(Bench(path.parent, known.order, known.digest))
    return found


__all__ = ["CANDIDATE", "CRAFT", "REVIEWS", "Bench", "Known", "Lease", "benches", "crafts"]
