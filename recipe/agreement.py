"""Does stock exllamav3 compute on our packs what we compute, and do we serve what it codes?

    python -m recipe.agreement prepare packs/exllamav3   a pack, a checkpoint, tokens and calibration for a GPU host
    python -m recipe.exllamav3_host ...                  there, with exllamav3 1.4.5 or 1.6.5; its files come back
    python -m recipe.agreement compare PACK HOST.npz     what came back, in a few figures
    python -m recipe.agreement measure PACK HOST.npz     the same, row by row, as gate ``agreement`` takes it
    runner execute orders/exllamav3-reads.yaml           the verdict, signed; exllamav3-made for a pack of its making

Our own forward is the training module on the decoded weights, in float32; with its products in float16 it says what
that format costs. Whether the host agrees is for gate ``agreement`` to say: it asks the served engine for these tokens.

The second version of the gate asks it of every row, on the library's own side of every choice of experts that rounding
decides (:mod:`recipe.routing`). The first held the largest error against what another batch size costs the library
itself, 0.091 on one row: the same ties, not told apart. Both rules were chosen after such errors had been seen; what a
library says of a pack made later is their test.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from recipe import bake, pack_write
from recipe.calibration import read_texts, token_rows
from recipe.disk import command
from recipe.exllamav3_host import distances
from recipe.mini import dequantise
from recipe.mini.export import export, restore
from recipe.pack import read_pack
from recipe.product import Job
from recipe.routing import follow, logits_of
from runner.digest import sha256_file
from runner.errors import EvidenceError
from runner.model.order import BakeOrder, load_order
from runner.paths import source_root

_BAKE = "orders/mini-bake.yaml"


def prepare(folder: Path, *, documents: int = 4, length: int = 128) -> None:
    """``pack`` (the product of order ``mini-bake``), a float16 ``checkpoint``, ``tokens.npy`` to judge on and
    ``calibration.safetensors`` to code on.

    A bake gives the same bytes wherever it runs: the pack's payload digest is the one in that order's signed reports.
    """
    root = source_root()
    order = load_order(root / _BAKE).order
    assert isinstance(order, BakeOrder) and order.recipe and order.target, "its kind and purpose say so"
    folder.mkdir(parents=True, exist_ok=True)
    bake.make(Job(order.recipe, root / order.target.pack, root, folder / "pack", folder / "work", note=print))
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


def forward_of(pack: Path) -> Any:
    """Our own forward on a pack: the training module on its decoded weights; its draft layer is not needed."""
    with tempfile.TemporaryDirectory(prefix="carve-forward-") as folder:
        return restore(dequantise.dequantise(pack, Path(folder) / "float"), draft=False)


def logprobs(logits: NDArray[np.floating], tokens: NDArray[np.integer]) -> NDArray[np.float32]:
    """Log-probability ``[documents, length - 1]`` of every token but each document's first."""
    scores = torch.log_softmax(torch.from_numpy(np.ascontiguousarray(logits[:, :-1], np.float32)), dim=-1)
    wanted = torch.from_numpy(tokens[:, 1:].astype(np.int64))
    found: NDArray[np.float32] = scores.gather(-1, wanted[..., None])[..., 0].numpy()
    return found


def measure(pack: Path, host: Path) -> dict[str, Any]:
    """The host's logits beside our own forward, row by row.

    EvidenceError for a file of another form, a record of another pack, and logits of another shape or not finite.
    """
    told, own = _record(host), read_pack(pack)
    tokens, theirs = told["tokens"], told["logits"].astype(np.float32)
    digests = {"header": own.header_digest(), "payload": own.payload_digest()}
    for part, digest in digests.items():  # records of before the host named its pack are silent
        if (named := str(told.get(part, digest))) != digest:
            raise EvidenceError(
                "the host's record is of another pack", where=f"{host}: {part}", expected=digest, found=ascii(named)
            )
    size = json.loads((pack / "config.json").read_bytes())["vocab_size"]
    if not 0 <= tokens.min() <= tokens.max() < size:
        raise _unusable(host, f"tokens below {size}", f"{tokens.min()} to {tokens.max()}")
    model = forward_of(pack)
    ours = logits_of(model, tokens)
    if theirs.shape != ours.shape or not np.isfinite(theirs).all():
        raise _unusable(host, f"{ours.shape}, finite", f"{theirs.shape}")
    half = distances(logits_of(model, tokens, half=True), ours)
    rows = {"tokens": tokens, "theirs": logprobs(theirs, tokens), "ours": logprobs(ours, tokens)}
    rows |= {"distances": distances(theirs, ours), "float16": half}
    routed = follow(model, tokens, theirs)
    rows |= {"routed": routed.distance, "routed_float16": routed.float16}
    documents = [
        {name: [round(value, 7) for value in values[number].tolist()] for name, values in rows.items()}
        | {"ties": routed.ties[number], "others": [list(one) for one in routed.others[number]]}
        for number in range(len(tokens))
    ]
    facts = {name: str(told[name]) for name in ("exllamav3", "torch", "device")}
    facts |= {"tie": f"{routed.tie:.7f}", "choices": str(routed.choices)}
    facts["another_batch"] = f"{float(told['another_batch']):.7f}"
    return facts | digests | {"record": sha256_file(host), "documents": documents}


def _record(host: Path) -> dict[str, NDArray[Any]]:
    """The arrays that the host left, by name. EvidenceError for a file that is missing or of another form."""
    if not host.is_file():
        raise _unusable(host, "what `python -m recipe.exllamav3_host logits` leaves", "no file")
    try:
        with host.open("rb") as stream, np.load(stream) as told:
            found = {name: told[name] for name in told.files}
        missing = sorted({"tokens", "logits", "another_batch", "exllamav3", "torch", "device"} - found.keys())
    except (AttributeError, EOFError, TypeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise _unusable(host, "what `python -m recipe.exllamav3_host logits` leaves", ascii(str(error))) from error
    if missing:
        raise _unusable(host, "what `python -m recipe.exllamav3_host logits` leaves", f"no {', '.join(missing)}")
    forms = {"tokens": ("iu", 2), "logits": ("f", 3), "another_batch": ("f", 0)}
    for name, (kinds, axes) in forms.items():
        array = found[name]
        if array.dtype.kind not in kinds or array.ndim != axes or not array.size:
            raise _unusable(host, f"{name} of {axes} axes, numbers", f"{array.dtype} {array.shape}")
    return found


def _unusable(host: Path, expected: str, found: str) -> EvidenceError:
    return EvidenceError("the host's logits cannot be used", where=str(host), expected=expected, found=found)


def compare(pack: Path, host: Path) -> dict[str, Any]:
    """:func:`measure` in a few figures, unsigned."""
    found = measure(pack, host)
    documents = found.pop("documents")
    mine, other = (perplexity([document[name] for document in documents]) for name in ("ours", "theirs"))
    spreads = {
        name: [f"{value:.6f}" for value in np.quantile([document[name] for document in documents], (0.5, 0.9, 1.0))]
        for name in ("distances", "float16", "routed", "routed_float16")
    }
    found |= {"ties": sum(document["ties"] for document in documents)}
    found |= {"others": sum(len(document["others"]) for document in documents)}
    return (
        found
        | {"rows": sum(len(document["tokens"]) for document in documents)}
        | {f"{name}: median, ninth decile, largest": ", ".join(spread) for name, spread in spreads.items()}
        | {"perplexity_here": f"{mine:.6f}", "perplexity_there": f"{other:.6f}"}
    )


def perplexity(documents: Sequence[Sequence[float]]) -> float:
    """exp of the mean negative log-likelihood of all documents' tokens."""
    values = [value for document in documents for value in document]
    return math.exp(-math.fsum(values) / len(values))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("prepare").add_argument("folder", type=Path)
    for action in ("compare", "measure"):
        comparing = actions.add_parser(action)
        for name in ("pack", "host"):
            comparing.add_argument(name, type=Path)
    given = parser.parse_args()
    if given.action == "prepare":
        prepare(given.folder)
        return 0
    if given.action == "measure":
        print(json.dumps(measure(given.pack, given.host)))
        return 0
    print(json.dumps(compare(given.pack, given.host), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(command(main))
