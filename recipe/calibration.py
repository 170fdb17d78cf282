"""Second moments of what the modules of a bake see on calibration text, and the check that gates do not measure on it.

Text that both calibrates and judges makes a bake look better than it is, whether as a whole document or as a passage at
any offset (field case 31). So every run of letters and digits is compared, not every n-th.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import unicodedata
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recipe.closure import json_object
from recipe.mini import dequantise
from recipe.product import Job
from runner.errors import InputError, StateError
from runner.model.order.bake import Bake, Calibration
from runner.paths import source_root

HELD_OUT = "recipe/mini/text"
"""What the gates measure on."""
RUN = 60
"""Letters and digits in a row that two texts may not share: about twelve tokens."""
PIECE = 20
SHARE = 0.2
"""Of the pieces of :data:`PIECE` letters and digits of either document, so many may stand in the other: text that was
changed here and there has no long run in common, and still has most of its pieces."""
_SUPPORTED = "glm4_moe"
_SECONDS = 600


def moments(job: Job, recipe: Bake, wanted: Collection[str]) -> dict[str, NDArray[np.float32]]:
    """Module name to the mean of ``x^T x``, for the wanted modules that saw a token; empty without calibration.

    Measured once and kept in the job's work folder. Raises InputError for text that the gates measure on and for an
    architecture that nothing here can run, StateError where the engine's packages are missing.
    """
    wish = recipe.calibration
    if wish is None:
        return {}
    kept = job.work / "moments.npz"
    if not kept.exists():
        config = json.loads((job.standing / "config.json").read_text(encoding="utf-8"))
        if config.get("model_type") != _SUPPORTED:
            raise InputError(
                "no forward for this architecture here",
                where=str(job.standing),
                expected=_SUPPORTED,
                found=str(config.get("model_type")),
                next_step="calibrate on a GPU host with exllamav3's own conversion, or bake without calibration",
            )
        documents_of(job, wish)
        _measure(job, wish.texts, wish.documents, wish.tokens, kept)
    with np.load(kept) as arrays:
        return {name: arrays[name] for name in arrays.files if name in wanted}


def rows(job: Job, wish: Calibration, checkpoint: Path) -> NDArray[np.int64]:
    """Token ids ``[documents, tokens]`` of the calibration text by the tokenizer of ``checkpoint``.

    Refuses what :func:`moments` refuses, and documents that have fewer tokens.
    """
    return token_rows(documents_of(job, wish), checkpoint / "tokenizer.json", wish.tokens)


def documents_of(job: Job, wish: Calibration) -> list[dict[str, Any]]:
    """The documents to calibrate on. InputError for too few, or where the gates measure on one of them."""
    documents = _as_many(job, wish)
    refuse_overlap(documents, [d for file in _held_out() for d in read_texts(file)])
    return documents


def _as_many(job: Job, wish: Calibration) -> list[dict[str, Any]]:
    """The first documents of the calibration text, as many as are wished for. InputError where there are fewer."""
    documents = read_texts(job.root / wish.texts)
    if len(documents) < wish.documents:
        raise InputError(
            "too few calibration documents",
            where=wish.texts,
            expected=str(wish.documents),
            found=str(len(documents)),
        )
    return documents[: wish.documents]


def token_rows(documents: list[dict[str, Any]], tokenizer: Path, tokens: int) -> NDArray[np.int64]:
    """The first ``tokens`` token ids of each document, ``[documents, tokens]``. InputError for one that has fewer."""
    library: Any = importlib.import_module("tokenizers")
    coder = library.Tokenizer.from_file(str(tokenizer))
    rows = [coder.encode(document["text"]).ids[:tokens] for document in documents]
    short = [document["id"] for document, row in zip(documents, rows, strict=True) if len(row) < tokens]
    if short:
        raise InputError(
            "calibration documents are too short",
            where=", ".join(short),
            expected=f"at least {tokens} tokens each",
            found=f"{min(map(len, rows))}",
            next_step="lower `calibration.tokens` or leave these documents out",
        )
    return np.array(rows, np.int64)


def read_texts(file: Path) -> list[dict[str, Any]]:
    """Lines of ``{"id", "language", "text"}``, blank ones left out. InputError where a line is something else.

    Lines end as JSON lines do, at line feeds alone: a text may hold whatever else ends a line somewhere.
    """
    if not file.is_file():
        raise InputError("no such text", where=str(file), expected="a file of JSON lines", found="none")
    found = []
    for number, line in enumerate(file.read_bytes().split(b"\n"), start=1):
        document = json_object(line) if line.strip() else {"id": "", "text": ""}
        if document is None or not all(isinstance(document.get(key), str) for key in ("id", "text")):
            raise InputError(
                "not a document",
                where=f"{file}:{number}",
                expected="an object with id and text, both of them text in UTF-8",
                found=ascii(line[:60].decode(errors="replace")),
            )
        if line.strip():
            found.append(document)
    return found


def refuse_overlap(calibration: list[dict[str, Any]], held_out: list[dict[str, Any]]) -> None:
    """InputError naming the documents that share an id, a run of letters and digits, or many short pieces of one.

    What a reader does not see, and a tokenizer hardly, makes no other text: case, accents, punctuation, blanks.
    """
    ids = {document["id"]: document for document in held_out}
    runs = {run: document["id"] for document in held_out for run in _runs(document["text"], RUN)}
    pieces = {document["id"]: _runs(document["text"], PIECE) for document in held_out}
    homes: dict[str, list[str]] = {}
    for name, own in pieces.items():
        for piece in own:
            homes.setdefault(piece, []).append(name)
    for document in calibration:
        if document["id"] in ids:
            raise _shared(document["id"], document["id"], "the whole document")
        for run in _runs(document["text"], RUN):
            if run in runs:
                raise _shared(document["id"], runs[run], repr(run))
        mine = _runs(document["text"], PIECE)
        for name, count in Counter(home for piece in mine for home in homes.get(piece, ())).most_common(1):
            if count > max(RUN, SHARE * min(len(mine), len(pieces[name]))):
                raise _shared(document["id"], name, f"{count} pieces of {PIECE} letters")


def _shared(mine: str, theirs: str, what: str) -> InputError:
    return InputError(
        "calibration text is measured on",
        where=mine,
        expected="nothing shared with held-out text",
        found=f"{what} of {theirs}",
    )


def _runs(text: str, length: int) -> set[str]:
    plain = "".join(filter(str.isalnum, unicodedata.normalize("NFKD", text).casefold()))
    return {plain[start : start + length] for start in range(len(plain) - length + 1)}


def _held_out() -> list[Path]:
    return sorted((source_root() / HELD_OUT).glob("*.jsonl"))


def _measure(job: Job, texts: str, documents: int, tokens: int, kept: Path) -> None:
    job.note(f"calibrate on {documents} documents")
    plain = job.work / "float"
    if not plain.exists():
        dequantise.dequantise(job.standing, plain)
    command = [sys.executable, "-P", "-m", "recipe.mini.calibrate", str(plain), str(job.root / texts), str(kept)]
    command += ["--documents", str(documents), "--tokens", str(tokens)]
    # One thread adds in one order, so that the same text gives the same bits.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(source_root())}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        raise StateError(
            "the calibration did not finish",
            where=" ".join(command[2:4]),
            expected="exit code 0",
            found="\n    ".join(["", *done.stderr.strip().splitlines()[-3:]]),
            next_step="torch and tokenizers are needed: run `scripts/setup engine`",
        )
