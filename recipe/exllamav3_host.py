"""What a GPU host with stock exllamav3 does for us, offline: logits of a pack, and a pack of its own making.

    python -m recipe.exllamav3_host logits  PACK TOKENS.npy OUT.npz
    python -m recipe.exllamav3_host convert CHECKPOINT OUT_PACK --bits 4 [--rows 16] [--columns 512]

Neither signs nor judges anything: :mod:`recipe.agreement` does, on the machine that the packs came from.
"""

from __future__ import annotations

import argparse
import importlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from recipe.exllamav3_conversion import Conversion, convert, linears
from recipe.headers import read_header


def logits(pack: Path, tokens: Path, out: Path) -> None:
    """Logits float32 ``[documents, length, vocabulary]`` of token ids ``[documents, length]``, one document a call."""
    torch: Any = importlib.import_module("torch")
    library: Any = importlib.import_module("exllamav3")
    model = library.Model.from_config(library.Config.from_directory(str(pack)))
    model.load("cuda:0", progressbar=False)
    found = []
    with torch.inference_mode():
        for document in torch.from_numpy(np.load(tokens).astype(np.int64)):
            answer = model.forward(document[None], {"attn_mode": "flash_attn_nc"})
            found.append(answer[0].float().cpu().numpy())
    np.savez_compressed(
        out,
        logits=np.stack(found),
        exllamav3=version("exllamav3"),
        torch=str(torch.__version__),
        device=torch.cuda.get_device_name(0),
    )


def whole_conversion(checkpoint: Path, out: Path, bits: int, rows: int, columns: int) -> None:
    """Every linear of the layers at ``bits``; the library's own pack is moved to ``out``."""
    entries = {
        entry.name: entry for file in sorted(checkpoint.glob("*.safetensors")) for entry in read_header(file).entries
    }
    layers = json.loads((checkpoint / "config.json").read_text())["num_hidden_layers"]
    chosen = dict.fromkeys(linears(entries, "model.layers", layers), bits)
    work = out.with_name(f"{out.name}.work")
    conversion = Conversion(checkpoint, work, chosen, rows=rows, columns=columns)
    convert(conversion, lambda words: print(words, flush=True))
    conversion.output.replace(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    asked = actions.add_parser("logits")
    for name in ("pack", "tokens", "out"):
        asked.add_argument(name, type=Path)
    made = actions.add_parser("convert")
    for name in ("checkpoint", "out"):
        made.add_argument(name, type=Path)
    made.add_argument("--bits", type=int, required=True)
    made.add_argument("--rows", type=int, default=16)
    made.add_argument("--columns", type=int, default=512)
    given = parser.parse_args()
    if given.action == "logits":
        logits(given.pack, given.tokens, given.out)
    else:
        whole_conversion(given.checkpoint, given.out, given.bits, given.rows, given.columns)


if __name__ == "__main__":
    main()
