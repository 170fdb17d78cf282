"""Does stock exllamav3 compute on our packs what we compute, and do we serve what it codes?

    python -m recipe.agreement prepare FOLDER            packs, checkpoint and tokens for a GPU host
    python -m recipe.agreement compare PACK TOKENS.npy HOST.npz [--draft CHECKPOINT]

Our own forward is the training module on the decoded weights, in float32. Its distance from itself with every matrix
product in float16 is what that format costs, the library's from itself in another batch composition what its kernels
cost; the host may be twice as far away as the larger of the two.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer
from torch.nn import functional

from recipe import bake, pack_write
from recipe.calibration import read_texts, token_rows
from recipe.configured import CONFIG
from recipe.exllamav3_host import distance
from recipe.mini import dequantise
from recipe.mini.export import export, restore
from recipe.pack import read_pack
from recipe.product import Job
from runner.errors import EvidenceError
from runner.model.order.bake import Bake, Rate
from runner.paths import source_root

TIMES_NOISE = 2.0
PERPLEXITY = 0.001
"""Largest relative difference of perplexities."""
_STANDING = "recipe/mini/pack"


def prepare(folder: Path, *, documents: int = 4, length: int = 128) -> None:
    """``pack`` (attention coded at 4 bits and merged here), a float16 ``checkpoint``, ``tokens.npy`` to judge on and
    ``calibration.safetensors`` to code on."""
    root = source_root()
    recipe = Bake(preset="glm4-moe-attention", rates=(Rate(modules="model.layers.*", bits=4),))
    folder.mkdir(parents=True, exist_ok=True)
    bake.make(Job(recipe, root / _STANDING, root, folder / "pack", folder / "work", note=print))
    export(forward_of(folder / "pack"), folder / "checkpoint")
    tokenizer = Tokenizer.from_file(str(folder / "pack/tokenizer.json"))
    rows = []
    for file in sorted((root / "recipe/mini/text").glob("*.jsonl")):
        ids = [tokenizer.encode(document["text"]).ids[:length] for document in read_texts(file)]
        rows += [document for document in ids if len(document) == length][:documents]
    np.save(folder / "tokens.npy", np.array(rows, np.int32))
    kept = token_rows(read_texts(root / "recipe/mini/calibration.jsonl"), folder / "pack/tokenizer.json", 600)
    pack_write.write_shard(folder / "calibration.safetensors", {"input_ids": kept})
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / "checkpoint" / name).write_bytes((folder / "pack" / name).read_bytes())


def forward_of(pack: Path, draft: Path | None = None) -> Any:
    """Our own forward on a pack: the training module on its decoded weights.

    A pack of exllamav3's making has no draft layer, which no logits come from; ``draft`` is a checkpoint that has one.
    """
    with tempfile.TemporaryDirectory(prefix="carve-forward-") as folder:
        plain = dequantise.dequantise(pack, Path(folder) / "float")
        if draft is not None:
            layer = json.loads((plain / CONFIG).read_bytes())["num_hidden_layers"]
            whole = load_file(draft / "model.safetensors")
            own = {name: array for name, array in whole.items() if name.startswith(f"model.layers.{layer}.")}
            pack_write.write_shard(plain / "draft.safetensors", own)
        return restore(plain)


def logits_of(model: Any, tokens: NDArray[np.integer], *, half: bool = False) -> NDArray[np.float32]:
    """Logits ``[documents, length, vocabulary]``; with ``half`` every matrix product is taken in float16."""
    model.eval()
    with torch.no_grad(), torch.autocast("cpu", torch.float16, enabled=half):
        found: NDArray[np.float32] = model.lm_head(model(torch.from_numpy(tokens.astype(np.int64)))).float().numpy()
    return found


def perplexity(logits: NDArray[np.floating], tokens: NDArray[np.integer]) -> float:
    """exp of the mean negative log-likelihood of every token but each document's first."""
    scored = torch.from_numpy(np.ascontiguousarray(logits[:, :-1], np.float32)).flatten(0, 1)
    wanted = torch.from_numpy(tokens[:, 1:].astype(np.int64)).flatten()
    return float(functional.cross_entropy(scored, wanted).exp())


def compare(pack: Path, tokens: NDArray[np.integer], host: Path, draft: Path | None = None) -> dict[str, Any]:
    """The record of one comparison, unsigned. Raises EvidenceError for logits of another shape or not finite."""
    model = forward_of(pack, draft)
    ours = logits_of(model, tokens)
    with np.load(host) as told:
        theirs = told["logits"].astype(np.float32)
        library = float(told["another_batch"])
        facts = {name: str(told[name]) for name in ("exllamav3", "torch", "device")}
    if theirs.shape != ours.shape or not np.isfinite(theirs).all():
        raise EvidenceError(
            "the host's logits cannot be used",
            where=str(host),
            expected=f"{ours.shape}, finite",
            found=f"{theirs.shape}",
        )
    noise = distance(logits_of(model, tokens, half=True), ours)
    error = distance(theirs, ours)
    mine, other = perplexity(ours, tokens), perplexity(theirs, tokens)
    return facts | {
        "header": read_pack(pack).header_digest(),
        "payload": read_pack(pack).payload_digest(),
        "rows": int(tokens.size),
        "largest_relative_error": f"{error:.6f}",
        "float16_noise": f"{noise:.6f}",
        "another_batch": f"{library:.6f}",
        "perplexity_here": f"{mine:.6f}",
        "perplexity_there": f"{other:.6f}",
        "agrees": error <= TIMES_NOISE * max(noise, library) and abs(other / mine - 1) <= PERPLEXITY,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("prepare").add_argument("folder", type=Path)
    comparing = actions.add_parser("compare")
    for name in ("pack", "tokens", "host"):
        comparing.add_argument(name, type=Path)
    comparing.add_argument("--draft", type=Path, help="a checkpoint with the draft layer that the pack lacks")
    given = parser.parse_args()
    if given.action == "prepare":
        prepare(given.folder)
        return 0
    found = compare(given.pack, np.load(given.tokens), given.host, given.draft)
    print(json.dumps(found, indent=1))
    return 0 if found["agrees"] else 1


if __name__ == "__main__":
    sys.exit(main())
