"""What people decided and did about a report, as tables: kill lines, attempts at the order, rulings in it, waivers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runner.attest.statement import Signed
from runner.errors import InputError
from runner.model.adoption import Waiver
from runner.model.report import ReportPredicate
from runner.order_lines import open_rows, struck_rows
from runner.summary import attempt_outcome, unwatched
from runner.yaml_strict import parse

Waivers = Sequence[tuple[Signed, Waiver]]


@dataclass(frozen=True)
class Told:
    """One table."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def told(report: ReportPredicate, waivers: Waivers) -> list[Told]:
    """The tables that have a row."""
    attempts, unproven = (report.craft.attempts, report.craft.unproven) if report.craft else ((), "")
    tables = (
        Told("Kill lines that struck", ("line", "action", "what follows"), struck_rows(report)),
        Told("Lines that no gate judged: open for a person", ("gate", "line"), open_rows(report)),
        Told(
            f"Attempts as told, not proven: {unproven}" if unproven else "Attempts",
            ("attempt", "by", "sandbox", "changed", "what came of it"),
            tuple(
                (
                    str(one.number),
                    f"said to be {one.craftsperson}" if unproven else one.craftsperson,
                    one.session.sandbox,
                    ", ".join(one.changed),
                    attempt_outcome(one),
                )
                for one in attempts
            ),
        ),
        Told("What nobody watched of them", ("attempt", "what"), tuple(unwatched(attempts))),
        Told("Rulings in the order", ("question", "ruling", "evidence"), _rulings(report.order.text)),
        Told(
            "Waivers",
            ("gate", "by", "until", "reason"),
            tuple(
                (each.gate, ", ".join(signer.principal for signer in entry.signers), each.expires_at, each.reason)
                for entry, each in waivers
            ),
        ),
    )
    return [table for table in tables if table.rows]


def _rulings(text: str) -> tuple[tuple[str, ...], ...]:
    """Read without the schema, so that the order of an old report shows them too; none where there is no such list."""
    try:
        order: Any = parse(text.encode()).value
    except InputError:
        return ()
    rulings = order.get("rulings") if isinstance(order, dict) else None
    return tuple(
        (str(one.get("question", "")), str(one.get("ruling", "")), str(one.get("evidence", "")))
        for one in (rulings if isinstance(rulings, list) else [])
        if isinstance(one, dict)
    )


__all__ = ["Told", "Waivers", "told"]
