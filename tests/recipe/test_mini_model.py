"""The training module against transformers' Glm4Moe, and the shape of what it exports."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Glm4MoeForCausalLM

from recipe.mini.export import export, named_tensors, restore
from recipe.mini.model import Experts, MiniModel, Shape

TINY = Shape(
    vocab_size=64, hidden_size=32, num_hidden_layers=3, head_dim=16, num_attention_heads=4, num_key_value_heads=2,
    intermediate_size=48, moe_intermediate_size=16,
)  # fmt: skip


def random_model(shape: Shape, seed: int = 3) -> MiniModel:
    torch.manual_seed(seed)
    model = MiniModel(shape)
    model.eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3) if parameter.dim() > 1 else parameter.uniform_(0.5, 1.5)
        for experts in model.experts():
            experts.correction.normal_(std=0.3)
    return model


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_logits_equal_transformers_after_export(tmp_path: Path, seed: int) -> None:
    model = random_model(TINY, seed)
    export(model, tmp_path, torch.float32)
    theirs = Glm4MoeForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    tokens = torch.randint(0, TINY.vocab_size, (2, 40))
    with torch.no_grad():
        expected, found = theirs(tokens).logits, model.lm_head(model(tokens))
    assert expected.std() > 0.1
    assert (expected - found).abs().max() < 1e-4


def test_the_correction_bias_chooses_but_does_not_weigh() -> None:
    experts = random_model(TINY).experts()[0]
    hidden = torch.randn(5, TINY.hidden_size)
    with torch.no_grad():
        experts.correction.fill_(0).index_fill_(0, torch.tensor([2]), 100.0)
        weights = experts.route(hidden)
    assert (weights[:, 2] > 0).all()
    assert torch.allclose(weights.sum(1), torch.full((5,), TINY.routed_scaling_factor))
    assert ((weights > 0).sum(1) == TINY.num_experts_per_tok).all()


def test_training_counts_the_load_of_every_expert() -> None:
    experts = random_model(TINY).experts()[0]
    experts.train()
    experts.route(torch.randn(7, TINY.hidden_size))
    assert experts.load.sum() == 7 * TINY.num_experts_per_tok


def test_noise_acts_in_training_only() -> None:
    experts = random_model(TINY).experts()[0]
    hidden = torch.randn(1, 4, TINY.hidden_size)
    with torch.no_grad():
        clean = experts(hidden)
        experts.noise = 0.1
        assert torch.equal(experts(hidden), clean)
        experts.train()
        assert not torch.equal(experts(hidden), clean)


def test_draft_never_sees_beyond_the_next_token() -> None:
    model = random_model(TINY)
    tokens = torch.randint(0, TINY.vocab_size, (1, 12))
    changed = tokens.clone()
    changed[0, 8] = (changed[0, 8] + 1) % TINY.vocab_size
    with torch.no_grad():
        first = model.draft_hidden(tokens, model(tokens))
        second = model.draft_hidden(changed, model(changed))
    assert torch.equal(first[0, :7], second[0, :7])
    assert not torch.equal(first[0, 7], second[0, 7])


def test_export_names_and_shapes(tmp_path: Path) -> None:
    export(random_model(TINY), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    experts, draft = TINY.n_routed_experts, TINY.num_hidden_layers
    for layer in (1, 2, draft):
        for index in range(experts):
            assert tensors[f"model.layers.{layer}.mlp.experts.{index}.down_proj.weight"].shape == (32, 16)
        assert tensors[f"model.layers.{layer}.mlp.shared_experts.up_proj.weight"].shape == (16, 32)
        assert tensors[f"model.layers.{layer}.mlp.gate.e_score_correction_bias"].dtype == torch.float32
    assert "model.layers.0.mlp.gate_proj.weight" in tensors
    assert tensors[f"model.layers.{draft}.eh_proj.weight"].shape == (32, 64)
    assert f"model.layers.{draft}.shared_head.norm.weight" in tensors
    assert not [name for name in tensors if "shared_head.head" in name or f"{draft}.embed" in name]
    assert tensors["lm_head.weight"].dtype == torch.float16


def test_a_checkpoint_comes_back_as_the_same_model(tmp_path: Path) -> None:
    model = random_model(TINY)
    export(model, tmp_path, torch.float32)
    back = restore(tmp_path)
    assert back.shape == TINY
    for (name, first), (_, second) in zip(named_tensors(model), named_tensors(back), strict=True):
        assert torch.equal(first, second), name


def test_a_checkpoint_with_foreign_or_missing_tensors_is_refused(tmp_path: Path) -> None:
    export(random_model(TINY), tmp_path, torch.float32)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file(tensors | {"model.layers.9.x": torch.ones(1)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"model\.layers\.9\.x"):
        restore(tmp_path)
    del tensors["model.norm.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(KeyError, match=r"model\.norm"):
        restore(tmp_path)


def test_export_refuses_what_half_precision_cannot_hold(tmp_path: Path) -> None:
    model = random_model(TINY)
    with torch.no_grad():
        model.lm_head.weight[0, 0] = 1e6
    with pytest.raises(ValueError, match=r"lm_head\.weight does not fit"):
        export(model, tmp_path)


def test_every_layer_after_the_dense_ones_has_experts() -> None:
    model = random_model(TINY)
    assert [isinstance(layer.mlp, Experts) for layer in model.layers] == [False, True, True]
    assert len(model.experts()) == 3
