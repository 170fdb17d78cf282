"""Probes against the small pack and files of this checkout."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from runner.model.order import Fact
from runner.paths import source_root
from runner.probes import findings

PACK = "recipe/mini/pack"


def finding(probe: Mapping[str, object], value: str | None = "1") -> tuple[bool | None, str]:
    fact = Fact.model_validate(
        {"id": "f", "statement": "s", "label": "measured", "scope": "here", "probe": probe}
        | ({"value": value} if value else {})
    )
    (found,) = findings((fact,))
    return found.agrees, found.found


def census(quantity: str, modules: str = "*") -> dict[str, object]:
    return {"kind": "pack", "pack": PACK, "modules": modules, "quantity": quantity}


def test_a_pack_is_read_from_its_headers() -> None:
    agrees, text = finding(census("modules"), "999999")
    assert agrees is False
    assert finding(census("modules"), text) == (True, text)
    assert finding(census("bytes"), finding(census("bytes"))[1])[0] is True


def test_a_fact_that_forgets_its_scope_is_contradicted() -> None:
    agrees, text = finding(census("bits", "*.experts.*"), "2")
    assert agrees is False
    assert "differ: 2, 3" in text


def test_what_is_not_here_is_neither_confirmed_nor_refuted() -> None:
    assert finding({"kind": "pack", "pack": "packs/none", "quantity": "bits"})[0] is None
    assert finding({"kind": "quote", "file": "none.md", "text": "x"}, None)[0] is None


def test_names_of_modules_that_are_not_there() -> None:
    assert finding(census("bits", "nothing.*")) == (False, "no coded module is called 'nothing.*'")


def test_words_are_found_where_they_stand() -> None:
    text = (source_root() / "README.md").read_text(encoding="utf-8").splitlines()
    line = next(number for number, one in enumerate(text, 1) if "work order" in one)
    quote = {"kind": "quote", "file": "README.md", "text": "work order"}
    assert finding(quote, None) == (True, f"README.md:{line}")
    assert finding(quote | {"line": line}, None)[0] is True
    agrees, told = finding(quote | {"line": line + 1 if "work order" not in text[line] else line + 2}, None)
    assert agrees is False
    assert f"at line {line} now" in told
    assert finding(quote | {"text": "nobody wrote this"}, None)[0] is False


@pytest.mark.parametrize("file", ["../secret", "/etc/passwd"])
def test_a_quote_stays_inside_the_checkout(file: str) -> None:
    assert finding({"kind": "quote", "file": file, "text": "root"}, None) == (False, f"{file} leaves the checkout")


def test_a_calculation_may_use_other_facts_and_not_itself() -> None:
    base = {"label": "measured", "statement": "s", "scope": "here"}
    facts = tuple(
        Fact.model_validate(base | one)
        for one in (
            {"id": "whole-bytes", "value": "6328332"},
            {"id": "sum", "value": "4860158976", "probe": {"kind": "calculation", "expression": "768 * whole_bytes"}},
            {"id": "self", "value": "1", "probe": {"kind": "calculation", "expression": "self"}},
        )
    )
    first, second = findings(facts)
    assert (first.fact, first.agrees) == ("sum", True)
    assert (second.agrees, second.found) == (False, "no fact 'self' with a value")
