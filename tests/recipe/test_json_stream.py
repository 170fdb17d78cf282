"""Large JSON documents: the same bytes as the library's, compared and begun without being held whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe import json_stream

_TEXT = st.text(st.characters(codec="utf-8"))
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(_TEXT, inner) | st.tuples(inner, inner),
)
ROWS = [{"name": "a", "shape": [1, 2]}, {"name": "b", "shape": []}]
DOCUMENT: dict[str, Any] = {"recipe": {"what": "layer"}, "files": {}, "tensors": ROWS, "bytes": 3}


@given(_VALUES)
def test_lines_are_those_of_the_library(value: object) -> None:
    lines = list(json_stream.lines(value))
    assert "".join(lines) == json.dumps(value, indent=1, ensure_ascii=False) + "\n"
    assert all(line.index("\n") == len(line) - 1 for line in lines)


@given(st.lists(_VALUES))
def test_an_iterator_is_an_array(values: list[object]) -> None:
    assert list(json_stream.lines({"rows": iter(values)})) == list(json_stream.lines({"rows": values}))


def test_the_same_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "document.json"
    json_stream.write(file, DOCUMENT | {"tensors": iter(ROWS)})
    assert json_stream.same(file, DOCUMENT)
    assert not json_stream.same(file, DOCUMENT | {"bytes": 4})
    assert not json_stream.same(file, {**DOCUMENT, "more": 1})
    content = file.read_bytes()
    for changed in (content[:-1], content + b"\n", content.replace(b"3", b"4"), b"", content[: len(content) // 2]):
        file.write_bytes(changed)
        assert not json_stream.same(file, DOCUMENT)


def test_the_beginning_is_what_stands_before(tmp_path: Path) -> None:
    file = tmp_path / "document.json"
    json_stream.write(file, DOCUMENT)
    assert json_stream.beginning(file, "tensors") == {"recipe": {"what": "layer"}, "files": {}}
    assert json_stream.beginning(file, "dropped") == DOCUMENT
    json_stream.write(file, {"tensors": ROWS, "bytes": 3})
    assert json_stream.beginning(file, "tensors") == {"tensors": ROWS, "bytes": 3}, "without a beginning, the whole"


@pytest.mark.parametrize("indent", [None, 2])
def test_a_file_in_another_form_is_read_whole(tmp_path: Path, indent: int | None) -> None:
    file = tmp_path / "document.json"
    file.write_text(json.dumps(DOCUMENT, indent=indent))
    assert json_stream.beginning(file, "tensors") == DOCUMENT
    assert not json_stream.same(file, DOCUMENT)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"a": 1, "a": 2}', b"\xff", b'{\n "a": 1\n "tensors": [\n'])
def test_what_is_no_object_has_no_beginning(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "document.json"
    file.write_bytes(content)
    assert json_stream.beginning(file, "tensors") is None
