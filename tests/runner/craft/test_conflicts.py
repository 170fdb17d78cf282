"""Reviewers' claims against each other and against arithmetic; the campaign's five answers to one question."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.cli import run
from runner.craft.conflicts import Question, conflicts
from runner.craft.next_version import next_version
from runner.errors import InputError
from runner.model.order import load_order, parse_order
from runner.model.order.review import Review, ReviewFile
from runner.paths import source_root
from runner.yaml_strict import parse
from tests.runner.craft.bench_kit import Kit
from tests.runner.test_workflow import ask

F2 = (
    (source_root() / "orders" / "reviews" / "F2-example.yaml")
    .read_text(encoding="utf-8")
    .replace("order: f2-example", "order: small-lna2")
)


def table(text: str) -> dict[str, Question]:
    return {one.name: one for one in conflicts(parse(text.encode()).validate(ReviewFile))}


def test_the_example_makes_a_next_version_as_documented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The README's very words, from its checkout; the copy goes to a folder of this test."""
    readme = (source_root() / "README.md").read_text(encoding="utf-8")
    block = next(part for part in readme.split("\n\n") if "F2-example-order.yaml" in part and part.startswith("    "))
    copied, made, checked = (line.split() for line in block.splitlines())
    assert copied[0] == "cp"
    source, target = copied[1:]
    copy = tmp_path / "f2.yaml"
    copy.write_bytes((source_root() / source).read_bytes())
    monkeypatch.chdir(source_root())
    for words in (made, checked):
        assert words[0] == "scripts/runner"
        assert run([word if word != target else str(copy) for word in words[1:]]) == 0, capsys.readouterr().err
    order = load_order(copy).order
    assert (order.version, order.rulings[0].question, order.rulings[0].ruling) == (2, "step-count", "24 steps")
    assert run([word if word != target else str(copy) for word in made[1:]]) == 3
    assert "version 2" in (told := capsys.readouterr().err)
    assert "next step" in told


def test_only_one_of_five_answers_divides_the_profile_and_it_is_said_why() -> None:
    question = table(F2)["step-count"]
    assert (question.state, question.answer) == ("arithmetic", "24")
    assert "1,032 = 24 × 43 (routed-main), 72 = 24 × 3 (routed-draft)" in question.why
    assert "greatest common divisor is 24" in question.why
    said = {answer.value: answer for answer in question.answers}
    assert len(said["46"].who) == 3
    assert said["46"].reasons == ("1,032 (routed-main) / 46 leaves 20, 72 (routed-draft) / 46 leaves 26",)
    assert said["25.7"].reasons[0].startswith("25.7 is no whole number")
    assert [value for value, answer in said.items() if answer.holds] == ["24"]


def test_the_table_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "reviews.yaml"
    path.write_text(F2)
    assert run(["conflicts", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("step-count: 24 steps (arithmetic)")
    assert "46 steps, said by arithmetic (medium), gates (low), kernel (low): fails" in out


@given(st.lists(st.sampled_from(["46", "25.7", "24", "12"]), min_size=1, max_size=9), st.randoms())
def test_votes_never_decide(values: list[str], shuffled: random.Random) -> None:
    file = parse(F2.encode()).validate(ReviewFile)
    claim = file.reviews[0].claims[0]

    def asked(values: list[str]) -> Question:
        reviews = tuple(
            Review(reviewer=f"r{place}", lens="any", claims=(claim.model_copy(update={"value": value}),))
            for place, value in enumerate(values)
        )
        return conflicts(file.model_copy(update={"reviews": reviews}))[0]

    again = [*values, *values, values[0]]
    shuffled.shuffle(again)
    one, more = asked(values), asked(again)
    assert (one.state, one.answer) == (more.state, more.answer)
    assert one.answer == ("24" if "24" in values and "12" not in values else None)


@pytest.mark.parametrize("value", ["12", "1"])
def test_a_divisor_that_is_not_the_greatest_is_not_singled_out(value: str) -> None:
    question = table(F2.replace("value: 24", f"value: {value}"))["step-count"]
    assert (question.state, question.answer) == ("open", None)
    assert "nothing is singled out" in question.why
    assert "24, is nobody's claim" in question.why


def test_a_ruling_is_in_a_unit_that_somebody_claims() -> None:
    ruling = (
        "rulings:\n  - {question: step-count, value: 6, unit: UNIT, by: the synthesizer, evidence: counted again}\n"
    )
    assert table(F2 + ruling.replace("UNIT", "steps"))["step-count"].unit == "steps"
    with pytest.raises(InputError, match="a unit that nobody claims"):
        table(F2 + ruling.replace("UNIT", "furlongs"))


def test_agreement_alone_decides_nothing() -> None:
    text = F2.replace("value: 25.7", "value: 46").replace("value: 24", "value: 46").partition("checks:")[0]
    question = table(text)["step-count"]
    assert (question.state, question.answer) == ("unopposed", None)


def test_a_ruling_needs_arithmetic_on_its_side() -> None:
    ruling = "rulings:\n  - {question: step-count, value: VALUE, by: the synthesizer, evidence: counted again}\n"
    assert table(F2 + ruling.replace("VALUE", "12"))["step-count"].state == "ruled"
    with pytest.raises(InputError, match="arithmetic refutes"):
        table(F2 + ruling.replace("VALUE", "46"))


def test_bytes_and_ratios_are_reckoned_again() -> None:
    text = F2.replace("question: step-count", "question: expert-bytes").partition("checks:")[0]
    text = (
        text.replace("value: 46", "value: 812544")
        .replace("value: 25.7", "value: 860000")
        .replace("unit: steps", "unit: bytes")
    )
    check = """checks:
  - kind: equals
    question: expert-bytes
    expression: 3 * hidden * inner * bits / 8 + 3 * scales
    names: {hidden: 4096, inner: 256, bits: 2, scales: 8704}
    evidence: headers
"""
    question = table(text.replace("value: 24", "value: 812000") + check)["expert-bytes"]
    assert (question.state, question.answer) == ("arithmetic", "812544")
    assert "= 812544, not 860000" in question.answers[-1].reasons[0]


def test_different_units_are_not_compared() -> None:
    question = table(F2.replace("value: 24, unit: steps", "value: 24, unit: launches"))["step-count"]
    assert (question.state, question.why) == ("open", "the answers are in different units")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("question: step-count\n    counts", "question: other\n    counts", "nobody claims"),
        ("value: 46,", "value: many,", "expected a number"),
        ("value: 46,", "value: 1e-999999999,", "no number that binary64 holds"),
        ("value: 46,", "value: 0e99999999,", "no number that binary64 holds"),
        ("order: small-lna2", "order: small-lna2\nmore: 1", "Extra inputs"),
    ],
)
def test_a_malformed_review_is_refused(old: str, new: str, words: str) -> None:
    with pytest.raises(InputError, match="is not a valid review file") as caught:
        table(F2.replace(old, new, 1))
    assert words in caught.value.found


def test_a_ruling_keeps_its_unit(kit: Kit) -> None:
    text = F2.partition("checks:")[0].replace("value: 46, unit: steps", "value: 46, unit: launches")
    ruling = "rulings:\n  - {question: step-count, value: VALUE,MORE by: the synthesizer, evidence: counted again}\n"
    assert table(text + ruling.replace("VALUE,MORE", "24,"))["step-count"].unit == "steps"
    assert table(text + ruling.replace("VALUE,MORE", "46,"))["step-count"].unit == "launches"
    with pytest.raises(InputError, match="without its unit") as caught:
        table(text + ruling.replace("VALUE,MORE", "12,"))
    assert caught.value.expected == "unit: one of launches, steps"
    said = text + ruling.replace("VALUE,MORE", "12, unit: steps,")
    assert table(said)["step-count"].unit == "steps"
    file = parse(said.encode()).validate(ReviewFile)
    made = next_version(kit.order.read_text(), file, conflicts(file), "reviews.yaml")
    assert parse_order(made).rulings[0].ruling == "12 steps"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("id: small-lna2", "id : small-lna2"),
        ("id: small-lna2", '"id": small-lna2'),
        ("id: small-lna2", "id: small-lna2\nversion : 1"),
        ("id: small-lna2", "id: small-lna2\n'version': 1  # the first"),
    ],
)
def test_the_version_is_counted_up_however_it_is_written(kit: Kit, old: str, new: str) -> None:
    text = kit.order.read_text()
    assert text.count(old) == 1
    file = parse(F2.encode()).validate(ReviewFile)
    made = next_version(text.replace(old, new), file, conflicts(file), "reviews.yaml")
    assert parse_order(made).version == 2
    assert ("# the first" in made) == ("# the first" in new)


def test_exact_figures_are_compared_exactly() -> None:
    text = F2.partition("checks:")[0].replace("value: 24", "value: 9007199254740993")
    check = "checks:\n  - kind: equals\n    question: step-count\n    expression: 9007199254740993 / 1\n"
    answers = table(text + check + "    tolerance: 0\n    evidence: reckoned\n")["step-count"].answers
    assert [answer.value for answer in answers if answer.holds] == ["9007199254740993"]


def test_a_review_becomes_part_of_the_next_version(kit: Kit, capsys: pytest.CaptureFixture[str]) -> None:
    path = kit.workspace / "orders" / "reviews.yaml"
    path.write_text(F2.replace("value: 24", "value: 23"))
    assert run(["conflicts", str(path), "--into", str(kit.order)]) == 3
    assert "undecided questions" in capsys.readouterr().err
    path.write_text(F2)
    assert run(["conflicts", str(path), "--into", str(kit.order)]) == 0
    order = load_order(kit.order).order
    assert order.version == 2
    assert order.rulings[0].ruling == "24 steps"
    assert {claim.value for claim in order.rulings[0].claims} == {"46 steps", "25.7 steps", "24 steps"}
    assert (order.reading[0].file, order.reading[0].part_of_order) == (str(path), True)
    assert run(["check", str(kit.order)]) == 0
    assert run(["conflicts", str(path), "--into", str(kit.order)]) == 3
    assert "another order or version" in capsys.readouterr().err


def test_reviewers_are_asked_side_by_side(
    kit: Kit, walls: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kit.crew("claims")
    people = "approver: maintainers, reviewers: [{name: crafter, lens: bytes}, {name: crafter, lens: silence}]}"
    kit.order.write_text(kit.order.read_text().replace("approver: maintainers}", people))
    monkeypatch.setattr("runner.paths.source_root", lambda: kit.checkout)
    code, answer = ask(capsys, "review-order", str(kit.order))
    assert (code, list(answer.get("silent", answer))) == (2, ["crafter"]), answer
    assert "no claims.yaml" in answer["silent"]["crafter"]
    question = table(Path(answer["claims"]).read_text())["step-count"]
    assert [review.value for review in question.answers] == ["24"]
