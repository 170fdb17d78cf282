"""Golden vectors: what exllamav3 1.4.5 itself decodes on a GPU, for every K, codebook and kind of bit pattern.

Run on a host with a GPU, torch and exllamav3 1.4.5 as ``python -m carve_kernels.exl3.golden OUT.npz [RAW.npz]``. Inputs
are not stored: this module derives them by SHAKE-256 from a label, on the GPU host and in the tests alike. OUT holds
what the tests compare (outputs, or their SHA-256 where they are large); RAW, which is not committed, holds the large
outputs themselves and single-bit probes, from which a misunderstood bit order can be found without a GPU.

Every section runs even when another fails; failures are printed with their traceback and end the script with exit code
1 after the file is written. Last, the outputs are compared with this package's reference and the findings printed.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carve_kernels.exl3 import codebook, linear, trellis
from carve_kernels.exl3.codebook import Codebook

Words = NDArray[np.uint16]
Arrays = dict[str, NDArray[Any]]

TILES_WIDE = 8
"""The decoder of exllamav3 takes matrices of at least 128 outputs: every case is laid out 8 tiles wide."""

LINEAR_ROWS, LINEAR_IN, LINEAR_OUT = 2, 256, 384
TABLE_STRIDE = 8
QUANTISE_TILES = 8


def material(label: str, count: int) -> Words:
    """``count`` uint16 drawn from SHAKE-256 of a label."""
    return np.frombuffer(hashlib.shake_256(label.encode()).digest(2 * count), dtype="<u2").astype(np.uint16)


def normal_like(label: str, *shape: int) -> NDArray[np.float32]:
    """Sums of twelve uniform draws less six: mean 0, variance 1, no library's generator involved."""
    uniform = material(label, 12 * int(np.prod(shape))).reshape(*shape, 12).astype(np.float64) / 65536
    values: NDArray[np.float32] = (uniform.sum(axis=-1) - 6).astype(np.float32)
    return values


def patterns(bits: int) -> Words:
    """The adversarial tiles of one K, ``[3, 8, 16 * K]``, most of them also readable by eye."""
    words = 16 * bits
    tiles = [np.full(words, value, dtype=np.uint16) for value in (0x0000, 0xFFFF, 0xAAAA, 0x5555, 0x8000, 0x0001)]
    for places in ((0,), (words - 1,), (0, 1), (words - 2, words - 1)):  # the places where the tail is bitten
        wrap = np.zeros(words, dtype=np.uint16)
        wrap[list(places)] = 0xFFFF
        tiles.append(wrap)
    tiles.append(np.arange(words, dtype=np.uint16))
    tiles.append((np.arange(words) * 0x0123 + 0x4567).astype(np.uint16))
    for bit in (0, 1, 7, 8, 15, 16, 31):  # a walking bit in the first words
        walk = np.zeros(words, dtype=np.uint16)
        walk[bit // 16] = 1 << bit % 16
        tiles.append(walk)
    while len(tiles) < 3 * TILES_WIDE:
        tiles.append(material(f"pattern/{bits}/{len(tiles)}", words))
    return np.stack(tiles).reshape(3, TILES_WIDE, words)


def walking_bit(bits: int) -> Words:
    """One tile for every bit of a tile, that bit alone set: ``[32 * K, 8, 16 * K]``."""
    count, words = 256 * bits, 16 * bits
    tiles = np.zeros((count, words), dtype=np.uint16)
    bit = np.arange(count)
    tiles[bit, bit // 16] = 1 << (bit % 16)
    return tiles.reshape(count // TILES_WIDE, TILES_WIDE, words)


def random_tiles(bits: int) -> Words:
    """512 tiles of random bits: ``[64, 8, 16 * K]``."""
    return material(f"random/{bits}", 512 * 16 * bits).reshape(64, TILES_WIDE, 16 * bits)


def linear_case(bits: int, book: Codebook) -> tuple[NDArray[np.float16], linear.Linear]:
    """A small layer with random trellis, signs and scales, and its input (halves)."""
    label = f"linear/{bits}/{book.value}"
    coded = material(f"{label}/trellis", LINEAR_IN * LINEAR_OUT * bits // 16)
    x = normal_like(f"{label}/x", LINEAR_ROWS, LINEAR_IN).astype(np.float16)
    suh = (_signs(f"{label}/suh", LINEAR_IN) * (0.5 + material(f"{label}/su", LINEAR_IN) / 65536) * 0.05).astype(
        np.float16
    )
    svh = (_signs(f"{label}/svh", LINEAR_OUT) * (0.5 + material(f"{label}/sv", LINEAR_OUT) / 65536)).astype(np.float16)
    return x, linear.Linear(coded.reshape(LINEAR_IN // 16, LINEAR_OUT // 16, 16 * bits), suh, svh, book)


def quantise_case(book: Codebook) -> NDArray[np.float32]:
    """Eight tiles of normal weights at the codebook's own scale, in stream order: ``[8, 256]``."""
    return normal_like("quantise", QUANTISE_TILES, 256) * np.float32(codebook.table(book).astype(np.float64).std())


def _signs(label: str, count: int) -> NDArray[np.float64]:
    return np.where(material(label, count) & 1, 1.0, -1.0)


def cases() -> Iterator[tuple[int, Codebook]]:
    """Every K with every codebook."""
    return ((bits, book) for bits in trellis.BITS for book in Codebook)


def digest(array: NDArray[Any]) -> NDArray[np.uint8]:
    """SHA-256 of an array's little-endian bytes, as 32 bytes."""
    return np.frombuffer(hashlib.sha256(np.ascontiguousarray(array).tobytes()).digest(), dtype=np.uint8)


class Device:
    """exllamav3's own operators behind numpy arrays."""

    def __init__(self) -> None:
        import torch  # noqa: PLC0415 - only on the GPU host
        from exllamav3.ext import exllamav3_ext  # noqa: PLC0415
        from exllamav3.version import __version__  # noqa: PLC0415

        self.torch, self.ext, self.version = torch, exllamav3_ext, __version__

    def facts(self) -> dict[str, str]:
        """What answered."""
        return {
            "exllamav3": self.version,
            "torch": self.torch.__version__,
            "cuda": str(self.torch.version.cuda),
            "device": self.torch.cuda.get_device_name(),
        }

    def put(self, array: NDArray[Any]) -> Any:
        signed = array.view(np.int16) if array.dtype == np.uint16 else array
        return self.torch.from_numpy(np.array(signed)).cuda()

    def get(self, tensor: Any) -> NDArray[Any]:
        self.torch.cuda.synchronize()
        array: NDArray[Any] = tensor.cpu().numpy()
        return array.view(np.uint16) if array.dtype == np.int16 else array

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        return self.torch.zeros(shape, dtype=getattr(self.torch, dtype), device="cuda")

    def reconstruct(self, coded: Words, book: Codebook) -> NDArray[np.float16]:
        out = self.empty((coded.shape[0] * 16, coded.shape[1] * 16), "half")
        self.ext.reconstruct(out, self.put(coded), coded.shape[2] // 16, *_flags(book))
        return self.get(out)

    def table(self, book: Codebook) -> NDArray[np.float16]:
        out = self.empty((256, 256), "half")
        self.ext.decode(self.put(np.arange(65536).astype(np.uint16).reshape(256, 256)), out, *_flags(book))
        return self.get(out).reshape(-1)

    def unpack(self, coded: Words) -> Words:
        out = self.empty((*coded.shape[:2], 256), "short")
        self.ext.unpack_trellis(out, self.put(coded), coded.shape[2] // 16)
        return self.get(out)

    def pack(self, states: Words, bits: int) -> Words:
        out = self.empty((*states.shape[:2], 16 * bits), "short")
        self.ext.pack_trellis(out, self.put(states), bits)
        return self.get(out)

    def hadamard(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        out = self.empty(x.shape, "float")
        self.ext.had_r_128(self.put(x), out, None, None, 1.0)
        return self.get(out)

    def forward(self, x: NDArray[np.float16], layer: linear.Linear) -> NDArray[np.float32]:
        out, rotated = self.empty((len(x), layer.out_features), "float"), self.empty(x.shape, "half")
        suh, svh = self.put(layer.suh), self.put(layer.svh)
        self.ext.exl3_gemm(self.put(x), self.put(layer.trellis), out, suh, rotated, svh, -1, *_flags(layer.codebook), 0)
        return self.get(out)

    def quantise(self, tiles: NDArray[np.float32], bits: int, book: Codebook) -> tuple[NDArray[np.float32], Words]:
        edges, count = 65536 >> bits, len(tiles)
        out, states = self.empty(tiles.shape, "float"), self.empty(tiles.shape, "short")
        costs, back = self.empty((count, 2, edges), "half"), self.empty((count, 256, edges), "short")
        self.ext.quantize_tiles(self.put(tiles), out, states, costs, back, bits, *_flags(book))
        return self.get(out), self.get(states)


def _flags(book: Codebook) -> tuple[bool, bool]:
    return book is Codebook.MCG, book is Codebook.MUL1


def _record(device: Device, kept: Arrays, raw: Arrays) -> list[tuple[str, Callable[[], None]]]:
    """The sections in the order they run: what needs most trust in a kernel's launch comes last."""

    def tables() -> None:
        for book in Codebook:
            values = device.table(book).view(np.uint16)
            raw[f"table/{book.value}"] = values
            kept[f"table/{book.value}"] = values[::TABLE_STRIDE]
            kept[f"table-digest/{book.value}"] = digest(values)

    def decoded() -> None:
        for bits, book in cases():
            name = f"{bits}/{book.value}"
            kept[f"patterns/{name}"] = device.reconstruct(patterns(bits), book).view(np.uint16)
            for kind, tiles in (("walking-bit", walking_bit(bits)), ("random", random_tiles(bits))):
                values = device.reconstruct(tiles, book).view(np.uint16)
                kept[f"{kind}-digest/{name}"] = digest(values)
                if book is Codebook.MCG:
                    raw[f"{kind}/{name}"] = values

    def states() -> None:
        for bits in trellis.BITS:
            found = device.unpack(patterns(bits))
            kept[f"states/{bits}"] = found
            raw[f"states-walking-bit/{bits}"] = device.unpack(walking_bit(bits))
            raw[f"packed-again/{bits}"] = device.pack(found, bits)
            if not np.array_equal(raw[f"packed-again/{bits}"], patterns(bits)):
                raise AssertionError(f"exllamav3 does not pack the states it unpacked, K = {bits}")

    def rotation() -> None:
        raw["hadamard/unit"] = device.hadamard(np.eye(128, dtype=np.float32))
        kept["hadamard-signs"] = np.packbits(raw["hadamard/unit"] > 0)
        kept["hadamard-value"] = np.abs(raw["hadamard/unit"])[:1, :4]

    def quantised() -> None:
        for bits, book in cases():
            name, tiles = f"{bits}/{book.value}", quantise_case(book)
            values, found = device.quantise(tiles, bits, book)
            kept[f"quantised/{name}"] = device.pack(found[np.newaxis], bits)[0]
            kept[f"quantised-error/{name}"] = ((values.astype(np.float64) - tiles) ** 2).mean(axis=1)

    def forwards() -> None:
        for bits, book in cases():
            x, layer = linear_case(bits, book)
            kept[f"forward/{bits}/{book.value}"] = device.forward(x, layer)
            kept[f"forward-row/{bits}/{book.value}"] = device.forward(x[:1], layer)[:, ::4].copy()
            raw[f"linear-weight/{bits}/{book.value}"] = device.reconstruct(layer.trellis, book).view(np.uint16)

    return [(f.__name__, f) for f in (tables, decoded, states, rotation, quantised, forwards)]


def check(kept: Arrays) -> list[tuple[str, bool, str]]:
    """Every stored output against this package's reference: name, whether it holds, and what was seen."""
    from carve_kernels.exl3.golden_check import compare  # noqa: PLC0415 - the comparison imports this module

    return compare(kept)


def run(device: Device, paths: list[Path]) -> int:
    """Write the first file and, where a second is named, the raw facts; 1 where a section or comparison failed."""
    started, kept, raw = time.monotonic(), Arrays(), Arrays()
    failures: dict[str, str] = {}
    print(json.dumps(device.facts()), flush=True)
    for name, section in _record(device, kept, raw):
        try:
            section()
        except Exception:  # noqa: BLE001 - one failed section must not cost the others' time on the device
            failures[name] = traceback.format_exc()
        print(f"{name}: {'FAILED' if name in failures else 'ok'}", flush=True)
    script = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    facts = {**device.facts(), "python": platform.python_version(), "script_sha256": script, "failed": failures}
    kept["facts"] = np.frombuffer(json.dumps(facts, sort_keys=True).encode(), dtype=np.uint8)
    for path, arrays in zip(paths, (kept, raw), strict=False):
        _write(path, arrays)
    for name, failure in failures.items():
        print(f"SECTION FAILED: {name}\n{failure}", flush=True)
    findings = check(kept)
    for label, holds, seen in findings:
        print(f"{'holds ' if holds else 'DIFFERS'} {label}: {seen}")
    wrong, seconds = sum(not holds for _, holds, _ in findings), time.monotonic() - started
    print(f"{len(findings)} comparisons, {wrong} differ, {len(failures)} sections failed, {seconds:.0f} s")
    return int(bool(wrong or failures))


def main(arguments: list[str]) -> int:
    """``OUT.npz [RAW.npz]``"""
    return run(Device(), [Path(argument) for argument in arguments])


def _write(path: Path, arrays: Arrays) -> None:
    with path.open("wb") as stream:
        np.savez_compressed(stream, allow_pickle=False, **arrays)
    print(f"{path}: {path.stat().st_size} bytes, {len(arrays)} arrays", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
