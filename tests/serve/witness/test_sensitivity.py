"""The reference forward with one layer at a time from the product, against a forward of our own training module."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recipe.mini import dequantise, random_pack
from recipe.mini.export import restore
from recipe.pack import read_pack
from runner.errors import InputError
from serve.witness.sensitivity import TOGETHER, Request, answer, changed_layers

pytestmark = pytest.mark.engine

SMALL: dict[str, Any] = {"hidden": 128, "intermediate": 128, "experts": 2, "topk": 1, "vocabulary": 300}
DOCUMENTS = {"a": [5, 9, 200, 17, 3], "b": [1, 2, 3, 4]}


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A pack, and the same one with the dense layer and the attention of layer 1 changed."""
    folder = tmp_path_factory.mktemp("packs")
    standing = random_pack.generate(folder / "standing", layers=2, draft_layers=1, **SMALL)
    product = random_pack.generate(folder / "product", layers=2, draft_layers=1, **SMALL)
    for name in ("model.layers.0.mlp.down_proj.svh", "model.layers.1.self_attn.v_proj.weight"):
        entry = read_pack(product).tensors[name]
        with entry.file.open("r+b") as stream:
            stream.seek(entry.start)
            stream.write((entry.read() * np.float16(1.25)).astype(np.float16).tobytes())
    return standing, product


def test_each_layer_alone_and_all_together(packs: tuple[Path, Path], tmp_path: Path) -> None:
    standing, product = packs
    found = json.loads(json.dumps(answer(Request(standing=standing, product=product, documents=DOCUMENTS))))
    assert list(found["layers"]) == ["model.layers.0", "model.layers.1", TOGETHER]
    scores = {}
    for name, pack in (("standing", standing), ("product", product)):
        model = restore(dequantise.dequantise(pack, tmp_path / name))
        with torch.no_grad():
            scores[name] = {
                document: torch.log_softmax(model.lm_head(model(torch.tensor([ids])))[0, :-1], -1)
                for document, ids in DOCUMENTS.items()
            }
    for document, ids in DOCUMENTS.items():
        target = torch.tensor(ids[1:])[:, None]
        before, after = (scores[name][document] for name in ("standing", "product"))
        assert found["loss"][document] == pytest.approx(-float(before.gather(1, target).mean()), abs=1e-4)
        together = found["layers"][TOGETHER]
        assert together["loss"][document] == pytest.approx(-float(after.gather(1, target).mean()), abs=1e-4)
        divergence = float((before.exp() * (before - after)).sum(-1).mean())
        assert together["kl"][document] == pytest.approx(divergence, rel=1e-2, abs=1e-6)
        for layer in ("model.layers.0", "model.layers.1"):
            assert found["layers"][layer]["kl"][document] > 0 and math.isfinite(
                found["layers"][layer]["loss"][document]
            )


def test_an_equal_product_changes_no_layer_and_other_weights_are_refused() -> None:
    plain = {"model.layers.0.a.weight": np.ones(3), "head.weight": np.ones(2)}
    assert changed_layers(plain, {name: array.copy() for name, array in plain.items()}) == {}
    with pytest.raises(InputError, match="other weights"):
        changed_layers(plain, {"head.weight": np.ones(2)})
