"""Overlay against ``cp`` on a synthetic pack: ``python -m tests.benchmarks.overlay FOLDER [--gigabytes 8]``.

Makes a pack of 40 files of which an overlay rewrites 6, then measures in one run, alternating: ``cp -r`` of the pack
and its files' fsync, one hashing pass over the same bytes, and the overlay itself in a process of its own. The line to
hold is 1.3 times the first two together, and a peak of 512 MB. Needs three times the pack's size in FOLDER, which it
removes at the end. Of packs with very many tensors: ``tests.benchmarks.overlay_many``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from carve_kernels.exl3.codebook import Codebook
from carve_kernels.exl3.pack_format import MARKERS

from recipe import overlay, pack_write, shard_write, whole_folder
from recipe.headers import read_header
from recipe.payload import sha256_of
from recipe.product import Job
from recipe.shard_write import Part
from runner.model.order import Overlay
from tests.benchmarks.overlay_many import PEAK, peak_of

FILES, REWRITTEN, LINE = 40, 6, 1.3
INPUTS, OUTPUTS, BITS = 4096, 2048, 2
_MODULE = INPUTS * OUTPUTS * BITS // 8
_NAMES = ("gate_proj", "up_proj", "down_proj")


def make_pack(folder: Path, nbytes: int, seed: int, *, layers: range) -> Path:
    """One file a layer, each of experts and as much beside them; random bytes, one real EXL3 geometry."""
    words = np.random.default_rng(seed).integers(0, 1 << 16, 32 << 20, np.uint16)
    block = (words & 0xBFFF).tobytes()  # each a finite number, read as float16
    spool = folder.with_suffix(".bytes")
    spool.write_bytes(block)
    partial = whole_folder.fresh(folder.with_suffix(".unfinished"))
    per_file = nbytes // FILES
    experts = max(1, per_file // 2 // (3 * _MODULE))
    for layer in layers:
        parts = list(_layer(spool, len(block), layer, experts, per_file))
        shard_write.write(partial / _file(layer), shard_write.in_order(parts), {"format": "pt"})
    headers = [read_header(partial / _file(layer)) for layer in layers]
    pack_write.write_index(partial, headers)
    shapes = ((entry.name, entry.shape) for header in headers for entry in header.entries)
    pack_write.write_json(partial / "config.json", {"quantization_config": pack_write.quantization_config(shapes)})
    for name in ("tokenizer.json", "tokenizer_config.json"):
        pack_write.write_json(partial / name, {})
    whole_folder.publish(partial, folder)
    spool.unlink()
    return folder


def _file(layer: int) -> str:
    return pack_write.shard_name(layer + 1, FILES)


def _layer(spool: Path, held: int, layer: int, experts: int, per_file: int) -> Iterator[Part]:
    prefix = f"model.layers.{layer}"
    marker = spool.with_suffix(".marker")
    marker.write_bytes(np.int32(MARKERS[Codebook.MCG]).tobytes())
    used = 0
    for expert in range(experts):
        for number, name in enumerate(_NAMES):
            module = f"{prefix}.mlp.experts.{expert}.{name}"
            start = (expert * 3 + number) * 4096 % (held - _MODULE)
            yield Part(f"{module}.trellis", "I16", (INPUTS // 16, OUTPUTS // 16, 16 * BITS), spool, start, _MODULE)
            yield Part(f"{module}.suh", "F16", (INPUTS,), spool, start, 2 * INPUTS)
            yield Part(f"{module}.svh", "F16", (OUTPUTS,), spool, start, 2 * OUTPUTS)
            yield Part(f"{module}.mcg", "I32", (1,), marker, 0, 4)
            used += _MODULE
    number = 0
    while used < per_file:
        size = min(held // 2, per_file - used) // 2 * 2
        yield Part(f"{prefix}.rest.{number}.weight", "F16", (size // 2,), spool, number * 4096, size)
        used, number = used + size, number + 1


def timed(folder: Path, work: Callable[[], object]) -> float:
    """Seconds that ``work`` takes; what earlier work left is removed and settled before."""
    for left in ("copy", "product"):
        shutil.rmtree(folder / left, ignore_errors=True)
    os.sync()
    began = time.monotonic()
    work()
    return time.monotonic() - began


def copy(folder: Path) -> None:
    """``cp`` of the pack, and every file of it on disk, as an overlay leaves them."""
    subprocess.run(["cp", "-r", folder / "source", folder / "copy"], check=True)
    for file in sorted((folder / "copy").iterdir()):
        whole_folder.sync(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gigabytes", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    folder.mkdir(parents=True)
    source = make_pack(folder / "source", int(arguments.gigabytes * 1e9), 1, layers=range(FILES))
    swapped = range(3, 3 + REWRITTEN)
    donor = make_pack(folder / "donor", int(arguments.gigabytes * 1e9), 2, layers=swapped)
    recipe = Overlay.model_validate(
        {
            "what": "layer",
            "donor": {"pack": str(donor)},
            "layers": {f"model.layers.{layer}": f"model.layers.{layer}" for layer in swapped},
            "experts": "mlp.experts",
            "fused": [["gate_proj", "up_proj"]],
        }
    )
    job = Job(recipe, source, folder, folder / "product", folder / "work")
    copies, hashes, overlays, peaks = [], [], [], []

    def work() -> None:
        overlay.make(job)

    copy(folder)  # a thin disk is slow where it is written to for the first time
    peak_of(work)
    for _ in range(arguments.rounds):
        copies.append(timed(folder, lambda: copy(folder)))
        hashes.append(timed(folder, lambda: [sha256_of(file) for file in sorted(source.glob("*.safetensors"))]))
        overlays.append(timed(folder, lambda: peaks.append(peak_of(work))))
    bare = statistics.median(copies) + statistics.median(hashes)
    ratio = statistics.median(overlays) / bare
    figures = {
        "bytes": sum(file.stat().st_size for file in source.glob("*.safetensors")),
        "copy_seconds": [round(one, 2) for one in copies],
        "hash_seconds": [round(one, 2) for one in hashes],
        "overlay_seconds": [round(one, 2) for one in overlays],
        "ratio": round(ratio, 3),
        "line": LINE,
        "peak_bytes": max(peaks),
        "peak_line": PEAK,
        "own_peak_before": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    print(json.dumps(figures, indent=1))
    shutil.rmtree(folder)
    sys.exit(ratio > LINE or max(peaks) > PEAK)


if __name__ == "__main__":
    main()
