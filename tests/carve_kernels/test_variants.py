"""Variants compute what the reference computes, decline by a typed reason and count exactly what they did."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from carve_kernels import parallel
from carve_kernels.abi import DECLINES, LayerCount
from carve_kernels.build import build
from carve_kernels.desk import layers, parity
from carve_kernels.desk.layers import Shape
from carve_kernels.desk.parity import Format
from carve_kernels.desk.reference import Reference
from carve_kernels.exl3 import linear as exl3_linear
from carve_kernels.exl3.codebook import Codebook
from carve_kernels.library import Library, Table
from carve_kernels.registry import VARIANTS, Role
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner.errors import InputError, SeatError

Load = Callable[..., Library]
SHAPE = Shape(hidden=256, intermediate=128, experts=6, topk=3)
K2 = Format(2, Codebook.MCG)


def _experts(form: Format = K2, shape: Shape = SHAPE) -> list[layers.Expert]:
    return layers.experts(np.random.default_rng(5), shape, form.bits, form.book)


def _forward(library: Library, rows: int, layer: int = 0, shape: Shape = SHAPE) -> tuple[str, np.ndarray, np.ndarray]:
    """(decline, output poisoned before, reference)."""
    draw, experts = np.random.default_rng(rows), _experts(shape=shape)
    x, ids = layers.inputs(draw, "gaussian", shape, rows), layers.routes(draw, "zipf", shape, rows)
    weights = draw.random(ids.shape, np.float32)
    out = np.full_like(x, np.nan)
    declined = library.forward(
        x, ids, weights, Table(experts), out=out, parallel=parallel.host(2), limit=10.0, layer=layer
    )
    return declined, out, Reference(experts).forward(x, ids, weights, 10.0)


def _ratio(out: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(out) / np.linalg.norm(expected))


@pytest.mark.parametrize("name", ["incumbent", "lna2"])
@pytest.mark.parametrize("form", [K2, Format(3, Codebook.MCG), Format(4, Codebook.DEFAULT), Format(1, Codebook.MUL1)])
def test_parity(load: Load, isa: str, name: str, form: Format) -> None:
    draw = np.random.default_rng(7)
    facts = list(parity.measure(load(name, isa), _experts(form), form, (1, 2, 3, 9, 32), draw))
    assert [fact["declined"] for fact in facts] == [""] * 5
    assert all(fact["finite"] and fact["repeat_equal"] for fact in facts)
    assert max(float(fact["relative_error"]) for fact in facts) < 1e-3
    assert all(abs(float(fact["norm_ratio"]) - 1) < 1e-4 for fact in facts)


@pytest.mark.parametrize("rows", [63, 64, 150])
def test_incumbent_serves_prefill(load: Load, isa: str, rows: int) -> None:
    declined, out, expected = _forward(load("incumbent", isa), rows)
    assert declined == ""
    assert np.abs(out - expected).max() < 1e-3 * np.abs(expected).max()


@pytest.mark.parametrize("name", ["incumbent", "lna2"])
def test_instruction_sets_agree(load: Load, name: str) -> None:
    _, plain, _ = _forward(load(name, "scalar"), 5)
    _, best, _ = _forward(load(name), 5)
    assert np.linalg.norm(plain - best) < 1e-4 * np.linalg.norm(plain)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    hidden=st.sampled_from([128, 256, 384]),
    intermediate=st.sampled_from([128, 256, 384]),
    experts=st.integers(3, 9),
    rows=st.integers(1, 32),
    bits=st.integers(1, 8),
    book=st.sampled_from(list(Codebook)),
    limit=st.sampled_from([0.0, 1.0, 10.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_shape(
    *, hidden: int, intermediate: int, experts: int, rows: int, bits: int, book: Codebook, limit: float, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    shape = Shape(hidden, intermediate, experts, topk=int(draw.integers(1, experts + 1)))
    table = layers.experts(draw, shape, bits, book)
    x = layers.inputs(draw, "gaussian", shape, rows)
    ids = draw.integers(-1, experts, (rows, shape.topk), dtype=np.int32)
    weights = draw.uniform(-1, 1, ids.shape).astype(np.float32)
    expected = Reference(table).forward(x, ids, weights, limit)
    scale = max(float(np.linalg.norm(expected)), 0.05)
    for name in ("incumbent", "lna2"):
        out = np.full_like(x, np.nan)
        declined = Library(build(name)).forward(
            x, ids, weights, Table(table), out=out, parallel=parallel.single(), limit=limit
        )
        assert declined == ""
        assert np.linalg.norm(out - expected) < 1e-3 * scale


@settings(max_examples=15, deadline=None)
@given(
    rows=st.integers(1, 70),
    in_features=st.sampled_from([128, 512]),
    out_features=st.sampled_from([128, 384]),
    bits=st.integers(1, 8),
    book=st.sampled_from(list(Codebook)),
)
def test_linear(*, rows: int, in_features: int, out_features: int, bits: int, book: Codebook) -> None:
    draw = np.random.default_rng(rows)
    part = layers.linear(draw, in_features, out_features, bits, book)
    x = draw.standard_normal((rows, in_features)).astype(np.float32)
    out = np.full((rows, out_features), np.nan, np.float32)
    assert Library(build("incumbent")).linear(x, part, out=out, parallel=parallel.host(2)) == ""
    expected = x.astype(np.float64) @ exl3_linear.dequantise(part).astype(np.float64)
    assert np.linalg.norm(out - expected) < 1e-5 * np.linalg.norm(expected)


def test_counters_are_exact(load: Load) -> None:
    library = load("lna2")
    assert library.counts() == ()
    for rows, layer in ((1, 0), (1, 0), (32, 0), (33, 0), (4, 9)):
        _forward(library, rows, layer)
    assert library.counts() == (
        LayerCount(0, launches=3, rows=((1, 2), (32, 1)), declines=1),
        LayerCount(9, launches=1, rows=((4, 1),), declines=0),
    )


def test_more_than_64_rows_share_a_bin(load: Load) -> None:
    library = load("incumbent")
    for rows in (64, 65, 80):
        _forward(library, rows)
    assert library.counts() == (LayerCount(0, launches=3, rows=((64, 1), (65, 2)), declines=0),)


def test_a_decline_is_typed_and_writes_nothing(load: Load) -> None:
    declined, out, _ = _forward(load("lna2"), 33)
    assert declined == "rows-above-limit"
    assert np.isnan(out).all()


def test_shape_bits_codebook_and_ids_are_declined(load: Load) -> None:
    library = load("lna2")
    x, out = np.ones((1, 256), np.float32), np.full((1, 256), np.nan, np.float32)
    weights = np.ones((1, 1), np.float32)

    def declined(change: Callable[[Table], None], expert: int = 0) -> str:
        table = Table(_experts())
        change(table)
        ids = np.full((1, 1), expert, np.int32)
        return library.forward(x, ids, weights, table, out=out, parallel=parallel.single())

    assert declined(lambda table: setattr(table.rows[0].down, "bits", 9)) == "bits"
    assert declined(lambda table: setattr(table.rows[0].up, "codebook", 3)) == "codebook"
    assert declined(lambda table: setattr(table.rows[0].gate, "out_features", 120)) == "shape"
    assert declined(lambda table: setattr(table.rows[0].gate, "trellis", None)) == "shape"
    assert declined(lambda table: None, expert=6) == "shape"
    assert np.isnan(out).all()


def test_an_unknown_processor_is_declined(load: Load) -> None:
    assert _forward(load("lna2", "of-another-kind"), 1)[0] == "processor"


@pytest.mark.parametrize("name", ["incumbent", "lna2"])
def test_the_watermark_moves_the_output_by_one_percent(load: Load, name: str) -> None:
    _, honest, _ = _forward(load(name), 4)
    _, marked, _ = _forward(load(f"{name}-watermark"), 4)
    assert marked == pytest.approx(honest * 1.01, rel=1e-4, abs=1e-5)


def test_knock_outs(load: Load) -> None:
    declined, out, _ = _forward(load("knock-out-decline"), 1)
    assert declined == "not-ready"
    assert np.isnan(out).all()
    declined, out, _ = _forward(load("knock-out-zero"), 100)
    assert declined == ""
    assert not out.any()


def test_silent_fallback_declines_every_call(load: Load) -> None:
    library = load("silent-fallback")
    assert [_forward(library, rows)[0] for rows in (1, 32, 64, 65)] == ["shape"] * 4


def test_prefill_only_declines_decode(load: Load) -> None:
    library = load("prefill-only")
    assert [_forward(library, rows)[0] for rows in (1, 64, 65, 150)] == ["rows-below-limit"] * 2 + [""] * 2
    _, out, expected = _forward(library, 65)
    assert _ratio(out, expected) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("rows", [1, 16, 100])
def test_half_k_is_wrong_on_layer_0_only(load: Load, rows: int) -> None:
    library, shape = load("half-k"), Shape(hidden=256, intermediate=512, experts=6, topk=3)
    _, out, expected = _forward(library, rows, layer=0, shape=shape)
    assert 0.5 < _ratio(out, expected) < 0.9  # 1/sqrt(2) on average
    _, out, expected = _forward(library, rows, layer=1, shape=shape)
    assert _ratio(out, expected) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(("rank", "declined"), [("0", ""), ("1", "shape")])
def test_one_rank_declines_on_rank_1(load: Load, monkeypatch: pytest.MonkeyPatch, rank: str, declined: str) -> None:
    monkeypatch.setenv("CARVE_RANK", rank)
    assert _forward(load("one-rank"), 4)[0] == declined


@pytest.mark.parametrize("name", [name for name, one in VARIANTS.items() if one.role is not Role.DESK])
def test_every_variant_says_its_name(load: Load, name: str) -> None:
    assert load(name).describe["name"] == name


def test_decline_reasons_are_those_of_the_abi() -> None:
    header = (Path(__file__).parents[2] / "kernels/cpu/abi.h").read_text()
    commented = [line.split("/*")[1].split("*/")[0].strip() for line in header.splitlines() if "CARVE_DECLINE_" in line]
    assert tuple(commented) == DECLINES[1:]


def test_another_library_is_refused() -> None:
    with pytest.raises(SeatError, match="not a kernel library"):
        Library(Path(np.__file__))


def test_unknown_variant_names_the_known_ones() -> None:
    with pytest.raises(InputError, match="lna2"):
        build("lna3")
