"""The strict YAML reader: what two readers could read differently is refused, with its place."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from runner.errors import InputError
from runner.hidden import INVISIBLE, REORDERING
from runner.model.base import Record
from runner.model.order import parse_order
from runner.model.order.judgement import Primary
from runner.model.scalars import Flag, Free, Number, Pin, Plain, Whole
from runner.yaml_strict import MAX_NODES, parse, read
from tests.calls import counted


class Sheet(Record):
    """Every kind of field that an order uses."""

    pins: dict[str, Pin] = {}
    max_delta: Number = "0"
    rows: Whole = 0
    graphs: Flag = False
    word: str = ""
    free: dict[str, Free] = {}


def sheet(text: str) -> Sheet:
    result: Sheet = parse(text.encode(), "sheet.yaml").validate(Sheet)
    return result


def refused(data: bytes) -> InputError:
    with pytest.raises(InputError) as caught:
        parse(data, "bad.yaml")
    return caught.value


def test_pins_stay_digit_for_digit_and_thresholds_are_numbers() -> None:
    found = sheet("pins: {vllm: 695e0514, exllamav3: 07320415, plugin: 7320415}\nmax_delta: 1e-3\n")
    assert found.pins == {"vllm": "695e0514", "exllamav3": "07320415", "plugin": "7320415"}
    assert float(found.max_delta) == 0.001


@pytest.mark.parametrize("word", ["off", "on", "no", "yes", "y", "n", "8:30", "2026-11-30", "0x10", "1_000"])
def test_words_stay_words_in_a_text_field(word: str) -> None:
    assert sheet(f"word: {word}\n").word == word


@pytest.mark.parametrize("word", ["off", "on", "no", "yes", "True", "FALSE", "1"])
def test_only_true_and_false_are_booleans(word: str) -> None:
    with pytest.raises(InputError, match="expected true or false"):
        sheet(f"graphs: {word}\n")
    assert sheet("graphs: true\n").graphs is True


@pytest.mark.parametrize("text", ["8:30", "0o17", "017", "1_000", "+1", "1.0", "1e3", ".5", "0x1f", '"3"', "[1]"])
def test_a_whole_number_has_plain_digits(text: str) -> None:
    with pytest.raises(InputError, match=r"sheet\.yaml:2:"):
        sheet(f"word: x\nrows: {text}\n")


@pytest.mark.parametrize("text", ["8:30", ".inf", ".nan", "off", "1_0.5", "0x1p3", ".5", "+0.1"])
def test_a_number_is_decimal(text: str) -> None:
    with pytest.raises(InputError, match="expected a number"):
        sheet(f"max_delta: {text}\n")


def test_free_parameters_type_by_source_text_or_are_refused() -> None:
    found = sheet("free: {a: off, b: true, c: 3, d: 0.02, e: '07', f: [1, x]}\n").free
    assert found == {"a": "off", "b": True, "c": 3, "d": "0.02", "e": "07", "f": [1, "x"]}
    for text in ("8:30", "07320415", "695e0514", "0x1f", ".inf", "1_000"):
        with pytest.raises(InputError, match="put it in quotes"):
            sheet(f"free: {{a: {text}}}\n")


ESCAPES = (
    "\\0",
    "\\e",
    "\\a",
    "\\r",
    "\\N",
    "\\L",
    "\\P",
    "\\x9b",
    "\\u00ad",
    "\\u2066",
    "\\u2060",
    "\\u3164",
    "\\ufeff",
)
"""Escapes of a double-quoted scalar; ``\\t`` and ``\\n`` are text."""
WIDE = ("UTF-16", "UTF-16LE", "UTF-16BE", "UTF-32", "UTF-32LE", "UTF-32BE")


@pytest.mark.parametrize(
    ("data", "words", "place"),
    [
        (b"a: 1\nb: 2\na: 3\n", "key 'a' twice", "bad.yaml:3:1"),
        (b"a: {b: 1, b: 2}\n", "key 'b' twice", "bad.yaml:1:11"),
        (b"x: 1\non: 2\n", "not a string", "bad.yaml:2:1"),
        (b"1: x\n", "not a string", "bad.yaml:1:1"),
        (b"y: x\n", "not a string", "bad.yaml:1:1"),
        (b"~: x\n", "not a string", "bad.yaml:1:1"),
        (b"? [a]\n: x\n", "not a string", "bad.yaml:1:3"),
        (b"a: &a {self: *a}\n", "cycle", "bad.yaml:1:14"),
        (b"a: *b\n", "alias \\*b to nothing", "bad.yaml:1:4"),
        (b"a: &x 1\nb: &x 2\n", "anchor &x twice", "bad.yaml:2:4"),
        (b"a: !!python/object:os.system {}\n", "explicit tag", "bad.yaml:1:4"),
        (b"a: !!str 3\n", "explicit tag", "bad.yaml:1:4"),
        (b"a:\n", "a key without a value", "bad.yaml:1:3"),
        (b"a: ~\n", "a key without a value", "bad.yaml:1:4"),
        (b"a: 1\n---\nb: 2\n", "a second document", "bad.yaml:2:1"),
        (b"a: 'x\n", "not YAML", "bad.yaml:2:1"),
        (b"a: b\n\tc: d\n", "not YAML", "bad.yaml:2:1"),
        (b"\xef\xbb\xbfa: 1\n", "byte order mark", "bad.yaml:1:1"),
        (b"a: 1\r\nb: 2\r\n", "carriage returns", "bad.yaml:1:5"),
        ("a: 1 # note\u2028b: 2\n".encode(), "U\\+2028 shows nothing, ends", "bad.yaml:1:12"),
        ("a: 1\n# note\x85b: 2\n".encode(), "U\\+0085 shows nothing, ends", "bad.yaml:2:7"),
        ("a: \u202eb\n".encode(), "U\\+202E shows nothing, ends", "bad.yaml:1:4"),
        ("a: pass\u200bed\n".encode(), "U\\+200B shows nothing", "bad.yaml:1:8"),
        ("a: 1\nb: \ufeffx\n".encode(), "U\\+FEFF shows nothing", "bad.yaml:2:4"),
        (b'a: 1\nb: "\\u202egate"\n', "U\\+202E shows nothing", "bad.yaml:2:4"),
        (b'a: [x, "\\x1b[2J"]\n', "U\\+001B shows nothing", "bad.yaml:1:8"),
        (b'"pass\\u200bed": 1\n', "U\\+200B shows nothing", "bad.yaml:1:1"),
        (b'a: &x "\\U000E0041"\n', "U\\+E0041 shows nothing", "bad.yaml:1:"),
        *((f'a: "{escape}"\n'.encode(), "shows nothing", "bad.yaml:1:4") for escape in ESCAPES),
        *(("a: größe # 注\n".encode(name), f"the file is {name[:6]}", "bad.yaml:1:1") for name in WIDE),
        (b"a: 1\nb: \x00\n", "control byte 0x00", "bad.yaml:2:4"),
        (b"a: \xff\n", "not UTF-8", "bad.yaml:1:4"),
        (b"", "empty", "bad.yaml"),
        (b"a: " + b"[" * 100 + b"]" * 100, "nested deeper", "bad.yaml:1:"),
        (b"d: {x: 1}\na: {z: 2, <<: {x: 1}}\n", "after other keys", "bad.yaml:2:"),
    ],
)
def test_what_is_refused_says_where(data: bytes, words: str, place: str) -> None:
    error = refused(data)
    assert error.exit_code == 3
    with pytest.raises(InputError, match=words):
        raise error
    assert error.where.startswith(place)


def bomb(levels: int) -> bytes:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    names = "abcdefghijkl"
    for before, name in itertools.pairwise(names):
        lines.append(f"{name}: &{name} [{', '.join(['*' + before] * 9)}]")
    return "\n".join(lines).encode()


def test_alias_growth_is_refused_before_values_exist() -> None:
    with counted() as calls:
        assert str(MAX_NODES) in refused(bomb(8)).what
    assert calls.count < MAX_NODES


def test_a_chain_of_aliases_cannot_nest_without_end() -> None:
    deep = "a0: &a0 [[[[[[[[1]]]]]]]]\n" + "".join(f"a{i}: &a{i} [[[[[*a{i - 1}]]]]]\n" for i in range(1, 40))
    assert "nested deeper" in refused(deep.encode()).what


def test_one_honest_alias_loads_and_what_follows_overrides() -> None:
    text = b"base: &base {tokens: 32, rows: 4}\none: *base\ntwo:\n  <<: *base\n  rows: 8\n"
    found = parse(text).value
    assert found["one"] == {"tokens": "32", "rows": "4"}
    assert found["two"] == {"tokens": "32", "rows": "8"}


def test_a_huge_file_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as stream:
        stream.truncate(100 << 20)
    with counted() as calls, pytest.raises(InputError, match="too large"):
        read(path)
    assert calls.count < 1000


def test_every_fault_of_a_schema_has_its_place() -> None:
    with pytest.raises(InputError) as caught:
        sheet("word: x\nrows: many\ngraphs: off\nextra: 1\n")
    message = str(caught.value)
    for place in ("sheet.yaml:2:1", "sheet.yaml:3:1", "sheet.yaml:4:1"):
        assert place in message


hidden = "".join(map(chr, (*REORDERING, *INVISIBLE)))
written = st.characters(
    min_codepoint=32, max_codepoint=0x2FFF, exclude_categories=("Cs", "Cc"), exclude_characters=hidden
)
texts = st.text(written, max_size=20)
trees = st.recursive(
    texts, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=12
)


@given(st.dictionaries(texts, trees, min_size=1, max_size=4))
def test_what_a_writer_quotes_comes_back_as_it_was(value: dict[str, object]) -> None:
    written = yaml.safe_dump(value, default_style='"', allow_unicode=True)
    assert parse(written.encode()).value == value


@given(st.binary(max_size=200))
def test_any_bytes_give_a_value_or_a_clear_error(data: bytes) -> None:
    try:
        parse(data, "any.yaml")
    except InputError as error:
        assert error.what
        assert error.where.startswith("any.yaml")


@given(st.text("0123456789eE.+-_:xob", min_size=1, max_size=12))
def test_a_number_field_never_guesses(text: str) -> None:
    try:
        found = sheet(f"max_delta: {text}\n")
    except InputError:
        return
    assert found.max_delta == text
    assert float(text) == float(found.max_delta)


def test_plain_marks_only_what_was_not_quoted() -> None:
    found = parse(b"a: 1\nb: '1'\n").value
    assert isinstance(found["a"], Plain)
    assert not isinstance(found["b"], Plain)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{metric: decode-rate, margin: 0,05, pairs: 6}", "a number with a comma"),
        ("{metric: decode-rate, margin: '0,05', pairs: 6}", "expected a number such as 0.02"),
        ("{metric: decode-rate, margin: 0.05, pairs: 6, languages: en}", "expected a list: [one, two]"),
    ],
)
def test_slips_are_told_in_words_of_yaml(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text.encode()).validate(Primary)
    assert words in str(caught.value)
    sound = parse(b"{metric: decode-rate, margin: 0.05, pairs: 6, languages: [en]}").validate(Primary)
    assert sound.languages == ("en",)


def test_an_order_without_a_kind_is_told_so() -> None:
    with pytest.raises(InputError) as caught:
        parse_order("schema_version: 1\nid: one\n")
    assert "kind: missing" in caught.value.found
    assert "discriminator" not in caught.value.found


@pytest.mark.parametrize("text", ["99999999999999999999", "-9223372036854775809", "9" * 5000])
def test_whole_numbers_have_an_end(text: str) -> None:
    with pytest.raises(InputError, match="not a valid"):
        parse(f"{{metric: decode-rate, margin: 0.05, pairs: 6, tokens: {text}}}".encode()).validate(Primary)
