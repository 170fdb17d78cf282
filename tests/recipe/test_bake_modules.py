"""Which linears a bake names: the campaign's dense list, fused parts, slices and presets, from headers alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from carve_kernels.exl3.codebook import Codebook

from recipe import bake
from recipe.bake_modules import PRESETS, resolve
from recipe.headers import Entry
from recipe.mini.dequantise import dequantise
from recipe.mini.random_pack import generate
from recipe.quantiser_exllamav3 import arguments_of
from runner.errors import InputError
from runner.model.order.bake import Bake, Rate
from tests.recipe.overlays import job_of


def entries(shapes: dict[str, tuple[int, ...]], dtype: str = "BF16") -> dict[str, Entry]:
    """Tensors as headers would describe them, without bytes."""
    return {
        f"{name}.weight": Entry(f"{name}.weight", dtype, shape, Path("source"), 0, 0) for name, shape in shapes.items()
    }


def deepseek() -> dict[str, tuple[int, ...]]:
    """Names and shapes of the dense linears of all 43 layers, and neighbours that stay."""
    found: dict[str, tuple[int, ...]] = {"head": (129280, 4096)}
    for layer in range(43):
        prefix = f"layers.{layer}"
        found |= {f"{prefix}.attn.wq_a": (1024, 4096), f"{prefix}.attn.wkv": (512, 4096)}
        found |= {f"{prefix}.attn.wq_b": (32768, 1024), f"{prefix}.attn.wo_a": (8192, 4096)}
        found |= {f"{prefix}.attn.wo_b": (4096, 8192), f"{prefix}.ffn.gate": (256, 4096)}
        found |= {f"{prefix}.ffn.shared_experts.{part}": (2048, 4096) for part in ("w1", "w3")}
        found[f"{prefix}.ffn.shared_experts.w2"] = (4096, 2048)
        if layer >= 2:
            found |= {f"{prefix}.attn.compressor.{part}": (1024, 4096) for part in ("wkv", "wgate")}
        if layer >= 2 and layer % 2 == 0:
            found |= {f"{prefix}.attn.indexer.compressor.{part}": (256, 4096) for part in ("wkv", "wgate")}
            found |= {f"{prefix}.attn.indexer.wq_b": (8192, 1024), f"{prefix}.attn.indexer.weights_proj": (64, 4096)}
    return found | {"mtp.0.attn.wq_a": (1024, 4096)}


DEEPSEEK = Bake(preset="deepseek-v4-dense", prefix="layers", count=790, rates=(Rate(modules="layers.*", bits=6),))


def test_the_campaigns_dense_list_is_790_linears() -> None:
    targets = resolve(DEEPSEEK, entries(deepseek()))
    layers = [sum(target.name.startswith(f"layers.{layer}.") for target in targets) for layer in range(43)]
    assert layers == [15, 15] + [20, 17] * 20 + [20]
    assert [target.name for target in targets if target.name.startswith("layers.5.attn.wo_a")] == [
        f"layers.5.attn.wo_a.slice.{rank}" for rank in range(8)
    ]


@pytest.mark.parametrize(
    ("pattern", "group"),
    [("layers.7.attn.wo_a", ""), ("layers.7.attn.compressor.wgate", "layers.7.attn.compressor.fused_wkv_wgate"),
     ("layers.6.attn.indexer.compressor.wkv", "fused_wkv_wgate"), ("layers.0.attn.wq_a", "fused_wqa_wkv")],
)  # fmt: skip
def test_fused_parts_and_slices_have_one_k(pattern: str, group: str) -> None:
    recipe = DEEPSEEK.model_copy(update={"rates": (*DEEPSEEK.rates, Rate(modules=pattern, bits=4))})
    if not group:
        assert {t.bits for t in resolve(recipe, entries(deepseek())) if t.weight == f"{pattern}.weight"} == {4}
        return
    with pytest.raises(InputError, match="one served module need one K") as caught:
        resolve(recipe, entries(deepseek()))
    assert group in caught.value.where


@pytest.mark.parametrize(
    "typed",
    [{"skip": ("layers.*.attn.wkw",)}, {"rates": (*DEEPSEEK.rates, Rate(modules="layers.*.atn.wq_b", bits=8))},
     {"modules": ("layers.*.attn.wkw",)}],
    ids=["skip", "rates", "modules"],
)  # fmt: skip
def test_a_pattern_that_fits_nothing_is_refused(typed: dict[str, tuple[object, ...]]) -> None:
    with pytest.raises(InputError, match="names no module of the source") as caught:
        resolve(DEEPSEEK.model_copy(update=typed), entries(deepseek()))
    assert "wkw" in caught.value.where or "atn" in caught.value.where


def test_patterns_may_fit_what_the_bake_does_not_name() -> None:
    careful = {"skip": ("*.ffn.gate*", "head*", "mtp.*"), "rates": (*DEEPSEEK.rates, Rate(modules="mtp.*", bits=8))}
    assert len(resolve(DEEPSEEK.model_copy(update=careful), entries(deepseek()))) == 790


def test_a_source_in_float8_is_not_read_as_plain() -> None:
    with pytest.raises(InputError, match="cannot be coded") as caught:
        resolve(DEEPSEEK, entries(deepseek(), "F8_E4M3"))
    assert "dequantise the source first" in caught.value.next_step


def test_exllamav3_is_asked_for_what_the_order_says() -> None:
    found = arguments_of(6, Codebook.MCG, 1 << 40, "cuda:0")
    assert (found["K"], found["mcg"], found["devices"]) == (6, True, ["cuda:0"]) and found["seed"] < 1 << 31
    with pytest.raises(InputError, match="marked codebook"):
        arguments_of(6, Codebook.DEFAULT, 0, "cuda:0")


def test_presets_name_each_linear_once() -> None:
    for linears in PRESETS.values():
        assert len({linear.name for linear in linears}) == len(linears)


PARTED: dict[str, tuple[tuple[str, ...], dict[str, int]]] = {
    "keys alone": (("model.layers.0.self_attn.k_proj",), {}),
    "queries left out": (("*.self_attn.[kv]_proj",), {}),
    "two rates": (("model.layers.0.self_attn.[qkv]_proj",), {"*.v_proj": 4}),
    "a gate beside a coded up": (("model.layers.0.mlp.gate_proj",), {}),
}


@pytest.mark.parametrize("case", PARTED)
def test_parts_of_a_served_module_are_coded_together(case: str, tmp_path: Path) -> None:
    """Else the boot alone would say so, after an hour of coding."""
    modules, rates = PARTED[case]
    plain = dequantised(tmp_path)
    recipe = Bake(
        source=str(plain),
        modules=modules,
        rates=(Rate(modules="*", bits=3), *(Rate(modules=name, bits=bits) for name, bits in rates.items())),
    )
    with pytest.raises(InputError, match="several forms") as caught:
        bake.estimate(job_of(tmp_path, tmp_path / "pack", recipe))
    assert "name all of these parts" in caught.value.next_step


@pytest.mark.parametrize(
    ("modules", "bits", "codebook"),
    [
        (("*.self_attn.[qkv]_proj",), 3, "mcg"),
        (("*.self_attn.o_proj", "model.layers.0.mlp.down_proj"), 3, "mcg"),
        (("model.layers.0.mlp.gate_proj",), 4, "mcg"),
        (("model.layers.0.mlp.*_proj",), 2, "mul1"),
    ],
    ids=["all three", "served alone", "as its neighbour is", "both in another codebook"],
)
def test_whole_served_modules_are_taken(modules: tuple[str, ...], bits: int, codebook: str, tmp_path: Path) -> None:
    source = str(dequantised(tmp_path))
    words = {"source": source, "modules": modules, "rates": [{"modules": "*", "bits": bits}], "codebook": codebook}
    assert bake.estimate(job_of(tmp_path, tmp_path / "pack", Bake.model_validate(words))).counts


def test_an_embedding_table_is_refused_and_what_is_called_like_one_is_not(tmp_path: Path) -> None:
    source = str(dequantised(tmp_path))
    words = {"source": source, "rates": [{"modules": "*", "bits": 3}]}
    wide = {"modules": ("model.embed_tokens", "model.layers.0.self_attn.?_proj")}
    for modules in ({"modules": ("model.embed_tokens",)}, wide):
        job = job_of(tmp_path, tmp_path / "pack", Bake.model_validate(words | modules))
        for step in (bake.estimate, bake.make):
            with pytest.raises(InputError, match=r"a module that cannot be served coded(.|\n)*an embedding table"):
                step(job)
        assert not job.product.exists()
    skipped = Bake.model_validate(words | wide | {"skip": ("model.embed_tokens",)})
    assert bake.estimate(job_of(tmp_path, tmp_path / "pack", skipped)).counts["modules at K=3"] == "4"
    named = entries({"model.layers.0.embed_proj": (128, 128), "vision.patch_embed.proj": (128, 128)})
    assert len(resolve(Bake(modules=("*embed*",), rates=(Rate(modules="*", bits=3),)), named)) == 2


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("embed", "an embedding table"),
        ("model.layers.1.mlp.gate", "a router"),
        ("model.layers.4.eh_proj", "the draft layer's projection"),
        ("layers.2.attn.indexer.weights_proj", "the indexer's weights"),
    ],
)
def test_what_no_engine_serves_coded_is_refused_and_its_neighbour_is_not(name: str, kind: str) -> None:
    def bake_of(module: str) -> Bake:
        return Bake(modules=(module,), rates=(Rate(modules="*", bits=3),))

    with pytest.raises(InputError, match=rf"a module that cannot be served coded(.|\n)*{kind}"):
        resolve(bake_of(name), entries({name: (256, 128)}))
    for served in (f"{name}_proj", "lm_head"):
        assert [target.name for target in resolve(bake_of(served), entries({served: (256, 128)}))] == [served]


def dequantised(folder: Path) -> Path:
    """All plain, of a small pack in ``folder/pack`` whose attention is plain and whose dense layer has four bits."""
    pack = generate(folder / "pack", layers=1, hidden=128, intermediate=128, experts=2, topk=1, vocabulary=300)
    dequantise(pack, folder / "plain")
    return folder / "plain"
