"""The kernel's own decoder, bit by bit: what every weight of random tiles is multiplied as."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import torch

from carve_kernels.desk.gpu import reference
from carve_kernels.exl3.codebook import Codebook

QUADS = 64
"""Of four tiles each: 65,536 weights of every K and codebook."""


class Decoder:
    """``carve_cuda_decode`` of one built variant."""

    def __init__(self, path: Path, *, paired: bool) -> None:
        """``paired``: what the variant says that it multiplies."""
        self._native, self.paired = ctypes.CDLL(str(path)), paired

    def operands(self, trellis: torch.Tensor, book: Codebook, *, of_pairs: bool) -> tuple[int, torch.Tensor]:
        """(status, int32 ``[4, 256]``) of four tiles ``[4, 16 K]``, on the device's first stream."""
        out = torch.zeros(4, 256, dtype=torch.int32, device=trellis.device)
        addresses = ctypes.c_void_p(trellis.data_ptr()), ctypes.c_void_p(out.data_ptr())
        bits = trellis.shape[-1] // 16
        status = self._native.carve_cuda_decode(addresses[0], bits, book.abi, int(of_pairs), addresses[1], None)
        return int(status), out

    def questions(self, source: torch.Generator, bits: range, books: tuple[Codebook, ...]) -> Iterator[tuple[str, str]]:
        """Name and what was found, which is empty where every bit is as it should be."""
        if not hasattr(self._native, "carve_cuda_decode"):
            yield "decode", "the library has no carve_cuda_decode"
            return
        for book in books:
            for each in bits:
                yield f"decode-{book.value}-k{each}", self._differences(source, each, book)
        tiles = _tiles(source, 2)[0]
        refused, _ = self.operands(tiles, Codebook.MCG, of_pairs=not self.paired)
        yield "decode-of-another-form", "" if refused else "not refused"

    def _differences(self, source: torch.Generator, bits: int, book: Codebook) -> str:
        tiles = _tiles(source, bits)
        expected = reference.operands(tiles, book, of_pairs=self.paired)
        made = [self.operands(quad, book, of_pairs=self.paired) for quad in tiles]
        if any(status for status, _ in made):
            return f"status {max(status for status, _ in made)}"
        found = torch.stack([out for _, out in made]).to(torch.int64) & 0xFFFFFFFF
        count = int((found != expected).sum())
        return f"{count} of {found.numel()} differ" if count else ""


def _tiles(source: torch.Generator, bits: int) -> torch.Tensor:
    shape = (QUADS, 4, 16 * bits)
    words = torch.randint(-32768, 32768, shape, generator=source, device=source.device, dtype=torch.int32)
    return words.to(torch.int16)
