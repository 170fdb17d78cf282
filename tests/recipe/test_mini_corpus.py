"""Cleaning of package documentation, removal of repeats, and the held-out split."""

import gzip
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.mini import corpus
from recipe.mini.clean import (
    excerpt,
    html_to_text,
    is_language,
    normalise,
    paragraph_key,
    pick,
    unpadded,
    without_seen,
)
from recipe.mini.sources import SOURCES, Source

TEXT = Path(__file__).parents[2] / "recipe" / "mini" / "text"


def test_html_keeps_what_is_read_and_drops_navigation_and_scripts() -> None:
    page = (
        "<html><head><title>No</title></head><body><nav>Up <a>Next</a></nav><h1>A &amp; B</h1>"
        "<p>One\n  sentence<script>var x = '<p>';</script>.</p><pre>  keep\n    this</pre>"
        "<ul><li>x<li>y</ul></body></html>"
    )
    assert normalise(html_to_text(page)) == "A & B\n\nOne sentence.\n\n  keep\n    this\n\nx\ny"


def test_html_with_tags_never_closed_does_not_swallow_the_rest() -> None:
    assert "after" in html_to_text("<nav><ul><li>a</nav></nav><p>after")


def test_line_breaks_between_japanese_characters_are_no_spaces() -> None:
    assert normalise(html_to_text("<p>本を\n  読む。 English too</p>")) == "本を読む。 English too"


def test_mallard_pages_are_read_like_html() -> None:
    page = "<page><info><desc>no</desc></info><title>Files</title><steps><item><p>Open</p></item></steps></page>"
    assert normalise(html_to_text(page)) == "Files\n\nOpen"


def test_normalise_removes_controls_rulers_and_lines_that_are_not_text() -> None:
    assert normalise("a\x00b \r\n" + "=" * 40 + "\n\n\n\nc\ufffdd\ne\u200b") == "ab\n====\n\ne"


@given(st.text(max_size=300))
def test_normalise_is_idempotent(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


def test_a_rendered_manual_loses_its_padding() -> None:
    assert unpadded("ls(1)" + " " * 900 + "ls(1)\n" + " " * 14 + "-a   all") == "ls(1)  ls(1)\n        -a  all"


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("これは日本語の文です。", "ja", True),
        ("This is not Japanese.", "ja", False),
        ("plain ASCII text", "en", True),
        ("これは日本語の文です。", "en", False),
        ("x = 1  # naïve", "code", False),
    ],
)
def test_language(text: str, language: str, expected: bool) -> None:
    assert is_language(text, language) is expected


def test_paragraphs_are_equal_up_to_case_blanks_and_numbers() -> None:
    assert paragraph_key("Version 1.2 of\n  this") == paragraph_key("version 33.4 OF this")
    assert paragraph_key("this") != paragraph_key("that")


def test_a_paragraph_is_kept_once_and_short_ones_always() -> None:
    seen: set[bytes] = set()
    long = "A paragraph that is long enough to be looked at."
    assert without_seen(f"{long}\n\nshort", seen) == f"{long}\n\nshort"
    assert without_seen(f"short\n\n{long}\n\nnew and also long enough to count", seen) == (
        "short\n\nnew and also long enough to count"
    )


def test_an_excerpt_is_whole_paragraphs() -> None:
    assert excerpt("aa\n\nbb\n\ncc", 6) == "aa\n\nbb"
    assert excerpt("a" * 20, 6) == "a" * 6


def test_the_order_depends_on_the_names_only() -> None:
    names = [f"file{index}" for index in range(50)]
    assert list(pick(names)) == list(pick(reversed(names)))
    assert list(pick(names)) != names


def test_documents_of_a_source(tmp_path: Path) -> None:
    (tmp_path / "doc").mkdir()
    sentence = "<p>Some words that make a page long enough to keep. {}</p>"
    (tmp_path / "doc" / "a.html").write_text("".join(sentence.format(n) for n in range(20)))
    (tmp_path / "doc" / "b.html.gz").write_bytes(gzip.compress(b"".join(sentence.encode() for _ in range(20))))
    (tmp_path / "doc" / "short.html").write_text("<p>too short</p>")
    (tmp_path / "doc" / "testdata.html").write_text("".join(sentence.format(n) for n in range(20)))
    source = Source("some-doc", "en", "html", ("**/*.html", "**/*.html.gz"), "MIT")
    with ThreadPoolExecutor(2) as pool:
        found = corpus.documents(source, tmp_path, pool)
        assert {document.id for document in found} == {"some-doc:doc/a.html", "some-doc:doc/b.html.gz"}
        assert corpus.documents(replace(source, language="ja"), tmp_path, pool) == []


def test_held_out_documents_share_no_paragraph() -> None:
    repeated = "This paragraph stands in every document and is long enough.\n\n"
    bodies = [
        "\n\n".join(f"Document {name} says {word} at length. " * 12 for word in "abcdefghijklmn") for name in "xyz"
    ]
    found = [corpus.Document(f"p:{index}", "en", repeated + body) for index, body in enumerate(bodies)]
    chosen = list(corpus.choose_held_out(found, "en"))
    assert len(chosen) == 3
    assert sum(repeated.strip() in document.text for document in chosen) == 1


def test_the_committed_text_comes_from_the_sources_allowed_for_it() -> None:
    allowed = {(source.package, source.language) for source in SOURCES if source.held_out}
    for language in ("en", "ja", "code"):
        lines = [json.loads(line) for line in (TEXT / f"{language}.jsonl").read_text(encoding="utf-8").splitlines()]
        assert len(lines) >= 24
        assert len({line["id"] for line in lines}) == len(lines)
        for line in lines:
            assert line.keys() == {"id", "language", "text"}
            assert (line["id"].split(":")[0], line["language"]) in allowed
            assert is_language(line["text"], language)
        keys = [paragraph_key(part) for line in lines for part in line["text"].split("\n\n") if len(part) >= 30]
        assert len(set(keys)) == len(keys)
