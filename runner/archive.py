"""``evidence.tar.xz``: the committed extract of a run's raw evidence, the same bytes for the same files."""

from __future__ import annotations

import io
import lzma
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(files[name]), 0o644, 0
            tar.addfile(entry, io.BytesIO(files[name]))
    return buffer.getvalue()


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
    tar = _unfolded(data, where)
    files = _entries(tar, expected, where)
    for name, digest in expected.items():
        found = sha256_bytes(files[name]) if name in files else "nothing"
        if found != digest:
            raise TrustError(
                "evidence is not what the report says", where=f"{where}, {name}", expected=digest, found=found
            )
    if _tar(files) != tar:
        raise TrustError("the evidence archive is not in its one form", where=where, expected="plain sorted files")
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


def _entries(tar: bytes, expected: Mapping[str, str], where: str) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    room = len(tar)
    try:
        with tarfile.open(fileobj=io.BytesIO(tar), mode="r:") as opened:
            for entry in opened:
                room -= entry.size
                stream = opened.extractfile(entry) if entry.isreg() and entry.size >= 0 and room >= 0 else None
                if stream is None or entry.name not in expected or entry.name in files:
                    raise TrustError(
                        "something in the archive that does not belong there", where=where, found=entry.name
                    )
                files[entry.name] = stream.read()
    except tarfile.TarError as error:
        raise TrustError("the evidence archive cannot be read", where=where, found=str(error)) from error
    return files


__all__ = ["Archive", "build", "extracts", "read", "read_evidence"]
