"""Ranges of files in a repository on a Hugging Face hub: pinned, retried, resumed, and never a whole shard.

A hub answers for a fixed commit; the storage behind it answers with an entity tag for each file. What was fetched is
kept in a folder with its digest, so that an interruption costs what was in flight and nothing more.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx

from recipe.closure import INDEX, json_object
from recipe.headers import FIRST_BYTES, Entry, Fault, Header, PackError, header_length, parse_header
from recipe.payload import sha256_of
from runner.errors import InputError, StateError
from runner.files import write_whole

BLOCK = 64 << 20
"""Most bytes of one request."""
SMALL = 128 << 20
"""Most bytes of an index: that of a pack with a million tensors has fewer."""
ATTEMPTS = 6
"""Requests in a row that bring nothing before the hub is given up."""
TIMEOUT_SECONDS = 30.0
_SINGLE = "model.safetensors"
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._\-]{0,180}\.safetensors")
"""What a hub may call a weight file: it becomes a name in the work folder."""
_NAME = re.compile(r"(?!.*(\.\.|--))[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)?(?<![.-])")
"""What the hub takes for a repository's name."""
_STATE = "ranges.json"
_WAIT_SECONDS = 0.5
_WORTH_ANOTHER_TRY = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class Range:
    """Bytes of one file that are fetched together."""

    file: str
    start: int
    stop: int

    @property
    def key(self) -> str:
        return f"{self.file}.{self.start}-{self.stop}"


@dataclass
class Repository:
    """One repository at one commit, as far as its ranges have been fetched into ``folder``."""

    name: str
    revision: str
    folder: Path
    endpoint: str | None = None
    """Another hub than the user's own."""
    token: dict[str, str] = field(default_factory=dict)
    """Headers that say who asks."""
    timeout: float = TIMEOUT_SECONDS
    """Without a byte before a request is made again."""
    wait_seconds: float = _WAIT_SECONDS
    """Before the first repetition; doubled for each further one."""
    state: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InputError(
                "no name of a repository",
                where="donor",
                expected="owner/name as the hub has it",
                found=ascii(self.name),
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / _STATE
        known = (json_object(path.read_bytes()) or {}) if path.is_file() else {}
        whole = all(isinstance(known.get(part), dict) for part in ("files", "ranges"))
        self.state = known if whole else {"files": {}, "ranges": {}}  # without notes it is all asked for again

    def headers(self, prefixes: Sequence[str]) -> list[Header]:
        """Headers of the files that hold tensors with one of these prefixes.

        Raises PackError for a header that is broken or does not hold what the index promises, InputError and StateError
        as :meth:`fetch`.
        """
        listed = self._index()
        files = sorted({file for name, file in listed.items() if name.startswith(tuple(prefixes))})
        if not files:
            raise InputError(
                "the donor has no such tensors", where=self.name, expected=", ".join(prefixes), found="none"
            )
        headers = [self._header(file) for file in files]
        held = {entry.name: entry.file.name for header in headers for entry in header.entries}
        for name, file in listed.items():
            if file in files and held.get(name) != file:
                raise PackError(
                    Fault.INDEX,
                    "index and headers disagree",
                    where=f"{self.name}: {name}",
                    expected=file,
                    found=str(held.get(name)),
                )
        return headers

    def fetch(self, entries: Iterable[Entry]) -> None:
        """Bring the tensors into the folder, neighbours in one request, and note each range's digest.

        Raises InputError for a server that ignores ranges, a file that changed or is missing, and StateError where
        nothing comes any more.
        """
        for wanted in ranges(entries):
            self._fetch(wanted)

    def place(self, entry: Entry) -> tuple[Path, int]:
        """File and first byte of a fetched tensor. Raises StateError where it was not fetched."""
        for key in self.state["ranges"]:
            file, _, span = key.rpartition(".")
            start, stop = map(int, span.split("-"))
            if file == entry.file.name and start <= entry.start and entry.stop <= stop:
                return self.folder / key, entry.start - start
        raise StateError("a tensor was not fetched", where=entry.name, expected="its range", found="none")

    def digests(self) -> dict[str, str]:
        """SHA-256 of each range by ``file.start-stop``."""
        return dict(sorted(self.state["ranges"].items()))

    def tags(self) -> dict[str, str]:
        """Entity tag of each file that was touched."""
        return {name: str(told["tag"]) for name, told in sorted(self.state["files"].items())}

    def _index(self) -> dict[str, str]:
        """Tensor to file. Kept once it was read: the commit is fixed, and what is finished needs no network."""
        kept = self.folder / INDEX
        known = json_object(kept.read_bytes()) if kept.is_file() else None
        if known is None or not isinstance(known.get("weight_map"), dict):
            known = {"weight_map": self._ask_index()}
            write_whole(kept, json.dumps(known).encode())
        listed: dict[str, str] = known["weight_map"]
        for name, file in listed.items():
            if not isinstance(file, str) or not _PLAIN.fullmatch(file):
                raise PackError(
                    Fault.INDEX,
                    "the index names a file by no plain name",
                    where=f"{self.name}: {name}",
                    expected="a safetensors file beside the index",
                    found=ascii(file)[:80],
                )
        return listed

    def _ask_index(self) -> dict[str, str]:
        answer, content = self._ask(INDEX)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return {entry.name: _SINGLE for entry in self._header(_SINGLE).entries}
        self._refuse_status(answer, INDEX)
        listed = (json_object(content) or {}).get("weight_map")
        if not isinstance(listed, dict):
            raise PackError(
                Fault.INDEX,
                "index has no weight map",
                where=f"{self.name}: {INDEX}",
                expected="a JSON object from tensor to file",
                found=ascii(content[:60].decode(errors="replace")),
            )
        return listed

    def _ask(self, file: str) -> tuple[httpx.Response, bytes]:
        """A small file, whole, with the same patience as a range. InputError for one that is not small."""
        for attempt in range(ATTEMPTS):
            try:
                with self._hopeless(file):
                    answer, content = self._small(file)
                if answer.status_code not in _WORTH_ANOTHER_TRY:
                    self._same_commit(answer)
                    return answer, content
                found = f"HTTP {answer.status_code}"
            except httpx.TransportError as error:
                found = f"{type(error).__name__}: {error}"
            time.sleep(self.wait_seconds * 2**attempt)
        raise self._nothing_comes(file, found)

    def _small(self, file: str) -> tuple[httpx.Response, bytes]:
        content = bytearray()
        request = httpx.stream("GET", self._url(file), headers=self.token, timeout=self.timeout, follow_redirects=True)
        with request as answer:
            for chunk in answer.iter_bytes():
                content += chunk
                if len(content) > SMALL:
                    raise InputError(
                        "the hub sends more than such a file may hold",
                        where=f"{self.name}: {file}",
                        expected=f"at most {SMALL:,} bytes",
                        found="more",
                        next_step="use another endpoint, or a local copy of the donor",
                    )
        return answer, bytes(content)

    def _url(self, file: str) -> str:
        return str(_hub().hf_hub_url(self.name, file, revision=self.revision, endpoint=self.endpoint))

    def _header(self, file: str) -> Header:
        first = self._fetch(Range(file, 0, FIRST_BYTES))
        size = int(self.state["files"][file]["size"])
        length = header_length(first.read_bytes()[:FIRST_BYTES], size, Path(file))
        text = self._fetch(Range(file, 0, 8 + length)).read_bytes()[8:]
        return parse_header(text, size, Path(file))

    def _fetch(self, wanted: Range) -> Path:
        path, noted = self.folder / wanted.key, self.state["ranges"].get(wanted.key)
        if noted is not None and path.is_file() and sha256_of(path) == noted:
            return path
        part = path.with_name(f".{path.name}.part")
        # What a process that ended left of a range: nobody noted what it holds, and a power cut leaves zeros.
        part.unlink(missing_ok=True)
        self._complete(wanted, part)
        self.state["ranges"][wanted.key] = sha256_of(part)
        part.replace(path)
        write_whole(self.folder / _STATE, json.dumps(self.state, indent=1).encode())
        return path

    def _complete(self, wanted: Range, part: Path) -> None:
        """Go on from what is there until the range is whole."""
        idle, found = 0, ""
        while (have := part.stat().st_size if part.exists() else 0) < self._length(wanted):
            if idle == ATTEMPTS:
                raise self._nothing_comes(wanted.key, found)
            if idle:
                time.sleep(self.wait_seconds * 2 ** (idle - 1))
            try:
                with self._hopeless(wanted.file):
                    self._stream(wanted, have, part)
                found = "the connection closed early"
            except httpx.TransportError as error:
                found = f"{type(error).__name__}: {error}"
            except _Busy as busy:
                found = str(busy)
            grown = part.exists() and part.stat().st_size > have
            idle = 0 if grown else idle + 1

    def _length(self, wanted: Range) -> int:
        size = self.state["files"].get(wanted.file, {}).get("size", wanted.stop)
        return min(wanted.stop, int(size)) - wanted.start

    def _stream(self, wanted: Range, have: int, part: Path) -> None:
        place = {"Range": f"bytes={wanted.start + have}-{wanted.stop - 1}", "Accept-Encoding": "identity"}
        request = httpx.stream(
            "GET", self._url(wanted.file), headers=self.token | place, timeout=self.timeout, follow_redirects=True
        )
        with request as answer, part.open("ab") as out:
            told = left = self._accept(answer, wanted, wanted.start + have)
            for chunk in answer.iter_raw():
                if len(chunk) > left:
                    out.truncate(have)
                    raise InputError("the server sends more than it tells", where=wanted.key, expected=f"{told} bytes")
                out.write(chunk)
                left -= len(chunk)
            if left:  # and the connection was not lost: then these are not the bytes of that range
                out.truncate(have)
                raise _Busy(f"a whole body of {told - left} bytes for a range of {told}")

    def _accept(self, answer: httpx.Response, wanted: Range, start: int) -> int:
        """Bytes of the answer, which is the range that was asked for, as it is, of the file that was asked before."""
        if answer.status_code == httpx.codes.OK:
            raise InputError(
                "the server ignores ranges: the whole file would come",
                where=f"{self.name}: {wanted.file}",
                expected="HTTP 206",
                found="HTTP 200",
                next_step="use another endpoint, or a local copy of the donor",
            )
        self._refuse_status(answer, wanted.file)
        self._same_commit(answer)
        told = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", answer.headers.get("content-range", ""))
        if told is None or int(told[1]) != start or int(told[2]) >= wanted.stop:
            raise InputError(
                "the server answers with another range",
                where=wanted.key,
                expected=f"bytes {start}-{wanted.stop - 1}",
                found=answer.headers.get("content-range", "none"),
            )
        length = int(told[2]) + 1 - start
        form = {name: answer.headers.get(name) for name in ("content-encoding", "content-length")}
        if (form["content-encoding"] or "identity").strip().lower() != "identity" or (
            form["content-length"] not in (None, str(length))
        ):
            raise InputError(
                "the server's body is not the range itself",
                where=wanted.key,
                expected=f"{length} bytes, not encoded",
                found=", ".join(f"{name}: {value}" for name, value in form.items() if value is not None),
                next_step="find the proxy that changes answers; or use another endpoint, or a local copy of the donor",
            )
        if not (tag := answer.headers.get("etag") or answer.headers.get("last-modified")):
            raise InputError(
                "the server does not say which version of the file it answers with",
                where=f"{self.name}: {wanted.file}",
                expected="an entity tag or a time of change",
                found="neither: a file that changes meanwhile would come as a mixture",
                next_step="use another endpoint, or a local copy of the donor",
            )
        now = {"tag": tag, "size": int(told[3])}
        before = self.state["files"].setdefault(wanted.file, now)
        if before != now:
            raise InputError(
                "the donor's file changed while it was being read",
                where=f"{self.name}: {wanted.file}",
                expected=f"entity tag {before['tag']}, {before['size']} bytes",
                found=f"entity tag {now['tag']}, {now['size']} bytes",
                next_step="find out why a fixed revision changes; then start again in an empty folder",
            )
        return length

    def _refuse_status(self, answer: httpx.Response, file: str) -> None:
        if answer.status_code in _WORTH_ANOTHER_TRY:
            raise _Busy(f"HTTP {answer.status_code}")
        if not answer.is_success:
            raise InputError(
                "the donor's file cannot be had",
                where=f"{self.name}@{self.revision}: {file}",
                expected="HTTP 206",
                found=f"HTTP {answer.status_code}",
                next_step="check repository, revision and your token",
            )

    def _same_commit(self, answer: httpx.Response) -> None:
        for step in (*answer.history, answer):
            found = step.headers.get("x-repo-commit", self.revision)
            if found != self.revision:
                raise InputError(
                    "the hub answers for another commit", where=self.name, expected=self.revision, found=found
                )

    @contextmanager
    def _hopeless(self, file: str) -> Iterator[None]:
        """InputError for what no further try mends: redirects in a circle, no address, what cannot be decoded."""
        try:
            yield
        except (httpx.TooManyRedirects, httpx.DecodingError, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise InputError(
                "the hub's answer leads to nothing",
                where=f"{self.name}: {file}",
                expected="the file, at an address that begins with http:// or https://",
                found=f"{type(error).__name__}: {error}",
                next_step="check HF_ENDPOINT, or use another endpoint or a local copy of the donor",
            ) from error

    def _nothing_comes(self, what: str, found: str) -> StateError:
        return StateError(
            "the hub does not answer any more",
            where=f"{self.name}: {what}",
            expected=f"bytes within {ATTEMPTS} requests",
            found=found,
            next_step="try again later: what came is kept",
        )


class _Busy(Exception):
    """The server asks for patience."""


def ranges(entries: Iterable[Entry]) -> list[Range]:
    """The entries' bytes in as few requests as :data:`BLOCK` allows; an entry is never split."""
    found: list[Range] = []
    for entry in sorted(entries, key=lambda entry: (entry.file.name, entry.start)):
        last = found[-1] if found else None
        if last and (last.file, last.stop) == (entry.file.name, entry.start) and entry.stop - last.start <= BLOCK:
            found[-1] = Range(last.file, last.start, entry.stop)
        else:
            found.append(Range(entry.file.name, entry.start, entry.stop))
    return found


def token() -> dict[str, str]:
    """What the user's own hub settings say about who asks."""
    return dict(_hub("huggingface_hub.utils").build_hf_headers())


def _hub(module: str = "huggingface_hub") -> ModuleType:
    """A module of the hub's own library, which comes with the engine: addresses and tokens are its business."""
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(
            "a donor in a repository needs huggingface_hub",
            where="donor",
            found=str(error),
            next_step="`scripts/setup engine` installs it; a local copy of the donor needs nothing",
        ) from error
