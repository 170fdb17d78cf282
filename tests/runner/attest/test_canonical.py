"""Signed JSON is read in one serialisation only."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.attest.canonical import parse_canonical
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
