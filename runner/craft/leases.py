"""Which order holds which files of the checkout: one file belongs to one order until that is finished or let go."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from runner.clock import now
from runner.craft.bench import Bench, Lease, benches, crafts
from runner.craft.globs import meet, permitted
from runner.digest import canonical_json
from runner.errors import StateError
from runner.files import write_whole
from runner.model.order import OrderFile
from runner.paths import command

LOCK = "lock"


@contextmanager
def alone() -> Iterator[None]:
    """Nobody else takes a lease meanwhile; waits for whoever does."""
    crafts().mkdir(parents=True, exist_ok=True)
    descriptor = os.open(crafts() / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def take_lease(bench: Bench, name: str, allowed: Sequence[str], files: Sequence[str]) -> None:
    """Hold ``allowed`` for this order, :func:`alone`. ``files`` are the checkout's, to see where two globs meet.

    A text of this order that stands nowhere any more lets go: nobody can go on with it. Raises StateError where another
    order, or another text with this order's id, holds one of the same files.
    """
    for other in benches():
        lease = other.lease()
        if lease is None or other.folder == bench.folder:
            continue
        if other.order == bench.order and not other.stands() and not other.at_work():
            other.release()
            continue
        if both := _both(allowed, lease.files, files):
            path = other.known().path or f"orders/{lease.order}.yaml"
            raise StateError(
                "another order holds these files",
                where=", ".join(both),
                expected="files that no order is working on",
                found=f"{lease.order} ({path}), given to {lease.craftsperson} at {lease.since}",
                next_step=f"finish it, or let them go: {command('dispatch', path, '--release')}",
            )
    lease = Lease(order=bench.order, craftsperson=name, files=tuple(allowed), since=now())
    write_whole(bench.folder / "lease.json", canonical_json(lease.model_dump(mode="json")))


def let_go(file: OrderFile) -> bool:
    """Release what this text of an order holds, and every text with its id that stands nowhere any more.

    Gives whether any file was held. Raises StateError where somebody works on one of them.
    """
    held = False
    for bench in benches():
        if bench.order == file.order.id and (bench.digest == file.digest or not bench.stands()):
            with bench.hold():
                held |= bench.release()
    return held


def _both(allowed: Sequence[str], others: Sequence[str], files: Sequence[str]) -> list[str]:
    """What two orders may both change: the files there are, or else globs that could take the same new file."""
    there = sorted(path for path in files if permitted(path, allowed) and permitted(path, others))
    new = {" and ".join(sorted({one, other})) for one in allowed for other in others if meet(one, other)}
    return there or sorted(new)


__all__ = ["alone", "let_go", "take_lease"]
