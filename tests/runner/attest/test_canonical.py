"""Signed JSON is read in one serialisation only."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runner.attest.canonical import parse_canonical, quickly
from runner.digest import canonical_json
from runner.errors import TrustError

TEXT = st.text(st.characters(codec="utf-8"))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON)
def test_what_is_written_is_read_back(value: object) -> None:
    assert parse_canonical(canonical_json(value), "x") == value


@given(JSON)
def test_another_spelling_of_the_same_value_is_refused(value: object) -> None:
    other = json.dumps(value, indent=1, ensure_ascii=True).encode()
    if other != canonical_json(value):
        with pytest.raises(TrustError):
            parse_canonical(other, "x")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"a":1,"a":1}', "twice"),
        (b'{"a":{"b":1,"b":2}}', "twice"),
        (b"[NaN]", "NaN"),
        (b"[Infinity]", "Infinity"),
        (b"[1e999]", "out of range"),
        (b"[1.00]", "one serialisation"),
        (b"[1E2]", "one serialisation"),
        (b"[-0]", "one serialisation"),
        (b'["\\u0041"]', "one serialisation"),
        (b'["\\ud800"]', "surrogates"),
        (b'{"b":1,"a":2}', "one serialisation"),
        (b'{"a": 1}', "one serialisation"),
        (b'{"a":1}\n', "one serialisation"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b"\xff", "utf-8"),
        (b"{", "Expecting"),
        (b"", "Expecting"),
        (b"[" * 100_000, "recursion"),
    ],
)
def test_bad_input_is_refused_by_name(text: bytes, reason: str) -> None:
    with pytest.raises(TrustError, match=f"(?i){reason}"):
        parse_canonical(text, "x")


SPELLINGS = st.one_of(
    JSON.map(canonical_json),
    JSON.map(lambda value: json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode()),
    JSON.map(msgspec.json.encode),
    st.from_regex(r"\A-?[0-9]{1,25}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?\Z").map(str.encode),
    st.from_regex(r'\A\{("[a-c\\\\u0]{0,3}":[0-9],){1,2}"[a-c]{0,2}":[0-9]\}\Z').map(str.encode),
    st.binary(max_size=12),
)


@given(SPELLINGS)
@example(b"1e16")
@example(b"1e-7")
@example(b"-0")
@example(b'["\\u001F"]')
@example(b'{"b":1,"aa":2}')
@example(b'{"a":1,"a":1}')
@example(b"9007199254740993.0")
def test_what_is_taken_quickly_is_what_python_reads_and_writes(data: bytes) -> None:
    found = quickly(data)
    if found is not msgspec.UNSET:
        assert repr(found) == repr(json.loads(data))
        assert canonical_json(found) == data


@given(JSON)
@example(dict.fromkeys(map(chr, (*range(0x180), 0x2028, 0xFFFF, 0x1F600)), 0.5))
def test_nearly_everything_is_taken_quickly(value: object) -> None:
    """Floats with an exponent alone are spelt in two ways."""
    data = canonical_json(value)
    assert quickly(data) == value or any("e" in repr(one) for one in _floats(value))


def _floats(value: object) -> list[float]:
    if isinstance(value, dict | list):
        return [one for inner in (value.values() if isinstance(value, dict) else value) for one in _floats(inner)]
    return [value] if isinstance(value, float) else []
