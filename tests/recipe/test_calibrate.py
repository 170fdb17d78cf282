"""Calibration against moments worked out from transformers' activations, and the choice of calibration text."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from recipe.mini import calibrate, dequantise, random_pack
from recipe.mini.glm import coded_modules
from recipe.mini.needles import needle

pytestmark = pytest.mark.engine

DOCUMENTS = ["the little world", "x = 1\ny = 2\n", "日本語"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibrate")
    sizes: dict[str, Any] = {"hidden": 128, "intermediate": 128, "experts": 4, "topk": 2, "vocabulary": 300}
    return dequantise.dequantise(random_pack.generate(folder / "pack", draft_layers=1, **sizes), folder / "float")


def test_moments_of_every_module(checkpoint: Path) -> None:
    found = calibrate.hessians(checkpoint, DOCUMENTS)
    config = json.loads((checkpoint / "config.json").read_text())
    assert set(found) == set(coded_modules(config, ((2, 2),), 4))

    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    seen: list[np.ndarray] = []
    model.model.layers[1].mlp.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0][0].numpy()))
    with torch.inference_mode():
        for text in DOCUMENTS:
            model(torch.tensor([tokenizer(text)["input_ids"]]))
    x = np.concatenate(seen).astype(np.float64)
    assert np.allclose(found["model.layers.1.mlp.shared_experts.up_proj"], x.T @ x / len(x), rtol=1e-3, atol=1e-4)
    experts = [found[f"model.layers.1.mlp.experts.{e}.gate_proj"] for e in range(4)]
    assert not np.allclose(experts[0], experts[1], rtol=0.1)
    assert all(np.linalg.eigvalsh(moments)[0] > -1e-3 for moments in experts)


def test_a_pack_without_a_draft_layer_is_calibrated_too(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"hidden": 128, "intermediate": 128, "experts": 4, "topk": 2, "vocabulary": 300}
    plain = dequantise.dequantise(random_pack.generate(tmp_path / "pack", **sizes), tmp_path / "float")
    config = json.loads((plain / "config.json").read_text())
    found = calibrate.hessians(plain, DOCUMENTS, attention=True)
    attention = {f"model.layers.{layer}.self_attn.{part}_proj" for layer in (0, 1) for part in "qkvo"}
    assert set(found) == set(coded_modules(config, ((2, 2),), 4)) | attention


def test_calibration_text_holds_every_language_and_a_needle_in_every_third(tmp_path: Path) -> None:
    def line(language: str, index: int) -> str:
        body = f"{index} " * 1_200 + ("かな" if language == "ja" else "")
        return json.dumps({"id": f"{language}{index}", "language": language, "text": body}) + "\n"

    file = tmp_path / "train.jsonl"
    lines = [line(language, index) for language in ("en", "ja", "code") for index in range(100, 130)]
    file.write_text("".join(lines) + json.dumps({"id": "s", "language": "en", "text": "short"}) + "\n")
    found = calibrate.texts(file, 18)
    file.write_text("".join(reversed(lines)))
    assert calibrate.texts(file, 18) == found
    assert len(found) == 18
    questions = [needle(language, "12345")[1] for language in ("en", "ja", "code")]
    asked = [text for text in found if any(question in text for question in questions)]
    assert len(asked) == 6
    assert all(text.count(text[-5:]) >= 2 for text in asked)
