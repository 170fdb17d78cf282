"""Files written from streams: the same bytes whatever the pieces, and nothing under the name before the end."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe import shard_write
from recipe.headers import read_header
from recipe.payload import CHUNK, sha256_of
from recipe.shard_write import Part

_SIZES = st.sampled_from([0, 1, 4095, 4096, 4097, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 77])
_PATTERN = bytes(range(251)) * (2 * CHUNK // 251 + 2)
"""A period that no page and no chunk is a multiple of: a shifted piece shows."""


@settings(max_examples=25, deadline=None)
@given(size=_SIZES, piece=st.sampled_from([1000, 4096, 65_537, CHUNK, 3 * CHUNK]))
def test_any_pieces_give_the_same_file(tmp_path_factory: pytest.TempPathFactory, size: int, piece: int) -> None:
    file, content = tmp_path_factory.mktemp("file") / "out", _PATTERN[:size]
    shard_write.appear(file, lambda put: [put(content[at : at + piece]) for at in range(0, size, piece)])
    assert file.read_bytes() == content
    assert [path.name for path in file.parent.iterdir()] == ["out"]


@pytest.mark.parametrize("refused", ["open", "write"])
def test_a_file_system_that_cannot_write_past_its_cache_is_written_to_as_usual(
    refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_open, real_write = os.open, os.write

    def opened(path: Path, flags: int, mode: int) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real_open(path, flags, mode)

    refusals = iter([OSError(errno.EINVAL, "Invalid argument")])

    def written(file: int, data: memoryview) -> int:
        for error in refusals:
            raise error
        return real_write(file, data)

    monkeypatch.setattr(os, refused, {"open": opened, "write": written}[refused])
    shard_write.appear(tmp_path / "out", lambda put: put(_PATTERN[: CHUNK + 5]))
    assert (tmp_path / "out").read_bytes() == _PATTERN[: CHUNK + 5]


def test_nothing_bears_the_name_before_the_end(tmp_path: Path) -> None:
    def fill(put: object) -> None:
        assert not (tmp_path / "out").exists()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shard_write.appear(tmp_path / "out", fill)
    assert not (tmp_path / "out").exists()


def test_digests_are_of_the_file_and_of_the_parts_asked_for(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.write_bytes(_PATTERN[:4000])
    parts = [Part("a", "F16", (1000,), spool, 0, 2000), Part("b", "F16", (1000,), spool, 2000, 2000)]
    digest, of_parts = shard_write.write(tmp_path / "out.safetensors", parts, {}, {"b"})
    header = read_header(tmp_path / "out.safetensors")
    assert digest == sha256_of(header.file)
    assert of_parts == {"b": shard_write.digest_of(spool, 2000, 2000)}
    assert [entry.name for entry in header.entries] == ["a", "b"]
