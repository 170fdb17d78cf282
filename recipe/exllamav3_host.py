"""What a GPU host with stock exllamav3 does for us, offline: logits of a pack, and a pack of its own making.

    python -m recipe.exllamav3_host logits  PACK TOKENS.npy OUT.npz
    python -m recipe.exllamav3_host convert CHECKPOINT ROWS.safetensors OUT_PACK --bits 4

Neither signs nor judges anything: :mod:`recipe.agreement` does, on the machine that the packs came from.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recipe import whole_folder
from recipe.disk import command
from recipe.exllamav3_conversion import Conversion, convert, linears
from recipe.headers import read_header
from recipe.pack import read_pack
from runner.errors import StateError


def logits(pack: Path, tokens: Path, out: Path) -> None:
    """Logits float16 ``[documents, length, vocabulary]`` of token ids ``[documents, length]``, one document a call.

    Beside them what another batch composition costs the library itself: the largest distance of a row of logits where
    all documents go in one call, relative to the row; and the digests of the pack that was read.
    """
    torch: Any = importlib.import_module("torch")
    library: Any = importlib.import_module("exllamav3")
    read = read_pack(pack)
    model = library.Model.from_config(library.Config.from_directory(str(pack)))
    model.load("cuda:0", progressbar=False)
    ids = torch.from_numpy(np.load(tokens).astype(np.int64))
    with torch.inference_mode():
        alone, together = (
            torch.cat([model.forward(part, {"attn_mode": "flash_attn_nc"}).float().cpu() for part in ids.split(size)])
            for size in (1, len(ids))
        )
    found = alone.numpy()
    np.savez_compressed(
        out,
        tokens=ids.numpy(),
        logits=found.astype(np.float16),
        another_batch=distances(together.numpy(), found).max(),
        exllamav3=version("exllamav3"),
        torch=str(torch.__version__),
        device=torch.cuda.get_device_name(0),
        header=read.header_digest(),
        payload=read.payload_digest(),
    )


def distances(found: NDArray[np.floating], expected: NDArray[np.floating]) -> NDArray[np.floating]:
    """Distance of each row of logits from the expected one, relative to it ``[documents, length]``.

    Both are centred: a shift of all logits changes nothing.
    """
    wanted, had = (each - each.mean(-1, keepdims=True) for each in (expected, found))
    relative: NDArray[np.floating] = np.linalg.norm(had - wanted, axis=-1) / np.linalg.norm(wanted, axis=-1)
    return relative


def whole_conversion(checkpoint: Path, calibration: Path, out: Path, bits: int) -> None:
    """Every linear of the layers at ``bits``, on our token rows; the library's own pack is moved to ``out``.

    Raises what :func:`convert` raises, and StateError for a pack that lacks a module or a name that is taken.
    """
    whole_folder.refuse_taken(out)
    entries = {
        entry.name: entry for file in sorted(checkpoint.glob("*.safetensors")) for entry in read_header(file).entries
    }
    layers = json.loads((checkpoint / "config.json").read_text())["num_hidden_layers"]
    chosen = dict.fromkeys(linears(entries, "model.layers", layers), bits)
    work = out.with_name(f"{out.name}.work")
    rows, columns = next(iter(read_header(calibration).entries)).shape
    conversion = Conversion(checkpoint, work, chosen, rows=rows, columns=columns, calibration=calibration)
    convert(conversion, lambda words: print(words, flush=True))
    if missing := sorted(set(chosen) - set(read_pack(conversion.output).modules)):
        raise StateError("the library's pack lacks modules", where=str(conversion.output), found=", ".join(missing))
    whole_folder.publish(conversion.output, out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    asked = actions.add_parser("logits")
    for name in ("pack", "tokens", "out"):
        asked.add_argument(name, type=Path)
    made = actions.add_parser("convert")
    for name in ("checkpoint", "calibration", "out"):
        made.add_argument(name, type=Path)
    made.add_argument("--bits", type=int, required=True)
    given = parser.parse_args()
    if given.action == "logits":
        logits(given.pack, given.tokens, given.out)
    else:
        whole_conversion(given.checkpoint, given.calibration, given.out, given.bits)


if __name__ == "__main__":
    sys.exit(command(main))
