"""Codes and scales that cannot be, and weights that no reader of a pack looks for; their honest neighbours pass."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from carve_kernels.exl3 import pack_format, quantise
from carve_kernels.exl3.codebook import Codebook
from safetensors.numpy import load_file, save_file

from recipe.headers import Fault, read_header
from recipe.mini import random_pack
from recipe.pack import inspect

SHARD = "model-00003-of-00003.safetensors"
EXPERT = "model.layers.1.mlp.experts.0.up_proj"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_pack.generate(tmp_path_factory.mktemp("packs") / "pack", experts=2, topk=1)


@pytest.fixture
def pack(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "pack"))


def _zeros(pack: Path, start: Callable[[int], int], stop: Callable[[int], int]) -> None:
    """Written zeros over a part of the shard's data: what `cp --sparse=never` makes of a hole."""
    file = pack / SHARD
    data = read_header(file).entries[0].start
    content, size = bytearray(file.read_bytes()), file.stat().st_size - data
    content[data + start(size) : data + stop(size)] = bytes(stop(size) - start(size))
    file.write_bytes(content)


def _change(pack: Path, name: str, change: Callable[[np.ndarray], object]) -> None:
    tensors = load_file(pack / SHARD)
    change(tensors[name])
    save_file(tensors, pack / SHARD)


BROKEN: dict[str, tuple[Callable[[Path], object], Fault]] = {
    "the second half": (lambda p: _zeros(p, lambda size: size // 2, lambda size: size), Fault.UNWRITTEN),
    "a piece in the middle": (
        lambda p: _zeros(p, lambda size: size * 2 // 5, lambda size: size * 3 // 5),
        Fault.UNWRITTEN,
    ),
    "one trellis": (lambda p: _change(p, f"{EXPERT}.trellis", lambda t: t.fill(0)), Fault.UNWRITTEN),
    "the end of one trellis": (lambda p: _change(p, f"{EXPERT}.trellis", lambda t: t[-1].fill(0)), Fault.UNWRITTEN),
    "svh of zeros": (lambda p: _change(p, f"{EXPERT}.svh", lambda t: t.fill(0)), Fault.UNWRITTEN),
    "suh of zeros": (lambda p: _change(p, f"{EXPERT}.suh", lambda t: t.fill(0)), Fault.UNWRITTEN),
    "one NaN": (lambda p: _change(p, f"{EXPERT}.svh", lambda t: t[3:4].fill(np.nan)), Fault.MODULE),
    "one infinity": (lambda p: _change(p, f"{EXPERT}.suh", lambda t: t[-1:].fill(-np.inf)), Fault.MODULE),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_no_quantiser_writes_is_a_fault(case: str, pack: Path) -> None:
    damage, fault = BROKEN[case]
    damage(pack)
    faults = inspect(pack)[1]
    assert faults and {one.fault for one in faults} == {fault}


def test_some_scales_of_zero_are_a_dead_channel(pack: Path) -> None:
    _change(pack, f"{EXPERT}.svh", lambda scales: scales[:256].fill(0))
    assert inspect(pack)[1] == []


@pytest.mark.parametrize("book", list(Codebook))
def test_a_coded_matrix_of_zeros_is_no_fault(book: Codebook, tmp_path: Path) -> None:
    """Its scales are zero and its codes are not: a dead expert is coded as any other."""
    pack = random_pack.generate(tmp_path / "pack", experts=2, topk=1, book=book, expert_bits=((2, 2),))
    tensors = load_file(pack / SHARD)
    coded = quantise.quantise_linear(np.zeros((256, 512), np.float32), 2, book, 0).linear
    tensors |= pack_format.to_tensors(EXPERT, coded)
    save_file(tensors, pack / SHARD)
    assert not tensors[f"{EXPERT}.svh"].any() and tensors[f"{EXPERT}.trellis"].any()
    assert inspect(pack)[1] == []


STRAY: dict[str, tuple[str, Fault]] = {
    "in a folder": ("mtp/model.safetensors", Fault.AMBIGUOUS),
    "in capitals": ("model-00003-of-00003.SAFETENSORS", Fault.AMBIGUOUS),
    "a copy from before": (f"{SHARD}.bak", Fault.AMBIGUOUS),
    "not finished": (f"{SHARD}.incomplete", Fault.TRUNCATED),
    "not finished, far below": (".cache/huggingface/download/abc.incomplete", Fault.TRUNCATED),
}


@pytest.mark.parametrize("case", STRAY)
def test_weights_that_no_reader_looks_for_are_a_fault(case: str, pack: Path) -> None:
    name, fault = STRAY[case]
    (pack / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(pack / SHARD, pack / name)
    assert [(one.fault, one.where) for one in inspect(pack)[1]] == [(fault, str(pack / name))]


@pytest.mark.parametrize(
    ("name", "content"),
    [("pytorch_model.bin", b"PK\x03\x04rest"), ("old/consolidated.00.pth", b"\x80\x02}q"), ("a.gguf", b"GGUF\x03")],
)
def test_weights_of_another_format_are_a_fault(name: str, content: bytes, pack: Path) -> None:
    (pack / name).parent.mkdir(exist_ok=True)
    (pack / name).write_bytes(content)
    assert [(one.fault, one.where) for one in inspect(pack)[1]] == [(Fault.AMBIGUOUS, str(pack / name))]


def test_what_only_looks_like_weights_is_none(pack: Path) -> None:
    for name, content in {
        "training_args.bin": b"PK\x03\x04rest",
        ".cache/huggingface/download/model.safetensors.metadata": b"abc\n",
        ".cache/huggingface/download/model.safetensors.lock": b"",
        "spiece.model": b"\n\x0e\n",
        "notes on model.safetensors.txt": b"{}",
        "model.bin.md": b"PK\x03\x04",
        "empty": b"",
        "eight": bytes(8),
    }.items():
        (pack / name).parent.mkdir(parents=True, exist_ok=True)
        (pack / name).write_bytes(content)
    assert inspect(pack)[1] == []
