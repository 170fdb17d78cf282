"""Turn package documentation into plain text: HTML and Mallard, manual pages, paragraphs. Pure functions."""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser

_SKIPPED = {"script", "style", "head", "nav", "header", "footer", "svg", "noscript", "info", "button", "select"}
_BLOCKS = {
    *("p", "div", "section", "article", "li", "ul", "ol", "dl", "dt", "dd", "table", "tr", "pre", "blockquote", "br"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "hr", "title", "item", "steps", "list", "note", "page", "screen", "main"),
}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u200b-\u200f\u2028-\u202e\ufeff]")
_RULER = re.compile(r"([-=_*~#.+])\1{7,}")
_WIDE = r"[\u3000-\u30ff\u4e00-\u9fff\uff00-\uffef]"
_WIDE_GAP = re.compile(rf"(?<={_WIDE})[ \t\n]+(?={_WIDE})")
_KANA = re.compile(r"[\u3040-\u30ff]")


class _Text(HTMLParser):
    """Collects visible text; every block element starts a new line, ``pre`` keeps its own lines."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.skipped: list[str] = []
        self.verbatim = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SKIPPED:
            self.skipped.append(tag)
        elif tag in _BLOCKS:
            self.parts.append("\n\n" if tag in {"p", "pre", "screen", "title"} or tag[0] == "h" else "\n")
        elif tag in {"td", "th"}:
            self.parts.append(" ")
        if tag in {"pre", "screen"}:
            self.verbatim += 1

    def handle_endtag(self, tag: str) -> None:
        if tag in self.skipped:
            while self.skipped.pop() != tag:
                pass
        elif tag in _BLOCKS:
            self.parts.append("\n\n" if tag in {"p", "pre", "screen", "title"} or tag[0] == "h" else "\n")
        if tag in {"pre", "screen"}:
            self.verbatim = max(0, self.verbatim - 1)

    def handle_data(self, data: str) -> None:
        if not self.skipped:
            self.parts.append(data if self.verbatim else _WIDE_GAP.sub("", re.sub(r"\s+", " ", data)))


def html_to_text(markup: str) -> str:
    """Visible text of an HTML or Mallard page; navigation, scripts and metadata are left out."""
    parser = _Text()
    parser.feed(markup)
    parser.close()
    return "".join(parser.parts)


def normalise(text: str) -> str:
    """NFC, no control characters, no trailing blanks, short rulers, at most one empty line in a row."""
    text = unicodedata.normalize("NFC", text.replace("\r\n", "\n").replace("\xa0", " "))
    text = _RULER.sub(lambda match: match.group(1) * 4, _CONTROL.sub("", text))
    lines = [line.rstrip() for line in text.split("\n") if "\ufffd" not in line]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def unpadded(rendered: str) -> str:
    """A rendered manual page without a very wide terminal's padding: columns become one gap, indents stay short."""
    lines = [re.sub(r"(?<=\S) {3,}", "  ", line) for line in rendered.split("\n")]
    return "\n".join(re.sub(r"^ {8,}", "        ", line) for line in lines)


def is_language(text: str, language: str) -> bool:
    """Whether a document is what its source says: kana for Japanese, mostly ASCII otherwise."""
    if language == "ja":
        return len(_KANA.findall(text)) >= 0.12 * len(text)
    return sum(character.isascii() for character in text) >= 0.97 * len(text)


def paragraph_key(paragraph: str) -> bytes:
    """16 bytes that two paragraphs share when they differ only in case, blanks or digits."""
    folded = re.sub(r"\d+", "0", re.sub(r"\s+", "", paragraph.lower()))
    return hashlib.sha256(folded.encode()).digest()[:16]


def without_seen(text: str, seen: set[bytes], *, shortest: int = 30) -> str:
    """The text without paragraphs (of at least ``shortest`` characters) that ``seen`` holds; adds the others to it."""
    kept = []
    for paragraph in text.split("\n\n"):
        if len(paragraph) >= shortest:
            key = paragraph_key(paragraph)
            if key in seen:
                continue
            seen.add(key)
        kept.append(paragraph)
    return "\n\n".join(kept).strip()


def excerpt(text: str, longest: int) -> str:
    """Whole leading paragraphs of ``text``, at most ``longest`` characters (the first one is cut when longer)."""
    kept: list[str] = []
    size = 0
    for paragraph in text.split("\n\n"):
        if size + len(paragraph) > longest:
            break
        kept.append(paragraph)
        size += len(paragraph) + 2
    return "\n\n".join(kept) if kept else text[:longest]


def pick(identifiers: Iterable[str]) -> Iterator[str]:
    """Identifiers in an order that depends on nothing but the identifiers (by SHA-256)."""
    return iter(sorted(identifiers, key=lambda name: hashlib.sha256(name.encode()).digest()))
