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
    base: dict[str, object] = {"label": "measured", "statement": "s", "scope": "here"}
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
    assert (second.agrees, second.found) == (False, "nothing: the fact is derived from itself (self from self)")


def of(*facts: Mapping[str, object]) -> list[tuple[bool | None, str]]:
    base: dict[str, object] = {"label": "measured", "statement": "s", "scope": "here"}
    return [(one.agrees, one.found) for one in findings(tuple(Fact.model_validate({**base, **fact}) for fact in facts))]


def reckoned(name: str, value: str, expression: str, unit: str | None = None) -> dict[str, object]:
    return {"id": name, "value": value, "unit": unit, "probe": {"kind": "calculation", "expression": expression}}


def test_a_circle_proves_nothing_of_any_length_or_spelling() -> None:
    assert {agrees for agrees, _ in of(reckoned("a", "5", "b"), reckoned("b", "5", "a"))} == {False}
    three = of(reckoned("a", "5", "b + 0"), reckoned("b", "5", "c + 0"), reckoned("c", "5", "a + 0"))
    assert three[0] == (False, "nothing: the fact is derived from itself (a from b from c from a)")
    assert of(reckoned("a.b", "777", "a_b")) == [(False, "nothing: the fact is derived from itself (a.b from a.b)")]
    assert {agrees for agrees, _ in of(reckoned("a", "5", "2 + 3"), reckoned("b", "10", "2 * a"))} == {True}
    twice = of(reckoned("a", "5", "2 + 3"), reckoned("b", "10", "a + a"), reckoned("c", "15", "a + b"))
    assert {agrees for agrees, _ in twice} == {True}


def test_a_name_that_may_be_either_of_two_facts_is_neither() -> None:
    found = of({"id": "a-b", "value": "5"}, {"id": "a.b", "value": "7"}, reckoned("c", "10", "2 * a_b"))
    assert found == [(False, "nothing: a_b may be any of a-b, a.b")]


@pytest.mark.parametrize(
    ("probe", "value", "unit", "agrees"),
    [
        ({"kind": "linear-bytes", "in_features": 16, "out_features": 16, "bits": 1}, "96", "bytes", True),
        ({"kind": "linear-bytes", "in_features": 16, "out_features": 16, "bits": 1}, "96", None, True),
        ({"kind": "linear-bytes", "in_features": 16, "out_features": 16, "bits": 1}, "0.096", "kB a launch", True),
        ({"kind": "linear-bytes", "in_features": 16, "out_features": 16, "bits": 1}, "96", "GB", False),
        ({"kind": "linear-bytes", "in_features": 16, "out_features": 16, "bits": 1}, "96", "ms", False),
        ({"kind": "unique-experts", "experts": 256, "top_k": 6, "rows": 4}, "22.95", "experts", True),
        ({"kind": "unique-experts", "experts": 256, "top_k": 6, "rows": 4}, "22.95", "GB", False),
        (census("bits", "model.layers.1.*.experts.*"), "3", "bits", True),
        (census("bits", "model.layers.1.*.experts.*"), "3", "µs", False),
    ],
)
def test_a_probe_speaks_of_its_own_unit(probe: dict[str, object], value: str, unit: str, agrees: bool) -> None:
    assert of({"id": "f", "value": value, "unit": unit, "probe": probe})[0][0] is agrees


def test_one_fact_taken_over_is_in_the_same_unit() -> None:
    assert of({"id": "a", "value": "5", "unit": "ms"}, reckoned("b", "5", "a", "ms"))[0][0] is True
    assert of({"id": "a", "value": "5", "unit": "ms"}, reckoned("b", "5", "a", "s"))[0][0] is False


@pytest.mark.parametrize(
    ("text", "value", "unit", "agrees"),
    [
        ("max_num_seqs: 32", "32", "rows", True),
        ("max_num_seqs: 32", "4096", "rows", False),
        ("max_num_seqs: 3", "3", "rows", False),
        ("32", "32", "rows", False),
        ("max_num_seqs", "32", "rows", False),
        ("max_num_seqs: 32", "32", "GB", False),
    ],
)
def test_quoted_words_say_the_value(text: str, value: str, unit: str, agrees: bool) -> None:
    probe = {"kind": "quote", "file": "serve/seats/cpu-mini.yaml", "text": text}
    assert of({"id": "f", "value": value, "unit": unit, "probe": probe})[0][0] is agrees


def test_an_order_is_cited_and_not_quoted() -> None:
    found = of(
        {"id": "f", "value": "6", "probe": {"kind": "quote", "file": "orders/mini-lna2.yaml", "text": "pairs: 6"}}
    )
    assert "is an order" in found[0][1]
