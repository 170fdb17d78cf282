"""The part of a report that verdicts follow from, packed into it and taken out again."""

from __future__ import annotations

import base64
import binascii
import lzma

from pydantic import JsonValue, ValidationError

from runner.attest.canonical import first_fault, parse_canonical
from runner.digest import canonical_json, sha256_bytes
from runner.errors import TrustError
from runner.model.report import Measured, Packed

UNPACKED_LIMIT = 32 << 20
"""Bytes; a packed record that unfolds to more is refused before it does."""


def pack(measured: Measured) -> Packed:
    """Canonical JSON, xz, base64."""
    return pack_json(measured.model_dump(mode="json"))


def pack_json(value: dict[str, JsonValue]) -> Packed:
    """As :func:`pack`, of a record that is JSON already."""
    data = canonical_json(value)
    packed = lzma.compress(data, preset=6 | lzma.PRESET_EXTREME)
    return Packed(digest=sha256_bytes(data), size=len(data), data=base64.b64encode(packed).decode())


def unpack(packed: Packed, where: str) -> tuple[Measured, dict[str, JsonValue]]:
    """The record, and the very JSON that was signed (the plan's digest is taken of that).

    Raises TrustError where it does not unfold to what its digest and size say.
    """
    if not 0 < packed.size <= UNPACKED_LIMIT:
        raise TrustError(
            "the packed record is too large", where=where, expected=f"≤ {UNPACKED_LIMIT} bytes", found=str(packed.size)
        )
    try:
        stream = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=256 << 20)
        data = stream.decompress(base64.b64decode(packed.data, validate=True), max_length=packed.size + 1)
    except (lzma.LZMAError, binascii.Error) as error:
        raise TrustError("the packed record cannot be unfolded", where=where, found=str(error)) from error
    if len(data) != packed.size or not stream.eof or stream.unused_data or sha256_bytes(data) != packed.digest:
        raise TrustError(
            "the packed record is not what its digest says",
            where=where,
            expected=f"{packed.size} bytes, sha256 {packed.digest}",
            found=f"{len(data)} bytes, sha256 {sha256_bytes(data)}",
        )
    value = parse_canonical(data, f"{where}, record")
    try:
        measured = Measured.model_validate_json(data, strict=True)
    except ValidationError as error:
        raise TrustError(
            "the record has not the fields it must have", where=f"{where}, record", found=first_fault(error)
        ) from error
    assert isinstance(value, dict)  # the validator has just accepted an object
    return measured, value


__all__ = ["UNPACKED_LIMIT", "pack", "pack_json", "unpack"]
