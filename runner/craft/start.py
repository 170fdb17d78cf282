"""Whether somebody of the crew may be started on an order at all; asked alike of craftspeople and of reviewers."""

from __future__ import annotations

from pathlib import Path

from runner.craft import sandbox
from runner.craft.command_line import require_command
from runner.craft.home import hidden_from, refuse_hidden, require_home
from runner.errors import InputError, StateError
from runner.model.craftsperson import CraftspersonEntry
from runner.model.order import WorkOrder


def require_startable(
    name: str, entry: CraftspersonEntry, order: WorkOrder, workspace: Path, checkout: Path, *, deviation: str
) -> None:
    """``deviation`` says why an agent may use a network that the order closes; empty: it may not.

    Raises InputError where the entry would show what has to stay hidden or needs such a network, and StateError where
    the sandbox it asks for is missing or its command cannot be started.
    """
    hidden = hidden_from(checkout, workspace)
    for path in entry.readable:
        refuse_hidden(name, "readable", Path(path).expanduser(), hidden)
    require_home(name, entry.home, hidden)
    if entry.needs_sandbox and not sandbox.version():
        raise StateError(
            "this craftsperson asks nobody before it acts and is not started without a sandbox",
            where=name,
            expected="bubblewrap",
            found="none",
            next_step="install it (Debian: apt-get install bubblewrap)",
        )
    if entry.kind == "agent":
        require_command(name, entry, workspace, checkout, sandboxed=bool(sandbox.version()))
    if opens_network(entry, order) and not deviation:
        raise InputError(
            "the order closes the network and this craftsperson needs it",
            where=f"{order.id}: constraints.network",
            expected="a craftsperson without network",
            found=name,
            next_step='say why it may: --network-because "REASON"; it is written down with the work',
        )


def opens_network(entry: CraftspersonEntry, order: WorkOrder) -> bool:
    """The order closes the network and the entry needs it."""
    return order.constraints.network == "none" and entry.limits.network == "open"


def deviations(entry: CraftspersonEntry, order: WorkOrder, reason: str) -> tuple[str, ...]:
    """What differs from what the order asks for, in words, for whoever reads the outcome."""
    told = [f"network open: {reason}"] if opens_network(entry, order) else []
    if order.constraints.network == "index-only" and entry.limits.network == "open":
        why = f" ({reason})" if reason else ""
        told.append(f"network open{why}: the order allows package indexes alone, and nothing holds a session to them")
    if entry.kind == "agent" and not sandbox.version():
        told.append("no sandbox: bubblewrap is missing, so the network is open and nothing is hidden")
    return tuple(told)


__all__ = ["deviations", "opens_network", "require_startable"]
