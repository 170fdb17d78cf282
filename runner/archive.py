"""``evidence.tar.xz``: the committed extract of a run's raw evidence, the same bytes for the same files."""

from __future__ import annotations

import io
import lzma
import re
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from runner.digest import canonical_json, sha256_bytes
from runner.errors import EvidenceError, TrustError
from runner.model.evidence import EVERY_POSITION, Evidence
from runner.model.plan import PlannedWindow

_UNPACKED_LIMIT = 128 << 20
"""Bytes, where the largest archive of a report so far unfolds to 5 MB; what goes on is not unfolded."""
_MEMORY_LIMIT = 128 << 20
"""Bytes that xz may use: its strongest preset, which is ours, needs 65 MiB."""
_SIZE, _OCTAL = slice(124, 135), re.compile(rb"[0-7]{11}")
"""Where a header of the USTAR form has its file's size (POSIX.1-1988), and how it is written."""
_END = 2 * tarfile.BLOCKSIZE
"""Bytes of zero that end an archive, before it is filled up to a whole record."""


@dataclass(frozen=True)
class Archive:
    """What is kept and what is not."""

    data: bytes
    kept: Mapping[str, str]
    """Name → SHA-256 of what the archive holds."""

    @property
    def digest(self) -> str | None:
        """SHA-256 of the archive, or None where nothing is kept."""
        return sha256_bytes(self.data) if self.data else None


def _tar_xz(files: Mapping[str, bytes]) -> bytes:
    return lzma.compress(_tar(files), preset=9 | lzma.PRESET_EXTREME) if files else b""


def _tar(files: Mapping[str, bytes]) -> bytes:
    """Sorted names, no times, no owners."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(files):
            tar.addfile(_entry(name, len(files[name])), io.BytesIO(files[name]))
    return buffer.getvalue()


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = size, 0o644, 0
    return entry


def extracts(files: Mapping[str, bytes], windows: Sequence[PlannedWindow]) -> dict[str, bytes]:
    """Of each evidence file what its instrument reads. Raises EvidenceError for a file that is no evidence record."""
    from serve.instruments.base import inputs  # noqa: PLC0415  # verification without --deep needs no instrument
    from serve.instruments.drawn import every_position  # noqa: PLC0415
    from serve.instruments.extract import extract  # noqa: PLC0415

    whole = {name: _record(name, data) for name, data in files.items()}
    small = {name: extract(evidence) for name, evidence in whole.items()}
    for window in windows:
        names = [f"evidence/{each}.json" for each in inputs(window)]
        if window.arguments.get(EVERY_POSITION) is True and whole.keys() >= set(names):
            figures = every_position([whole[name] for name in names], window)
            small[names[0]] = small[names[0]].model_copy(update={"divergences": figures})
    return {name: canonical_json(evidence.model_dump(mode="json")) for name, evidence in small.items()}


def _record(name: str, data: bytes) -> Evidence:
    try:
        return Evidence.model_validate_json(data, strict=True)
    except ValidationError as error:
        raise EvidenceError("an evidence file is no evidence record", where=name, found=str(error)) from error


def read_evidence(root: Path, digests: Mapping[str, str]) -> dict[str, bytes]:
    """The run's evidence files. Raises EvidenceError where one is missing or not what was measured."""
    files: dict[str, bytes] = {}
    for name, digest in digests.items():
        try:
            files[name] = (root / name).read_bytes()
        except OSError as error:
            raise EvidenceError(
                "an evidence file is missing", where=str(root / name), found=str(error.strerror)
            ) from error
        if sha256_bytes(files[name]) != digest:
            raise EvidenceError(
                "an evidence file has changed since it was measured",
                where=str(root / name),
                expected=digest,
                found=sha256_bytes(files[name]),
            )
    return files


def build(files: Mapping[str, bytes], limit: int) -> Archive:
    """As many whole files as fit into ``limit`` bytes of archive; the largest are left out first."""
    by_size = sorted(files, key=lambda name: (len(files[name]), name))
    best, low, high = _tar_xz(files), len(files), len(files)
    if len(best) > limit:
        best, low = b"", 0
    while low < high:  # an archive of more files is a larger one: search for the most that fit
        count = (low + high + 1) // 2
        data = _tar_xz({name: files[name] for name in by_size[:count]})
        if len(data) <= limit:
            best, low = data, count
        else:
            high = count - 1
    return Archive(best, {name: sha256_bytes(files[name]) for name in sorted(by_size[:low])})


def read(data: bytes, expected: Mapping[str, str], where: str) -> dict[str, bytes]:
    """The kept files.

    ``expected`` names exactly the files that must be there and their digests. Raises TrustError for anything else, also
    for an archive in another form than :func:`build` writes: another reader might find other files in it.
    """
    files = _entries(_unfolded(data, where), sorted(expected), where)
    for name, digest in expected.items():
        if (found := sha256_bytes(files[name])) != digest:
            raise TrustError(
                "evidence is not what the report says", where=f"{where}, {name}", expected=digest, found=found
            )
    return files


def _unfolded(data: bytes, where: str) -> bytes:
    """One xz stream and nothing behind it, within the limits."""
    try:
        stream = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_MEMORY_LIMIT)
        tar = stream.decompress(data, max_length=_UNPACKED_LIMIT)
    except lzma.LZMAError as error:
        raise TrustError("the evidence archive cannot be read", where=where, found=str(error)) from error
    if not stream.eof or stream.unused_data:
        raise TrustError(
            "the evidence archive cannot be read",
            where=where,
            expected=f"one whole xz stream of at most {_UNPACKED_LIMIT} bytes",
            found="bytes behind it" if stream.eof else "it goes on, or was cut short",
        )
    return tar


def _entries(tar: bytes, names: Sequence[str], where: str) -> dict[str, bytes]:
    """The files of ``names``, where the archive is what :func:`_tar` writes of them, to the byte.

    Nothing of it is interpreted but each file's size, and that only to see whether its header is ours again.
    """
    files: dict[str, bytes] = {}
    at = 0
    for name in names:
        header = tar[at : at + tarfile.BLOCKSIZE]
        digits = header[_SIZE]
        size = int(digits, 8) if _OCTAL.fullmatch(digits) else 0
        start, end = at + tarfile.BLOCKSIZE, at + tarfile.BLOCKSIZE + size
        at = end + -size % tarfile.BLOCKSIZE
        if not header or header != _header(name, size) or at > len(tar) or any(tar[end:at]):
            found = header[:100].rstrip(b"\0").decode(errors="replace") or "no more"
            raise TrustError(
                "something in the archive that does not belong there", where=where, expected=name, found=found
            )
        files[name] = tar[start:end]
    if tar[at:] != bytes(-(at + _END) % tarfile.RECORDSIZE + _END):
        raise TrustError(
            "something in the archive that does not belong there",
            where=where,
            expected="nothing behind its last file",
            found=f"{len(tar) - at} bytes",
        )
    return files


def _header(name: str, size: int) -> bytes:
    """The 512 bytes before a file, as :func:`_tar` writes them: only size and checksum differ between two of a name.

    Nothing for a name that no header can hold.
    """
    empty, total = _empty_header(name)
    if not empty:
        return b""
    digits = b"%011o" % size
    return b"%b%b%b%06o%b" % (empty[:124], digits, empty[135:148], total + sum(digits) - sum(b"0" * 11), empty[154:])


@lru_cache(maxsize=4096)
def _empty_header(name: str) -> tuple[bytes, int]:
    """The header of an empty file and its checksum."""
    try:
        empty = _entry(name, 0).tobuf(tarfile.USTAR_FORMAT)
    except ValueError:  # too long
        return b"", 0
    return empty, int(empty[148:154], 8)


__all__ = ["Archive", "build", "extracts", "read", "read_evidence"]
