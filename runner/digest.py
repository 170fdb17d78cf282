"""Canonical bytes and SHA-256 digests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

_CHUNK = 1 << 20
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical_json(value: object) -> bytes:
    """One fixed serialisation: UTF-8, sorted keys, no spaces, no NaN or infinity (ValueError)."""
    return _ENCODER.encode(value).encode()


def sha256_bytes(data: bytes) -> str:
    """Lower-case hex SHA-256."""
    return hashlib.sha256(data).hexdigest()


def sha256_json(value: object) -> str:
    """Digest of :func:`canonical_json`."""
    return sha256_bytes(canonical_json(value))


def sha256_file(path: Path) -> str:
    """Digest of a file's bytes, streamed."""
    state = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            state.update(chunk)
    return state.hexdigest()


def sha256_package(root: Path) -> str:
    """Digest of the Python and C++ sources below ``root``: what a rank says of a tree that it imported."""
    return sha256_tree(root, [path for path in root.rglob("*") if path.suffix in (".py", ".cpp")])


def sha256_tree(root: Path, files: Iterable[Path]) -> str:
    """Digest of named files under ``root``: sorted ``<sha256>  <posix path>`` lines, hashed."""
    return sha256_listing({file.relative_to(root).as_posix(): sha256_file(file) for file in files})


def sha256_listing(digests: Mapping[str, str]) -> str:
    """The digest that :func:`sha256_tree` gives for files whose own digests are known, by their path under the root."""
    return sha256_bytes("".join(sorted(f"{digest}  {path}\n" for path, digest in digests.items())).encode())
