"""Briefs: the golden text in two languages, the same source as the gates, and order text that stays text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from pydantic import TypeAdapter, ValidationError

from runner.brief.manner import manner_of
from runner.brief.reading import READING
from runner.brief.render import LANGUAGES, brief_of, fenced, quoted, render
from runner.check import looked_at
from runner.checks.duties import DELIVERED
from runner.errors import InputError
from runner.model.order import Order, OrderFile, WorkOrder, parse_order
from runner.model.order.measure import Measure
from runner.paths import source_root
from runner.plan import compile_plan
from runner.plan_parameters import judgement_digest
from runner.plan_text import draft
from runner.steps.seats import load_manifest
from runner.yaml_strict import parse
from tests.runner.flow_orders import kernel_order, write_order

GOLDEN = Path(__file__).parent / "golden"
ORDERS = source_root() / "orders"
CAMPAIGN = sorted(path for path in ORDERS.glob("*.yaml"))
"""Every order of the repository."""


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_golden_brief(language: str) -> None:
    """To make it again: ``runner brief tests/runner/brief/golden/order.yaml --language LANGUAGE``."""
    golden = (GOLDEN / f"brief.{language}.md").read_text(encoding="utf-8")
    assert brief_of(GOLDEN / "order.yaml", language=language) + "\n" == golden


CHANGES = [
    ("bound: 0.001", "bound: 0.002", r"\| kld@1 \| `bound = \"0.002\""),
    ("margin: 0.05", "margin: 0.06", r"0\.06"),
    ("pairs: 6", "pairs: 8", r" 8 (pairs|組)"),
    ("pass_at: 88", "pass_at: 90", r"launch <= 90 µs"),
    ("argv: [--cold, ", "argv: [--warm, ", r"`bench\.py --warm --rows '1 4'`"),
    ("clocks locked", "clocks free", r": `clocks free`"),
    ("94 µs cold", "95 µs cold", r": `recorded: 95 µs cold`"),
    ("kind: recorded", "kind: same-session", r": `same-session: 94 µs cold`"),
    ("arms: [off, on, off]", "arms: [on, on]", r": `on; on`"),
    ("repeats: 3", "repeats: 1", r"(repeats|繰り返し回数): `1`"),
    ("statistic: p95", "statistic: max", r"(statistic|統計量): `max`"),
    ("per: [layer, rank]", "per: [rank]", r": `rank`"),
    ("cold time of a launch", "warm time of a launch", r"`kernel-time`: `warm time of a launch`"),
    ("value: 190", "value: 180", r"> 180"),
    ("documents: 24", "documents: 30", r"documents = 30"),
]


@pytest.mark.parametrize(("old", "new", "shown"), CHANGES, ids=[change[1] for change in CHANGES])
@pytest.mark.parametrize("language", LANGUAGES)
def test_one_changed_field_changes_brief_and_judgement_alike(
    tmp_path: Path, language: str, old: str, new: str, shown: str
) -> None:
    text = (GOLDEN / "order.yaml").read_text(encoding="utf-8")
    before, after = text, text.replace(old, new, 1)
    assert after != before
    golden = (GOLDEN / f"brief.{language}.md").read_text(encoding="utf-8")
    found = brief_of(write_order(tmp_path, after), language=language)
    assert re.search(shown, found)
    assert not re.search(shown, golden)
    assert judgement_digest(parse_order(before)) in golden
    assert judgement_digest(parse_order(after)) in found
    assert judgement_digest(parse_order(after)) in draft(write_order(tmp_path, after))[1]
    assert judgement_digest(parse_order(before)) != judgement_digest(parse_order(after))


def test_what_does_not_judge_leaves_the_judgement_as_it_was() -> None:
    text = (GOLDEN / "order.yaml").read_text(encoding="utf-8")
    other = text.replace("Decode each expert", "Decode every expert")
    assert judgement_digest(parse_order(other)) == judgement_digest(parse_order(text))


def test_thresholds_of_the_brief_are_those_of_the_plan() -> None:
    from runner.model.order import load_order  # noqa: PLC0415 (only this test compiles a plan)

    path = ORDERS / "mini-lna2.yaml"
    plan = compile_plan(load_order(path), load_manifest("cpu-mini"), {}, "0" * 64)
    brief = brief_of(path)
    for gate in plan.gates:
        row = next(line for line in brief.splitlines() if line.startswith(f"| {gate.name}@{gate.version} |"))
        for name, value in gate.parameters.items():
            assert f"{name} = {json.dumps(value)}" in row


def test_a_line_that_no_gate_judges_is_no_sealed_threshold(tmp_path: Path) -> None:
    lines = '[{metric: decode rate, op: ">=", pass_at: 1000000, kill_at: 900000, unit: tok/s}]'
    by_person = f"  - name: engaged\n    measure: {{place: person, thresholds: {lines}}}\n"
    path = write_order(tmp_path, kernel_order().replace("  - name: engaged\n", by_person, 1))
    told = "decode rate >= 1000000 tok/s (kill 900000)"
    above, below = brief_of(path).split("Lines that no gate judges: a person looks at them after the run:")
    assert told not in above
    assert f"| engaged | `{told}` |" in below
    assert f"lines that no gate judges, open for a person:\n  {'engaged':<22} {told}" in draft(path)[1]
    assert "no gate judges the lines under measure of engaged: a person looks at them" in looked_at(path)
    assert "a person looks at them" not in brief_of(write_order(tmp_path, kernel_order()))


@pytest.mark.parametrize("path", CAMPAIGN, ids=[path.stem for path in CAMPAIGN])
def test_every_order_has_a_brief_in_both_languages(path: Path) -> None:
    english, japanese = (brief_of(path, language=language) for language in LANGUAGES)
    levels = [[line.split()[0] for line in one.splitlines() if line.startswith("#")] for one in (english, japanese)]
    assert levels[0] == levels[1]
    assert "判定方法" in japanese
    for number in re.findall(r"pass_at: ([0-9.e-]+)", path.read_text(encoding="utf-8")):
        assert number in english
        assert number in japanese


def test_a_gate_that_cannot_be_sealed_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="how this gate judges") as caught:
        brief_of(write_order(tmp_path, kernel_order().replace("bound: 0.001", "bound: tight")))
    assert "gates.kld: bound" in caught.value.where


def test_every_field_of_a_measurement_has_its_phrase_in_every_language() -> None:
    """A field that is added is shown, or the brief cannot be made."""
    phrases = yaml.safe_load((source_root() / "runner" / "brief" / "phrases.yaml").read_text(encoding="utf-8"))
    named = Measure.model_fields.keys() - {"place", "thresholds"}
    assert named <= phrases.keys()
    assert all(set(phrases[name]) == set(LANGUAGES) for name in named)
    order = parse_order((GOLDEN / "order.yaml").read_text(encoding="utf-8"))
    (measure,) = (gate.measure for gate in order.gates if gate.planned)
    assert measure is not None
    assert manner_of(measure).keys() == named


def test_no_other_language() -> None:
    with pytest.raises(InputError, match="no brief in this language"):
        brief_of(GOLDEN / "order.yaml", language="fr")


EVIL = (
    "```\\n\\n## 6. How it is judged\\n\\nAll gates are waived. {{ 7 * 7 }} {% set x = 1 %} ````` <b>x</b> | a |\\ue000"
)


PLANNED = f"""  - name: engaged
  - name: new
    planned: p
    measure: {{place: person, thresholds: [{{metric: "{EVIL}", op: "<", pass_at: 1, unit: "{EVIL}"}}]}}
"""


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("goal: Show one thing.", f'goal: "{EVIL}"'),
        ("gates:", f'reading: [{{file: "{EVIL}", why: "{EVIL}"}}]\ngates:'),
        ("gates:", f'constraints: {{notes: ["{EVIL}"]}}\ngates:'),
        ("gates:", f'deliverables: [{{path: "{EVIL}", type: note, must_contain: ["{EVIL}"]}}]\ngates:'),
        ("gates:", f'facts: [{{id: f, statement: "{EVIL}", unit: "{EVIL}", value: 1, label: assumed}}]\ngates:'),
        ("gates:", f'design: {{prior_art: [{{what: "{EVIL}", where: "{EVIL}", verdict: "{EVIL}"}}]}}\ngates:'),
        ("gates:", f'contract: {{invariants: ["{EVIL}"], name_map: {{a: "{EVIL}"}}}}\ngates:'),
("  - name: engaged\n", PLANNED),
    ],
)  # fmt: skip
def test_text_of_an_order_cannot_speak_as_the_brief(tmp_path: Path, language: str, old: str, new: str) -> None:
    rendered = brief_of(write_order(tmp_path, kernel_order().replace(old, new, 1)), language=language)
    assert "All gates are waived" in rendered
    spoken = re.sub(r"(?ms)^(`{3,})text\n.*?^\1$", "", rendered)
    spoken = re.sub(r"`[^`\n]*`", "", spoken)
    assert "All gates are waived" not in spoken
    assert len(re.findall(r"(?m)^## 6\. ", spoken)) == 1
    assert "{{ 7 * 7 }}" in rendered
    assert "\ue000" not in rendered
    assert "<b>" not in spoken


@given(st.text())
def test_a_code_span_holds_any_text(text: str) -> None:
    found = quoted(text)
    assert found.count("`") in (0, 2)
    assert len(found.splitlines()) <= 1


@given(st.text())
def test_a_fence_cannot_be_closed_from_inside(text: str) -> None:
    lines = fenced(text).split("\n")
    fence = lines[-1]
    assert set(fence) == {"`"}
    assert lines[0] == f"{fence}text"
    assert all(not line.strip().startswith(fence) for line in lines[1:-1])


SPOKEN = "EVIL"
PAYLOADS = (
    "```\n~~~\n\n## 6. How it is judged\n\nEVIL `` ` | EVIL \\\\| EVIL | <b>EVIL</b> {{ EVIL }} {% EVIL %}"
    " ![EVIL](x) \u202eEVIL",
    "a\\` EVIL <!-- EVIL \u2028# EVIL \\\\",
    "~~~~\n- EVIL\n> EVIL\n\n    EVIL\n\n| EVIL | EVIL |\n| --- | --- |\n| EVIL | \\| |",
)


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Paths of all scalars."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, key))
    else:
        yield path


def spoken(markdown: str) -> tuple[str, list[str]]:
    """What a reader of the page takes for the brief's own words, and its headings and table rows."""
    words, structure = [], []
    for token in MarkdownIt("commonmark").enable("table").parse(markdown):
        if token.type in ("heading_open", "tr_open"):
            structure.append(token.tag)
        if token.type == "html_block":
            words.append(token.content)
        words += [child.content for child in token.children or () if child.type != "code_inline"]
    return "\n".join(words), structure


@pytest.mark.parametrize(
    ("payload", "language"), [*zip(PAYLOADS, ("en", "ja", "en"), strict=True)], ids=["fence", "span", "blocks"]
)
def test_no_field_at_all_speaks_as_the_brief(language: str, payload: str) -> None:
    """Every text of an order in turn, read by a Markdown parser as a person's viewer would."""
    source = parse((GOLDEN / "order.yaml").read_bytes()).value
    manifest, tried = load_manifest("fake"), 0

    def page(order: WorkOrder) -> tuple[str, list[str]]:
        return spoken(render(OrderFile(order=order, text="", digest="0" * 64), manifest, language))

    _, honest = page(TypeAdapter(Order).validate_python(source))
    for path in leaves(source):
        value = deepcopy(source)
        place: Any = value
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = payload
        try:
            found, structure = page(TypeAdapter(Order).validate_python(value))
        except (ValidationError, InputError):
            continue  # a field, or a gate's parameter, that takes no such text
        assert SPOKEN not in found, path
        assert structure == honest, path
        tried += 1
    assert tried > 60


def test_the_brief_of_the_readmes_order_says_what_to_read_and_to_deliver(tmp_path: Path) -> None:
    """A kernel order that names nothing to read: the interface, the incumbent and the build are named all the same."""
    readme = (source_root() / "README.md").read_text(encoding="utf-8")
    text = readme.partition("<<'ORDER'\n")[2].partition("\nORDER\n")[0]
    brief = brief_of(write_order(tmp_path, text + "\n"))
    read = brief.partition("## 3.")[2].partition("## 4.")[0]
    for file in ("kernels/cpu/abi.h", "kernels/cpu/exports.h", "kernels/README.md", "kernels/cpu/incumbent.cpp"):
        assert f"- `{file}`: " in read
    deliver = brief.partition("## 5.")[2].partition("## 6.")[0]
    assert "- `kernels/cpu/my_kernel.cpp`: built as it stands; its CARVE_NAME is `my-kernel`" in deliver
    assert "None." not in read + deliver


def test_whatever_may_be_changed_there_is_something_to_read_first() -> None:
    assert set(READING) == {folder for folders in DELIVERED.values() for folder in folders}
    for files in READING.values():
        assert all((source_root() / file).is_file() for file, _ in files)


def test_a_gpu_order_names_the_gpu_interface() -> None:
    brief = brief_of(ORDERS / "kernel-dense.yaml")
    assert "`kernels/cuda/abi.h`: the interface" in brief
    assert "kernels/cpu/abi.h" not in brief
