"""Turn an EXL3 pack into a plain float32 checkpoint that Hugging Face transformers loads.

    python -m recipe.mini.dequantise PACK CHECKPOINT

The other side of every cross-check: what transformers computes on these weights is what an engine must compute on the
pack.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from carve_kernels.exl3 import linear, pack_format
from numpy.typing import NDArray

from recipe import pack_write, whole_folder
from recipe.blocks import CONFIG, blocks_of, with_blocks
from recipe.disk import command
from recipe.pack import Pack, read_pack


def dequantise(pack: Path, folder: Path) -> Path:
    """Write the checkpoint into ``folder`` (StateError where it exists, PackError for a broken pack) and return it."""
    source = read_pack(pack)
    with whole_folder.anew(folder) as partial:
        pack_write.write_shard(partial / "model.safetensors", weights(source))
        config = json.loads((pack / "config.json").read_text(encoding="utf-8"))
        config = with_blocks({CONFIG: config}, {}, blocks_of({CONFIG: config}))[CONFIG]
        pack_write.write_json(partial / "config.json", config | {"dtype": "float32"})
        pack_write.copy_small_files(pack, partial)
    return folder


def weights(pack: Pack) -> dict[str, NDArray[Any]]:
    """All tensors of ``pack`` in float32; coded modules as ``<module>.weight [out, in]``."""
    tensors = pack.tensors
    parts = {
        part for module, facts in pack.modules.items() for part in pack_format.tensor_names(module, facts.codebook)
    }
    plain: dict[str, NDArray[Any]] = {
        name: entry.read().astype(np.float32) for name, entry in tensors.items() if name not in parts
    }
    return plain | {f"{module}.weight": linear.dequantise(coded(pack, module)).T for module in pack.modules}


def coded(pack: Pack, module: str) -> linear.Linear:
    """One coded module as it stands in ``pack``."""
    names = pack_format.tensor_names(module, pack.modules[module].codebook)
    return pack_format.from_tensors(module, {name: pack.tensors[name].read() for name in names})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", type=Path)
    parser.add_argument("checkpoint", type=Path)
    arguments = parser.parse_args()
    print(dequantise(arguments.pack, arguments.checkpoint))


if __name__ == "__main__":
    sys.exit(command(main))
