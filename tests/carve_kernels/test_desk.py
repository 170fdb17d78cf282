"""The desk's facts are parity cases, and it refuses what is wrong."""

from __future__ import annotations

import json

import numpy as np
import pytest
from carve_kernels.desk import bench, layers, parity
from carve_kernels.desk.layers import ROUTES, Shape

from runner.model.desk_measure import ParityCase


def test_facts_are_parity_cases(capsys: pytest.CaptureFixture[str]) -> None:
    assert parity.main(["--variant", "lna2", "--rows", "1", "33", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    cases = [ParityCase.model_validate(case) for case in printed["cases"]]
    assert printed["library"]["name"] == "lna2"
    assert {case.declined for case in cases if case.rows == 33} == {"rows-above-limit"}
    assert {case.bits for case in cases} == {1, 2, 3, 4}


@pytest.mark.parametrize("name", ["half-k", "lna2-watermark", "knock-out-zero"])
def test_wrong_variants_fail(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert parity.main(["--variant", name, "--rows", "2"]) == 1
    assert "norm ratio" in capsys.readouterr().out


def test_nan_left_in_the_output_is_seen() -> None:
    expected = np.ones((2, 4))
    left = np.full((2, 4), np.nan, np.float32)
    reading = parity.compare([left, left], expected, "")
    assert not reading.finite


def test_outputs_that_differ_in_one_bit_are_seen() -> None:
    expected = np.ones((2, 4))
    first = expected.astype(np.float32)
    second = first.copy()
    second[1, 3] = np.nextafter(np.float32(1), np.float32(2))
    assert parity.compare([first, first.copy()], expected, "").repeat_equal
    assert not parity.compare([first, second], expected, "").repeat_equal


def test_one_bad_row_is_not_diluted() -> None:
    expected = np.ones((32, 64))
    out = expected.astype(np.float32)
    out[17] *= 1.5
    reading = parity.compare([out, out], expected, "")
    assert reading.relative_error == pytest.approx(0.5)
    assert reading.norm_ratio == pytest.approx(1.5)


@pytest.mark.parametrize("kind", ROUTES)
def test_routes_are_what_they_say(kind: layers.Route) -> None:
    shape = Shape(128, 128, experts=8, topk=4)
    ids = layers.routes(np.random.default_rng(1), kind, shape, 16)
    assert ids.shape == (16, 4)
    assert ids.dtype == np.int32
    seen = {
        "unique": len(np.unique(ids[:2])) == 8,
        "hot": (ids == ids[0]).all(),
        "zipf": (ids == 0).sum() > (ids == 7).sum(),
        "boundary": (ids[:, 0] == 0).all() and (ids[:, -1] == 7).all(),
        "duplicates": (ids[:, 0] == ids[:, -1]).all(),
        "negative": (ids[0] == -1).all() and (ids[1:] == -1).any() and (ids >= 0).any(),
    }
    assert seen[kind]


def test_bench_reports_every_combination(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--rows", "1", "2", "--bits", "2", "--calls", "4", "--threads", "1", "--json"]) == 0
    timings = json.loads(capsys.readouterr().out)
    assert [(one["rows"], one["variant"]) for one in timings] == [
        *((1, "incumbent"), (1, "lna2"), (2, "incumbent"), (2, "lna2"))
    ]
    assert all(0 < one["minimum_us"] <= one["median_us"] <= one["p95_us"] for one in timings)


def test_bench_decode_rates(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--decode", "--bits", "2"]) == 0
    assert capsys.readouterr().out.count("Gw/s") == 3
