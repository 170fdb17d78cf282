"""What a gate is told to measure: names that its windows are made of, values that say something."""

from __future__ import annotations

import pytest

from runner.check import check
from runner.model.order import OrderFile, parse_order
from runner.paths import source_root
from runner.plan import compile_plan
from runner.steps.seats import load_manifest
from tests.runner.checks.orders_for_checks import SOUND, fields

GATES = {
    "kld": "{name: kld, parameters: {bound: 0.01}, windows: {%s}}",
    "kld@2": "{name: kld, version: 2, parameters: {bound: 0.01}, windows: {%s}}",
    "needle": "{name: needle, windows: {%s}}",
    "parity": "{name: parity, windows: {%s}}",
    "finish": "{name: finish, windows: {%s}}",
    "memory": "{name: memory, version: 2, parameters: {predicted: [kv_cache_tokens]}, windows: {%s}}",
    "four-streams": "{name: four-streams, windows: {%s}}",
    "launches": "{name: launches, windows: {layer_kernels: {incumbent: [moe], candidate: [moe]}, %s}}",
}


def with_windows(gate: str, windows: str) -> str:
    return SOUND.replace("  - name: restore\n", f"  - {GATES[gate] % windows}\n  - name: restore\n")


@pytest.mark.parametrize(
    ("gate", "windows", "name", "words"),
    [
        ("kld", "docs: 24", "docs", "is made of docs; it is told of documents, drawn, languages"),
        ("kld", "documents: twenty", "documents", "a whole number, at least 1, not 'twenty'"),
        ("kld", "documents: 24.5", "documents", "a whole number"),
        ("kld", "documents: true", "documents", "a whole number"),
        ("kld", "rows: 0", "rows", "at least 1, not 0"),
        ("kld", "rows: -1", "rows", "lies between 0"),
        ("kld", "window_seconds: 0", "window_seconds", "at least 1, not 0"),
        ("kld", "languages: [en, fr]", "languages", "a list of en, ja, code"),
        ("kld", "languages: []", "languages", "a list of en, ja, code"),
        ("kld", "languages: en", "languages", "a list of en, ja, code"),
        ("needle", "depths: [10, 110]", "depths", "between 0 and 100"),
        ("needle", "depths: [10, 10]", "depths", "different per cents"),
        ("needle", "depths: 10", "depths", "different per cents"),
        ("finish", "texts: 0", "texts", "at least 1"),
        ("parity", "library: /usr/lib/other.so", "library", "is made of library"),
        ("parity", "variant: incumbent", "variant", "is made of variant"),
        ("parity", "rows: [0]", "rows", "a list of whole numbers"),
        ("memory", "processor: 132", "processor", "is made of processor"),
        ("four-streams", "languages: [fr]", "languages", "a list of en, ja, code"),
        ("launches", "groups: moe", "groups", "a mapping"),
    ],
)
def test_what_no_window_is_made_of_is_named(gate: str, windows: str, name: str, words: str) -> None:
    found = fields(check(parse_order(with_windows(gate, windows)), load_manifest("fake")))
    (field,) = (field for field in found if field.endswith(f".windows.{name}"))
    assert words in found[field]


@pytest.mark.parametrize(
    ("gate", "windows"),
    [
        ("kld", "documents: 24, tokens: 96, rows: 8, top: 64, drawn: 1, window_seconds: 5, languages: [en, code]"),
        ("needle", "prompt_tokens: 600, depths: [0, 50, 100]"),
        ("parity", "rows: [1, 8], threads: 1, window_seconds: 15"),
        ("finish", "texts: 3, tokens: 96"),
        ("memory", "processors: 132, groups: 16"),
        ("four-streams", "rounds: 4, block_seconds: 2, languages: [ja]"),
        ("launches", "tokens: 32, streams: 1, groups: {moe: [a]}"),
    ],
)
def test_what_a_window_is_made_of_is_good(gate: str, windows: str) -> None:
    assert check(parse_order(with_windows(gate, windows)), load_manifest("fake")) == ()


def test_no_order_says_which_library_parity_judges() -> None:
    """Not even one that nobody checked."""
    text = with_windows("parity", "library: /usr/lib/other.so, variant: incumbent, rows: [1]")
    text = text.split("  - name: kernel-time")[0] + text[text.index("  - {name: ppl-decode") :].split("kill_lines")[0]
    file = OrderFile(order=parse_order(text), text=text, digest="0" * 64)
    plan = compile_plan(file, load_manifest("fake"), {}, "0" * 64)
    (window,) = (one for one in plan.windows if one.id == "parity")
    assert window.arguments == {"variant": "lna2", "rows": [1]}


@pytest.mark.parametrize(
    ("gate", "windows", "field", "words"),
    [
        ("kld", "documents: 96", "version", "would not see one of 3 languages ruined: ask for version 2"),
        ("kld", "documents: 48", "version", "would not see one of 3 languages"),
        ("kld", "documents: 24", "", ""),
        ("kld@2", "documents: 96", "", ""),
        ("kld@2", "documents: 20", "", ""),
        ("kld@2", "documents: 20, languages: [en]", "", ""),
    ],
)
def test_every_language_can_decide(gate: str, windows: str, field: str, words: str) -> None:
    found = fields(check(parse_order(with_windows(gate, windows)), load_manifest("fake")))
    about = {name.rpartition(".")[2]: message for name, message in found.items() if name.startswith("gates.")}
    assert (field in about) == bool(field), about
    assert words in about.get(field, "")


def test_a_coverage_that_six_documents_do_not_have_needs_more_of_each_language() -> None:
    text = with_windows("kld@2", "documents: 20").replace("bound: 0.01}, win", "bound: 0.01, coverage: 0.99}, win")
    found = fields(check(parse_order(text), load_manifest("fake")))
    assert any("20 documents in 3 languages, 24 are needed" in message for message in found.values()), found


@pytest.mark.parametrize(
    ("old", "new", "field", "words"),
    [
        ("", "", "", ""),
        ("{rows: [1, 2, 4, 8, 16], ", "{rows: [1, 2, 4, 8], ", "targets.4", "a target at rows 16, and windows measure"),
        ("routes: [uniform, recorded], ", "", "targets.5", "a target at routes recorded, and windows measure"),
        ("[uniform, recorded]", "[recorded]", "targets.0", "a target at routes uniform"),
        ("[uniform, recorded]", "[uniform, mine]", "windows.routes", "a list of uniform, recorded, each once"),
        ("[uniform, recorded]", "[uniform, recorded, recorded]", "windows.routes", "each once"),
        ("[uniform, recorded]", "[]", "windows.routes", "a list of uniform"),
        ("[uniform, recorded]", "recorded", "windows.routes", "a list of uniform"),
    ],
)
def test_a_kernel_is_timed_where_its_targets_are(old: str, new: str, field: str, words: str) -> None:
    text = (source_root() / "orders/kernel-lna2.yaml").read_text(encoding="utf-8")
    assert old in text
    found = fields(check(parse_order(text.replace(old, new) if old else text), load_manifest("desk-h200")))
    about = {name: message for name, message in found.items() if name.endswith(field)}
    assert words in str(about)
    assert bool(found) == bool(field), found
