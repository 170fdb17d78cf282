"""A review made part of the next version of its order: rulings with their claims, the review as required reading."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import yaml

from runner.craft.conflicts import Question
from runner.errors import InputError
from runner.model.order import parse_order
from runner.model.order.review import ReviewFile


def next_version(text: str, file: ReviewFile, table: Sequence[Question], where: str) -> str:
    """The order's text with its version counted up, all else as it was. ``where`` is the review's path.

    Raises InputError where a question is undecided, or the review is of another order or version.
    """
    order = parse_order(text)
    if (order.id, order.version) != (file.order, file.version):
        raise InputError(
            "the review is of another order or version",
            where=where,
            expected=f"{order.id} version {order.version}",
            found=f"{file.order} version {file.version}",
            next_step="the reviews stay those of their version: `runner review-order` asks about the present one",
        )
    if undecided := [question.name for question in table if question.answer is None]:
        raise InputError(
            "a version cannot rest on undecided questions",
            where=where,
            expected="a check that leaves one answer, or a ruling with evidence, for each",
            found=", ".join(undecided),
        )
    rulings = [
        {
            "question": question.name,
            "claims": [
                {"who": who, "value": f"{answer.value} {answer.unit}"}
                for answer in question.answers
                for who in answer.who
            ],
            "ruling": f"{question.answer} {question.unit}",
            "evidence": question.why,
        }
        for question in table
    ]
    reading = {"file": where, "why": f"the reviews of version {order.version}", "part_of_order": True}
    text = _counted(text, order.version + 1)
    text = added(added(text, "rulings", rulings), "reading", [reading])
    parse_order(text)
    return text


def _key(name: str) -> str:
    """Pattern of a key at the margin, however it is written: ``id:``, ``id :``, ``"id":``."""
    return rf"""(?m)^(?P<quote>["']?){name}(?P=quote)[ \t]*:(?=[ \t\n])"""


def _counted(text: str, version: int) -> str:
    """Raises InputError where the version cannot be written into the text."""
    line = f"version: {version}"
    text, found = re.subn(_key("version") + "[^#\n]*?(?=[ \t]*(#|$))", line, text, count=1)
    if not found:
        text = re.sub(f"{_key('id')}.*$", lambda match: f"{match[0]}\n{line}", text, count=1)
    if parse_order(text).version != version:
        raise InputError(
            "the version cannot be counted up", where="version", expected="a line `version: N` at the margin"
        )
    return text


def added(text: str, key: str, items: Sequence[dict[str, Any]]) -> str:
    """``text`` with more entries in the block list ``key``, which is made where it is missing."""
    dumped = yaml.safe_dump(list(items), allow_unicode=True, sort_keys=False, width=1000)
    block = "".join(f"  {line}\n" for line in dumped.splitlines())
    if not re.search(_key(key), text):
        return f"{text.rstrip()}\n\n{key}:\n{block}"
    found = re.search(_key(key) + r"[ ]*\n(?P<indent> *)- ", text)
    if found is None:
        raise InputError(
            "a list that cannot be added to", where=key, expected="one entry a line", found="another style"
        )
    indent = found["indent"]
    block = "".join(f"{indent}{line}\n" for line in dumped.splitlines())
    at = text.index("\n", found.start()) + 1
    return text[:at] + block + text[at:]


__all__ = ["added", "next_version"]
