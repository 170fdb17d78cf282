"""The evidence archive has one form, and what is in it is what every reader finds in it."""

from __future__ import annotations

import io
import lzma
import tarfile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner import archive
from runner.archive import build, read
from runner.digest import sha256_bytes
from runner.errors import TrustError

FILES = {"evidence/a.json": b"{}", "evidence/disturbed/a.1.json": b"[]"}
BUILT = build(FILES, 10_000)
TAR = lzma.decompress(BUILT.data)


def entry(name: str, data: bytes = b"", form: Any = tarfile.USTAR_FORMAT, **fields: Any) -> bytes:
    """One entry of an archive."""
    header = tarfile.TarInfo(name)
    header.size, header.mode = len(data), 0o644
    for field, value in fields.items():
        setattr(header, field, value)
    return header.tobuf(form) + data + bytes(-len(data) % 512)


def sized(size: int) -> bytes:
    """An entry whose header says another size than it has."""
    raw = bytearray(entry("evidence/a.json"))
    raw[124:136] = (size & (2**96 - 1) | 1 << 95).to_bytes(12, "big")
    return checked(raw)


def sparse(size: int) -> bytes:
    """A file of nothing but a hole, in the old GNU form."""
    raw = bytearray(entry("evidence/a.json", form=tarfile.GNU_FORMAT, type=tarfile.GNUTYPE_SPARSE))
    raw[386:410] = b"00000000000\0" * 2
    raw[483:495] = f"{size:011o}\0".encode()
    return checked(raw)


def checked(raw: bytearray) -> bytes:
    raw[148:156] = b" " * 8
    raw[148:156] = f"{sum(raw):06o}\0 ".encode()
    return bytes(raw)


def test_what_is_built_is_read() -> None:
    assert read(BUILT.data, BUILT.kept, "here") == FILES


NAMES = st.from_regex(r"\Aevidence/(disturbed/)?[a-z0-9.-]{1,60}\.json\Z")


@given(st.dictionaries(NAMES, st.binary(max_size=1500), max_size=5))
def test_whatever_is_built_is_read(files: dict[str, bytes]) -> None:
    made = build(files, 1 << 20)
    if files:
        assert read(made.data, made.kept, "here") == files


@given(st.integers(0, len(TAR) - 1), st.integers(1, 255))
@settings(max_examples=300)
def test_every_byte_of_an_archive_has_one_value(at: int, other: int) -> None:
    """Also those that a reader of archives skips."""
    changed = bytearray(TAR)
    changed[at] ^= other
    with pytest.raises(TrustError, match=r"does not belong there|not what the report says"):
        read(lzma.compress(bytes(changed), preset=0), BUILT.kept, "here")


PLAIN = entry("evidence/a.json", b"{}") + entry("evidence/disturbed/a.1.json", b"[]")
END = bytes(1024)


@pytest.mark.parametrize(
    "tar",
    [
        PLAIN + PLAIN + END,
        PLAIN + entry("evidence/b.json") + END,
        entry("evidence/a.json", type=tarfile.SYMTYPE, linkname="/etc/passwd") + END,
        entry("evidence/a.json", type=tarfile.LNKTYPE, linkname="/etc/passwd") + END,
        entry("evidence/../evidence/a.json", b"{}") + END,
        entry("evidence/a\u0308.json", b"{}", tarfile.PAX_FORMAT) + END,
        entry("x", b"{}", tarfile.PAX_FORMAT, pax_headers={"path": "evidence/a.json"}) + PLAIN[1024:] + END,
        entry("evidence/a.json", b"{}", mtime=1) + PLAIN[1024:] + END,
        entry("evidence/a.json", b"{}", uname="somebody") + PLAIN[1024:] + END,
        PLAIN[1024:] + PLAIN[:1024] + END,
        PLAIN + END,
        TAR + b"more",
        sized(-(10**15)) + END,
        sized(2**60) + END,
        sparse(2**33 - 1) + END,
        sparse(2**20) + END,
        b"",
    ],
    ids=[
        "twice",
        "one more",
        "a link",
        "a hard link",
        "two dots",
        "a name in another script",
        "a name in a header of its own",
        "a time",
        "an owner",
        "another order",
        "padded otherwise",
        "bytes behind it",
        "less than nothing",
        "more than there is",
        "a hole of 8 GiB",
        "a hole",
        "nothing",
    ],
)
def test_an_archive_of_another_form_is_refused(tar: bytes) -> None:
    with pytest.raises(TrustError, match=r"archive|not what the report says"):
        read(lzma.compress(tar), BUILT.kept, "here")


@pytest.mark.parametrize(
    "data",
    [
        BUILT.data + lzma.compress(b"another stream"),
        BUILT.data + b"garbage",
        BUILT.data[:-1],
        lzma.compress(TAR, format=lzma.FORMAT_ALONE),
        b"no archive",
    ],
)
def test_it_is_one_xz_stream(data: bytes) -> None:
    with pytest.raises(TrustError, match="the evidence archive cannot be read"):
        read(data, BUILT.kept, "here")


def test_what_unfolds_without_end_is_not_unfolded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "_UNPACKED_LIMIT", 1 << 20)
    header = entry("x", type=tarfile.XHDTYPE, size=1 << 24)
    bomb = lzma.compress(header + bytes(1 << 24))
    assert len(bomb) < 5_000
    with pytest.raises(TrustError, match="cannot be read") as caught:
        read(bomb, BUILT.kept, "here")
    assert caught.value.found == "it goes on, or was cut short"


def test_a_dictionary_larger_than_ours_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "_MEMORY_LIMIT", 1 << 20)
    with pytest.raises(TrustError, match="cannot be read") as caught:
        read(BUILT.data, BUILT.kept, "here")
    assert "emory usage limit" in caught.value.found


def test_a_name_that_no_archive_can_hold_is_in_none() -> None:
    for tar in (TAR, b"", END):
        with pytest.raises(TrustError, match="does not belong there"):
            read(lzma.compress(tar), {f"evidence/disturbed/{'a' * 300}.1.json": "0" * 64}, "here")


def test_other_bytes_under_a_right_name_are_refused() -> None:
    other = build({**FILES, "evidence/a.json": b"{ }"}, 10_000)
    assert sha256_bytes(b"{ }") == other.kept["evidence/a.json"]
    with pytest.raises(TrustError, match="evidence is not what the report says"):
        read(other.data, BUILT.kept, "here")
    with tarfile.open(fileobj=io.BytesIO(TAR)) as tar:
        assert tar.getnames() == sorted(FILES)
