"""Logits of another engine against our own forward: what agrees, what does not, and what cannot be used."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recipe import routing
from recipe.agreement import compare, forward_of, logprobs, measure, perplexity
from recipe.exllamav3_host import distances
from recipe.headers import read_header
from recipe.mini import dequantise
from recipe.mini.export import restore
from recipe.pack import INDEX, read_pack
from recipe.pack_write import quantization_config
from recipe.routing import follow, logits_of
from runner.digest import sha256_file
from runner.errors import EvidenceError
from runner.paths import source_root

pytestmark = pytest.mark.engine
PACK = source_root() / "recipe/mini/pack"
TOKENS = np.random.default_rng(0).integers(1, 1500, (2, 24), np.int32)


@pytest.fixture(scope="module")
def ours() -> np.ndarray:
    return logits_of(forward_of(PACK), TOKENS)


def host(file: Path, logits: np.ndarray, **more: Any) -> Path:
    facts: dict[str, Any] = {"another_batch": 0.0001, "exllamav3": "1.6.5", "torch": "2.11.0", "device": "a card"}
    np.savez(file, **({"tokens": TOKENS, "logits": logits} | facts | more))
    return file


def test_the_same_logits_have_no_distance_and_float16_has_some(ours: np.ndarray, tmp_path: Path) -> None:
    found = compare(PACK, host(tmp_path / "same.npz", ours + 3))
    zero, half = (found[f"{name}: median, ninth decile, largest"] for name in ("distances", "float16"))
    assert max(map(float, zero.split(", "))) < 1e-5
    assert all(1e-4 < float(value) < 2e-2 for value in half.split(", "))
    assert (found["exllamav3"], found["rows"]) == ("1.6.5", 48)
    assert float(found["perplexity_here"]) == pytest.approx(float(found["perplexity_there"]), rel=1e-5)


@pytest.mark.parametrize("case", ["shape", "nan"])
def test_logits_that_cannot_be_used_are_refused(case: str, ours: np.ndarray, tmp_path: Path) -> None:
    wrong = ours[:1] if case == "shape" else np.where(ours == ours.max(), np.nan, ours)
    with pytest.raises(EvidenceError, match="cannot be used"):
        compare(PACK, host(tmp_path / "other.npz", wrong))


def test_a_record_names_its_pack(ours: np.ndarray, tmp_path: Path) -> None:
    """A record of before the host named its pack is silent, and is taken; one of another pack is not."""
    pack = read_pack(PACK)
    named = {"header": pack.header_digest(), "payload": pack.payload_digest()}
    assert measure(PACK, host(tmp_path / "named.npz", ours, **named))["payload"] == named["payload"]
    for part in named:
        other = host(tmp_path / f"{part}.npz", ours, **(named | {part: "0" * 64}))
        with pytest.raises(EvidenceError, match="of another pack"):
            measure(PACK, other)


def _single(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


JUNK: dict[str, Callable[[Path], object]] = {
    "no file": lambda file: None,
    "no archive": lambda file: file.write_bytes(b"junk"),
    "nothing": lambda file: file.write_bytes(b""),
    "half": lambda file: file.write_bytes(host(file, np.zeros((2, 24, 8), np.float32)).read_bytes()[:300]),
    "one array": lambda file: file.write_bytes(_single(TOKENS)),
    "a pickle": lambda file: np.savez(file, tokens=np.array([{}], object)),
    "no logits": lambda file: np.savez(file, tokens=TOKENS),
    "text": lambda file: host(file, np.full((2, 24, 8), "a")),
    "empty": lambda file: host(file, np.zeros((0, 24, 8), np.float32)),
    "one axis": lambda file: host(file, np.zeros(8, np.float32)),
    "strange tokens": lambda file: host(file, np.zeros((2, 24, 8), np.float32), tokens=TOKENS + 100_000),
    "negative tokens": lambda file: host(file, np.zeros((2, 24, 8), np.float32), tokens=-TOKENS),
}


@pytest.mark.parametrize("case", JUNK)
def test_a_file_of_another_form_is_refused(case: str, tmp_path: Path) -> None:
    file = tmp_path / "junk.npz"
    JUNK[case](file)
    with pytest.raises(EvidenceError, match="cannot be used"):
        measure(PACK, file)


def test_a_pack_without_a_draft_layer_gives_the_same_logits(ours: np.ndarray, tmp_path: Path) -> None:
    """exllamav3's class of this architecture leaves that layer out."""
    made = shutil.copytree(PACK, tmp_path / "made")
    index = json.loads((made / INDEX).read_text())
    last = index["weight_map"]["model.layers.4.enorm.weight"]
    (made / last).unlink()
    kept = {name: file for name, file in index["weight_map"].items() if file != last}
    (made / INDEX).write_text(json.dumps({"weight_map": kept}))
    config = json.loads((made / "config.json").read_text())
    entries = [entry for file in set(kept.values()) for entry in read_header(made / file).entries]
    config["quantization_config"] = quantization_config((entry.name, entry.shape) for entry in entries)
    (made / "config.json").write_text(json.dumps(config))
    assert distances(logits_of(forward_of(made), TOKENS), ours).max() < 1e-6
    with pytest.raises(KeyError, match=r"layers\.4"):
        restore(dequantise.dequantise(made, tmp_path / "float"))


def test_rows_are_told_document_by_document(ours: np.ndarray, tmp_path: Path) -> None:
    wrong = ours.copy()
    wrong[1, 5] *= 1.25
    found = measure(PACK, host(tmp_path / "wrong.npz", wrong))
    first, second = found["documents"]
    assert max(second["distances"]) == pytest.approx(0.25, rel=1e-5)
    assert first["tokens"] == TOKENS[0].tolist() and len(first["theirs"]) == len(first["ours"]) == 23
    assert [at for at, distance in enumerate(second["distances"]) if distance > 1e-3] == [5]
    pairs = zip(second["theirs"], second["ours"], strict=True)
    assert [at for at, (theirs, mine) in enumerate(pairs) if theirs != mine] == [5]
    assert found["record"] == sha256_file(tmp_path / "wrong.npz")


def test_perplexity_and_error_by_hand() -> None:
    logits = np.log(np.array([[[0.5, 0.25, 0.25], [0.25, 0.25, 0.5], [1.0, 1.0, 1.0]]]))
    scored = logprobs(logits, np.array([[0, 0, 1]]))
    assert scored[0].tolist() == pytest.approx([np.log(0.5), np.log(0.25)])
    assert perplexity(scored.tolist()) == pytest.approx(np.exp(-(np.log(0.5) + np.log(0.25)) / 2))
    assert distances(np.array([[0.0, 2.2]]), np.array([[1.0, 3.0]]))[0] == pytest.approx(0.1)


def _with_other_side(model: Any, layer: int, position: int) -> np.ndarray:
    """Logits of the first document, one token's choice of experts the other way."""
    with routing._choosers(model) as choosers:
        choosers[layer].swapped = {position}
        return logits_of(model, TOKENS[:1])


def test_the_other_side_of_a_tie_is_followed_and_no_other_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The narrowest choice of the document, taken otherwise by rounding; and the widest, which no rounding explains."""
    model = forward_of(PACK)
    with routing._choosers(model) as choosers:
        plain = logits_of(model, TOKENS[:1])
        margins = np.stack([chooser.margins.numpy() for chooser in choosers])
    narrow, wide = (np.unravel_index(find(margins), margins.shape) for find in (np.argmin, np.argmax))
    noise = follow(model, TOKENS[:1], plain)
    monkeypatch.setattr(routing, "TIMES", routing.TIMES * max(1.0, 1.01 * float(margins.min()) / noise.tie))
    theirs = _with_other_side(model, *map(int, narrow))
    assert distances(theirs, plain).max() > 0.003
    found = follow(model, TOKENS[:1], theirs)
    assert [one[:2] for one in found.others[0]] == [tuple(map(int, narrow))] and found.distance.max() < 1e-5
    wrong = follow(model, TOKENS[:1], _with_other_side(model, *map(int, wide)))
    assert wrong.distance.max() > 0.003 and found.choices == margins.size
    assert all(experts.chooser is None for experts in model.experts()), "the model is left as it was"


def test_a_wrong_row_is_not_explained_by_ties(ours: np.ndarray) -> None:
    wrong = ours.copy()
    wrong[1, 5] *= 1.25
    assert follow(forward_of(PACK), TOKENS, wrong).distance[1, 5] > 0.1
