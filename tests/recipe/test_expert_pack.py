"""The pack of random experts: the same bytes from the same seed, whole, and of the geometry that was asked for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from recipe.mini import expert_pack
from recipe.pack import read_pack
from runner.steps.seats import load_manifest, pack_of

_EXPERT = ("experts.1.down_proj", "experts.1.up_proj")
SMALL = {"seed": 3, "layers": 2, "hidden": 256, "intermediate": 128, "experts": 5, "topk": 2, "bits": 2}


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    digests = []
    for name, seed in (("one", 3), ("two", 3), ("other", 4)):
        pack = read_pack(expert_pack.generate(tmp_path / name, **(SMALL | {"seed": seed})))
        digests.append((pack.header_digest(), pack.payload_digest()))
    assert digests[0] == digests[1]
    assert digests[0][1] != digests[2][1]


def test_these_bytes_never_change(tmp_path: Path) -> None:
    """A plan is sealed with the digest of what this machine makes, and measured with what another one makes."""
    assert read_pack(expert_pack.generate(tmp_path / "pack", **SMALL)).payload_digest() == (
        "31e858899888eb3485bd34fd55ced07962ea1e27437d692f831adc024827d630"
    )


def test_what_would_be_made_is_described_without_making_it(tmp_path: Path) -> None:
    pack = read_pack(expert_pack.generate(tmp_path / "pack", **SMALL))
    config, tensors = expert_pack.described(**SMALL)
    written = json.loads((pack.folder / "config.json").read_bytes())
    assert {name: written[name] for name in config} == config
    assert {(one.name, one.dtype, one.shape, one.nbytes) for one in tensors.values()} == {
        (one.name, one.dtype, one.shape, one.nbytes) for one in pack.tensors.values()
    }


def test_routed_experts_alone_are_quiet() -> None:
    """Near ties of the router decide little then; the skeleton keeps its gain."""
    down, up, shared = (f"model.layers.0.mlp.{name}.svh" for name in (*_EXPERT, "shared_experts.down_proj"))
    coded = {name.removesuffix(".svh"): 2 for name in (down, up, shared)}
    config = {"hidden_size": 256, "intermediate_size": 128, "num_attention_heads": 1, "num_key_value_heads": 1}
    made = dict(expert_pack._layer(0, config | {"n_routed_experts": 2}, coded, expert_pack.Bits(1)))
    assert [set(np.abs(made[name]).tolist()) for name in (down, up, shared)] == [{0.25}, {1.0}, {1.0}]


def test_it_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARVE_CACHE", str(tmp_path))
    first = expert_pack.ensure(**SMALL)
    monkeypatch.setattr(expert_pack, "generate", lambda *given, **named: pytest.fail("made again"))
    assert expert_pack.ensure(**SMALL) == first
    assert first.is_relative_to(tmp_path)


def test_numbers_have_the_spread_they_say() -> None:
    values = expert_pack.Bits(1).uniform(0.5, 20_000).astype(np.float64)
    assert abs(float(values.std()) - 0.5) < 0.01
    assert abs(float(values.mean())) < 0.02
    assert set(np.unique(expert_pack.Bits(1).signs(2.0, 100)).tolist()) == {-2.0, 2.0}


def test_the_seat_names_deepseeks_geometry() -> None:
    made = load_manifest("h200-ds").generated
    assert made is not None
    assert (made.experts, made.hidden, made.intermediate, made.topk) == (256, 4096, 256, 6)
    assert pack_of(load_manifest("h200-mini")).name == "pack"
