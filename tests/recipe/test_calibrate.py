"""Calibration against moments worked out by hand from the model's own activations."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recipe.mini import dequantise, random_pack
from recipe.mini.glm import coded_modules

pytestmark = pytest.mark.engine

DOCUMENTS = ["the little world", "x = 1\ny = 2\n", "日本語"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibrate")
    sizes: dict[str, Any] = {"hidden": 128, "intermediate": 128, "experts": 4, "topk": 2, "vocabulary": 300}
    return dequantise.dequantise(random_pack.generate(folder / "pack", draft_layers=1, **sizes), folder / "float")


def test_moments_of_every_module_of_the_main_layers(checkpoint: Path) -> None:
    import json  # noqa: PLC0415

    import torch  # noqa: PLC0415 - the engine extra
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415

    from recipe.mini import calibrate  # noqa: PLC0415

    found = calibrate.hessians(checkpoint, DOCUMENTS)
    config = json.loads((checkpoint / "config.json").read_text())
    assert set(found) == {name for name in coded_modules(config, ((2, 2),), 4) if ".layers.2." not in name}

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
