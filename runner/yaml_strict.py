"""A YAML reader that refuses what two readers could understand differently.

Built on PyYAML's events, before any value exists: duplicate keys, keys that are not strings, explicit tags, nulls,
cycles, deep nesting and alias growth are errors with ``file:line:column``. Scalars stay source text
(:class:`runner.model.scalars.Plain` where unquoted); the schema types them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from stat import S_ISREG
from typing import Any, NoReturn, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from runner.errors import InputError
from runner.hidden import first_unseen
from runner.model.scalars import Plain

MAX_BYTES = 512 * 1024
MAX_NODES = 10_000
"""Values after all aliases are written out; an honest order has a few hundred."""
MAX_DEPTH = 32
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
MAX_FAULTS = 20
"""Shown of one file; whoever has more begins with these."""
_LISTS = ("tuple_type", "list_type")
_RECORD = re.compile("Input should be a valid dictionary or instance of .*")
"""Pydantic's words for a field that is a record."""
_WRITE_VALUE = "write the value or leave the key out; inside { } and [ ], text with a comma needs quotes"
_WIDE = ("UTF-32LE", "UTF-32BE", "UTF-16LE", "UTF-16BE")
_LEAVE_OUT = "write a line feed, or leave it out"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_resolve: Callable[..., str] = yaml.resolver.Resolver().resolve
_STRING = "tag:yaml.org,2002:str"
_T = TypeVar("_T")


@dataclass(frozen=True)
class Mark:
    """A place in a file, counted from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(eq=False)
class Node:
    """A value and where it was written. ``content`` is text, a list of nodes or a dict of nodes."""

    mark: Mark
    content: Any
    size: int = 1
    depth: int = 1
    keys: dict[str, Mark] = field(default_factory=dict)
    pending: str | None = None
    """The key that waits for its value, while the mapping is open."""
    done: bool = True

    def value(self) -> Any:
        """Plain Python data; aliases are written out."""
        if isinstance(self.content, dict):
            return {key: node.value() for key, node in self.content.items()}
        if isinstance(self.content, list):
            return [node.value() for node in self.content]
        return self.content


@dataclass(frozen=True)
class Document:
    """One file: its data and the places they came from."""

    file: str
    root: Node

    @property
    def value(self) -> Any:
        return self.root.value()

    def locate(self, path: Sequence[str | int]) -> Mark:
        """The nearest place to ``path``; parts that are not in the file (union tags, missing fields) are skipped."""
        node = self.root
        mark = node.mark
        for part in path:
            if isinstance(node.content, dict) and part in node.content:
                mark = node.keys.get(str(part), node.content[part].mark)
                node = node.content[part]
            elif isinstance(node.content, list) and isinstance(part, int) and part < len(node.content):
                node = node.content[part]
                mark = node.mark
        return mark

    def validate(self, shape: Any, *, value: Mapping[str, Any] | None = None) -> Any:
        """This document as ``shape`` (a Pydantic model or annotated union); ``value`` is what became of its data.

        Raises InputError with the place of every fault.
        """
        try:
            return TypeAdapter(shape).validate_python(self.value if value is None else value)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_input=False)
            places = [_place(fault) for fault in faults]
            lines = [
                self._line(at, _said(fault)) for at, fault in zip(places[:MAX_FAULTS], faults[:MAX_FAULTS], strict=True)
            ]
            lines += [f"and {len(faults) - MAX_FAULTS} more"] if len(faults) > MAX_FAULTS else []
            raise InputError(
                f"{self.file} is not a valid {_name_of(shape)}",
                where=str(self.locate(places[0])),
                found="\n    ".join(["", *lines]),
                next_step="correct the fields above; `runner schema NAME` prints what each one may hold: "
                "order, craftspeople, reviews, open-items or seat",
            ) from None

    def _line(self, path: tuple[str | int, ...], message: str) -> str:
        name = ".".join(str(part) for part in path)
        return f"{self.locate(path)}: {name}: {message}"


def _said(fault: ErrorDetails) -> str:
    """Pydantic's words, or ours where they speak of Python."""
    if fault["type"] in _LISTS:
        return "expected a list: [one, two], or one entry a line, each after `- `"
    if fault["type"] == "union_tag_not_found":
        return "missing: it says what is meant, and which keys belong here"
    return _RECORD.sub(
        "expected keys and values, not a single word or list", fault["msg"].removeprefix("Value error, ")
    )


def _place(fault: ErrorDetails) -> tuple[str | int, ...]:
    """Where a fault stands; of a record of no known kind, the kind."""
    return (*fault["loc"], "kind") if fault["type"] in ("union_tag_invalid", "union_tag_not_found") else fault["loc"]


def _name_of(shape: Any) -> str:
    """``ReviewFile`` is a review file."""
    return re.sub(r"\B([A-Z])", r" \1", shape.__name__).lower() if isinstance(shape, type) else "work order"


def read(path: Path) -> Document:
    """Read one file. Raises InputError."""
    try:
        status = path.stat()
        if not S_ISREG(status.st_mode):
            raise InputError("this is no plain file", where=str(path), expected="a YAML file")
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise InputError(
                "file too large for YAML written by a person",
                where=str(path),
                expected=f"at most {MAX_BYTES} bytes",
                found=f"{status.st_size} bytes",
            )
        return parse(data, str(path))
    except OSError as error:
        raise InputError("file cannot be read", where=str(path), found=error.strerror or str(error)) from None


def parse(data: bytes, name: str = "<text>") -> Document:
    """Parse one document. Raises InputError with ``name:line:column``."""
    text = _decode(data, name)
    builder = _Builder(name)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        place = error.problem_mark or error.context_mark
        where = Mark(name, place.line + 1, place.column + 1) if place else Mark(name, 1, 1)
        raise InputError(f"not YAML: {error.problem or error.context}", where=str(where)) from None
    except yaml.YAMLError as error:
        raise InputError(f"not YAML: {error}", where=name) from None
    if builder.root is None:
        raise InputError("the file is empty", where=name, expected="one YAML mapping")
    return Document(name, builder.root)


@lru_cache(maxsize=64)  # many reports of few orders
def mapping(text: str) -> Mapping[str, Any]:
    """What the text of an order holds, not to be changed; nothing where it is no mapping. Raises InputError."""
    value: Any = parse(text.encode(), "order").value
    return value if isinstance(value, dict) else {}


def _decode(data: bytes, name: str) -> str:
    def refuse(what: str, offset: int, next_step: str) -> NoReturn:
        line = data.count(b"\n", 0, offset) + 1
        column = offset - (data.rfind(b"\n", 0, offset) + 1) + 1
        raise InputError(what, where=f"{name}:{line}:{column}", expected="UTF-8 text", next_step=next_step)

    if len(data) > MAX_BYTES:
        raise InputError(
            "file too large for YAML written by a person",
            where=name,
            expected=f"at most {MAX_BYTES} bytes",
            found=f"{len(data)} bytes",
        )
    if wide := _wide_encoding(data):
        refuse(
            f"the file is {wide}",
            0,
            f"save it as UTF-8 without byte order mark, or: iconv -f {wide} -t UTF-8 {name} > new.yaml",
        )
    if data.startswith(b"\xef\xbb\xbf"):
        refuse("the file starts with a byte order mark", 0, "save it as UTF-8 without byte order mark")
    if control := _CONTROL.search(data):
        what = f"control byte 0x{control[0][0]:02x}: this is not text"
        refuse(what, control.start(), "check that this is the file you meant")
    if (carriage := data.find(b"\r")) >= 0:
        refuse("the file has carriage returns", carriage, "save it with Unix line ends (dos2unix)")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        refuse("bytes that are not UTF-8", error.start, "save it as UTF-8")
    if (at := first_unseen(text)) is not None:
        refuse(_unseen(text[at]), len(text[:at].encode()), _LEAVE_OUT)
    return text


def _wide_encoding(data: bytes) -> str:
    """The Unicode encoding of two or four bytes a character that ``data`` is text in; empty for none."""
    for name in _WIDE if b"\0" in data else ():
        with suppress(UnicodeDecodeError):
            text = data[: len(data) // 4 * 4].decode(name)
            words = sum(one.isascii() and (one.isprintable() or one in "\t\r\n") for one in text)
            if words > len(text) / 2:
                return name[:6] if text.startswith("\ufeff") else name  # the mark says the order of bytes itself
    return ""


def _unseen(one: str) -> str:
    return f"character U+{ord(one):04X} shows nothing, ends a line or reorders one where no reader sees it"


def _reads_as_string(text: str) -> bool:
    """Whether a reader of YAML 1.1 takes the unquoted ``text`` for a string (not so ``on``, ``y``, ``12``, ``~``)."""
    return text.lower() not in ("y", "n") and _resolve(yaml.ScalarNode, text, (True, False)) == _STRING


class _Builder:
    """Collects events into nodes with an explicit stack, so that depth and growth are checked before they hurt."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.root: Node | None = None
        self._stack: list[Node] = []
        self._anchors: dict[str, Node] = {}

    def take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self._open(event)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self._close()
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        elif isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
            self._refuse("a second document", event, "keep one document a file")

    def _mark(self, event: yaml.Event) -> Mark:
        place = event.start_mark
        assert place is not None, "every event of a parser has a place"
        return Mark(self.name, place.line + 1, place.column + 1)

    def _refuse(self, what: str, event: yaml.Event | Mark, next_step: str = "", found: str = "") -> NoReturn:
        where = event if isinstance(event, Mark) else self._mark(event)
        raise InputError(what, where=str(where), found=found, next_step=next_step)

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        plain = event.style in (None, "")
        if event.tag is not None:
            self._refuse(f"explicit tag {event.tag}", event, "write the value plainly; the schema gives it its type")
        text: str = event.value
        if (at := first_unseen(text)) is not None:  # an escape says in plain letters what the file must not hold
            self._refuse(_unseen(text[at]), event, _LEAVE_OUT)
        is_key = bool(self._stack) and isinstance(self._stack[-1].content, dict) and self._stack[-1].pending is None
        if is_key:
            self._key(text, plain, event)
            return
        if plain and text in ("", "~", "null", "Null", "NULL"):
            self._refuse("a key without a value", event, _WRITE_VALUE, text or "nothing")
        node = Node(self._mark(event), Plain(text) if plain else text)
        self._name(event.anchor, node)
        self._place(node, event)

    def _key(self, text: str, plain: bool, event: yaml.ScalarEvent) -> None:
        mapping = self._stack[-1]
        if event.anchor is not None:
            self._refuse("an anchor on a key", event, "put anchors on values only")
        last = list(mapping.content.values())[-1].content if mapping.content else None
        if plain and text.isdigit() and isinstance(last, Plain) and last.isdigit():
            self._refuse("a number with a comma", event, f"write {last}.{text}", f"{last},{text}")
        if plain and text != "<<" and not _reads_as_string(text):
            self._refuse("a key that is not a string", event, "put the key in quotes if you mean the word", repr(text))
        if text in mapping.keys:
            first = mapping.keys[text]
            self._refuse(f"key {text!r} twice", event, f"the first one is at line {first.line}")
        mapping.keys[text] = self._mark(event)
        mapping.pending = text

    def _open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        if event.tag is not None:
            self._refuse(f"explicit tag {event.tag}", event, "write the value plainly")
        if len(self._stack) >= MAX_DEPTH:
            self._refuse(f"nested deeper than {MAX_DEPTH} levels", event)
        mapping = isinstance(event, yaml.MappingStartEvent)
        if self._stack and isinstance(self._stack[-1].content, dict) and self._stack[-1].pending is None:
            self._refuse("a key that is not a string", event, "keys are single words")
        node = Node(self._mark(event), {} if mapping else [], done=False)
        self._name(event.anchor, node)
        self._stack.append(node)

    def _close(self) -> None:
        node = self._stack.pop()
        node.done = True
        self._place(node, node.mark)

    def _alias(self, event: yaml.AliasEvent) -> None:
        if self._stack and isinstance(self._stack[-1].content, dict) and self._stack[-1].pending is None:
            self._refuse("an alias as a key", event, "write the key out")
        target = self._anchors.get(event.anchor or "")
        if target is None:
            self._refuse(f"alias *{event.anchor} to nothing", event, f"define &{event.anchor} above it")
        if not target.done:
            self._refuse(f"alias *{event.anchor} inside its own value: a cycle", event)
        self._place(target, event)

    def _name(self, anchor: str | None, node: Node) -> None:
        if anchor is None:
            return
        if anchor in self._anchors:
            self._refuse(f"anchor &{anchor} twice", node.mark, "give the second one another name")
        self._anchors[anchor] = node

    def _place(self, node: Node, event: yaml.Event | Mark) -> None:
        if not self._stack:
            self.root = node
            return
        parent = self._stack[-1]
        parent.size += node.size
        parent.depth = max(parent.depth, 1 + node.depth)
        if len(self._stack) + node.depth > MAX_DEPTH:
            self._refuse(f"nested deeper than {MAX_DEPTH} levels", event)
        if sum(open_node.size for open_node in self._stack) > MAX_NODES:
            self._refuse(f"more than {MAX_NODES} values once aliases are written out", event, "use fewer aliases")
        if isinstance(parent.content, list):
            parent.content.append(node)
            return
        assert parent.pending is not None
        key, parent.pending = parent.pending, None
        if key == "<<":
            self._merge(parent, node, event)
        else:
            parent.content[key] = node

    def _merge(self, parent: Node, node: Node, event: yaml.Event | Mark) -> None:
        """``<<: *defaults``: the mapping's own keys win wherever they stand."""
        if not isinstance(node.content, dict):
            self._refuse("`<<` takes one mapping", event, "write `<<: *name`")
        if parent.content:
            self._refuse("`<<` after other keys", event, "put `<<: *name` first, so that what follows overrides it")
        parent.content.update(node.content)


__all__ = ["MAX_BYTES", "MAX_DEPTH", "MAX_NODES", "Document", "Mark", "Node", "parse", "read"]
