"""The conflict table of a review: which answers stand against each other, what arithmetic leaves of them, what is open.

How many reviewers say the same is shown and counts for nothing: three of five once shared one error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Literal

from runner.arithmetic import evaluate
from runner.errors import InputError
from runner.model.base import Record, Slug
from runner.model.order.review import Check, DividesCheck, EqualsCheck, ReviewFile, ReviewRuling

State = Literal["ruled", "arithmetic", "unopposed", "open"]


class Answer(Record):
    """One value that is claimed, by whom, and what each check says to it."""

    value: str
    unit: str
    who: tuple[str, ...]
    holds: bool
    """Whether every check of the question leaves it."""
    reasons: tuple[str, ...]


class Question(Record):
    """All answers to one question."""

    name: Slug
    answers: tuple[Answer, ...]
    state: State
    """``ruled`` by a person; ``arithmetic``: one answer is left, and no other number would do; ``unopposed``: one, and
    unchecked; else ``open``."""
    answer: str | None
    unit: str | None
    """Of the answer."""
    why: str


def conflicts(file: ReviewFile) -> tuple[Question, ...]:
    """The table, questions in alphabetical order. Raises InputError for a ruling that arithmetic refutes."""
    names = sorted({claim.question for review in file.reviews for claim in review.claims})
    return tuple(_question(file, name) for name in names)


def _question(file: ReviewFile, name: str) -> Question:
    checks = [check for check in file.checks if check.question == name]
    claims = [(claim, review.reviewer) for review in file.reviews for claim in review.claims if claim.question == name]
    said: dict[tuple[Fraction, str], list[str]] = {}
    for claim, who in claims:
        said.setdefault((Fraction(claim.value), claim.unit), []).append(f"{who} ({claim.confidence})")
    answers = tuple(_answer(value, unit, tuple(sorted(who)), checks) for (value, unit), who in sorted(said.items()))
    ruling = next((one for one in file.rulings if one.question == name), None)
    if ruling is not None:
        refuted = [text for check in checks for held, text in [_held(check, Fraction(ruling.value))] if not held]
        if refuted:
            raise InputError(
                "a ruling that arithmetic refutes", where=name, expected="; ".join(refuted), found=ruling.value
            )
        said_by = f"ruled by {ruling.by}: {ruling.evidence}"
        return _as(name, answers, "ruled", ruling.value, said_by, unit=_unit(ruling, answers))
    if len({answer.unit for answer in answers}) > 1:
        return _as(name, answers, "open", None, "the answers are in different units")
    left = [answer for answer in answers if answer.holds]
    if checks and len(left) == 1 and (others := _as_good(checks, Fraction(left[0].value))):
        return _as(name, answers, "open", None, others)
    if checks and len(left) == 1:
        why = f"only {left[0].value} is left: {left[0].reasons[0]}"
        return _as(name, answers, "arithmetic", left[0].value, why, unit=left[0].unit)
    if checks:
        return _as(name, answers, "open", None, f"arithmetic leaves {len(left)} of {len(answers)} answers")
    if len(answers) == 1:
        return _as(name, answers, "unopposed", None, "nobody disagrees, and nothing was checked")
    return _as(name, answers, "open", None, "the answers differ and nothing decides between them")


def _as_good(checks: list[Check], value: Fraction) -> str:
    """Why what is left of the claims is not singled out: it only divides, as other numbers do; empty where it is."""
    if any(isinstance(check, EqualsCheck) for check in checks):
        return ""
    greatest = math.gcd(
        *(count for check in checks if isinstance(check, DividesCheck) for count in check.counts.values())
    )
    if value == greatest:
        return ""
    return (
        f"nothing is singled out: {shown(value)} divides every count, as every divisor of {greatest} does, "
        f"and the greatest, {greatest}, is nobody's claim"
    )


def _as(
    name: str, answers: tuple[Answer, ...], state: State, answer: str | None, why: str, *, unit: str | None = None
) -> Question:
    return Question(name=name, answers=answers, state=state, answer=answer, unit=unit, why=why)


def _unit(ruling: ReviewRuling, answers: tuple[Answer, ...]) -> str:
    """The ruling's own unit, that of the answers it agrees with, or the one unit of all of them.

    Raises InputError where that leaves more than one, and for a unit of no answer.
    """
    if ruling.unit and ruling.unit not in (claimed := sorted({one.unit for one in answers})):
        raise InputError(
            "a ruling in a unit that nobody claims",
            where=ruling.question,
            expected=f"unit: one of {', '.join(claimed)}",
            found=f"{ruling.value} {ruling.unit}",
        )
    if ruling.unit:
        return ruling.unit
    value = shown(Fraction(ruling.value))
    units = sorted({one.unit for one in answers if one.value == value} or {one.unit for one in answers})
    if len(units) > 1:
        raise InputError(
            "a ruling without its unit",
            where=ruling.question,
            expected=f"unit: one of {', '.join(units)}",
            found=ruling.value,
        )
    return units[0]


def _answer(value: Fraction, unit: str, who: tuple[str, ...], checks: list[Check]) -> Answer:
    results = [_held(check, value) for check in checks]
    return Answer(
        value=shown(value),
        unit=unit,
        who=who,
        holds=all(held for held, _ in results),
        reasons=tuple(text for _, text in results),
    )


def _held(check: Check, value: Fraction) -> tuple[bool, str]:
    """Whether the check leaves a value, and the reckoning."""
    return _divides(check, value) if isinstance(check, DividesCheck) else _equals(check, value)


def _divides(check: DividesCheck, value: Fraction) -> tuple[bool, str]:
    greatest = math.gcd(*check.counts.values())
    if value.denominator != 1 or value <= 0:
        return False, f"{shown(value)} is no whole number, and so many cannot have taken place"
    rests = {name: count % value for name, count in check.counts.items()}
    if any(rests.values()):
        wrong = (f"{check.counts[name]:,} ({name}) / {value} leaves {rest}" for name, rest in rests.items() if rest)
        return False, ", ".join(wrong)
    right = (f"{count:,} = {value} × {count // value} ({name})" for name, count in check.counts.items())
    return True, f"{', '.join(right)}; the greatest common divisor is {greatest}"


def _equals(check: EqualsCheck, value: Fraction) -> tuple[bool, str]:
    names = {name.replace("-", "_"): Decimal(figure) for name, figure in check.names.items()}
    try:
        wanted = evaluate(check.expression, names)
    except ValueError as error:
        raise InputError("a check that cannot be reckoned", where=check.question, found=str(error)) from error
    held = abs(value - wanted) <= Fraction(check.tolerance) * abs(wanted)
    return held, f"{check.expression} = {shown(wanted)}" + ("" if held else f", not {shown(value)}")


def shown(value: Fraction) -> str:
    """A fraction as decimal text of at most twelve digits."""
    return str(value.numerator) if value.denominator == 1 else format(float(value), ".12g")


def lines(table: tuple[Question, ...]) -> Iterator[str]:
    """The table as text."""
    for question in table:
        decided = f"{question.answer} {question.unit}" if question.answer else "undecided"
        yield f"{question.name}: {decided} ({question.state})"
        yield f"  {question.why}"
        for answer in question.answers:
            mark = "holds" if answer.holds and answer.reasons else "fails" if answer.reasons else "unchecked"
            yield f"  {answer.value} {answer.unit}, said by {', '.join(answer.who)}: {mark}"
            yield from (f"    {reason}" for reason in answer.reasons)


__all__ = ["Answer", "Question", "conflicts", "lines", "shown"]
