"""Reports verify on machines whose logarithm rounds otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner import stats
from runner.alike import alike
from runner.attest.trust import load_trust
from runner.gates import blocks
from runner.paths import source_root
from runner.verify import verify
from serve.instruments import kld, speed

REPORT = Path("reports/mini-lna2/20261130-091151-7339781d")


def rounded(function: Callable[[float], float], towards: float) -> Callable[[float], float]:
    """The function of another library: every third result is one bit off."""

    def other(value: float) -> float:
        exact = function(value)
        return math.nextafter(exact, towards) if hash(value) % 3 == 0 else exact

    return other


@pytest.mark.parametrize("towards", [math.inf, -math.inf])
def test_a_report_verifies_where_logarithms_round_otherwise(monkeypatch: pytest.MonkeyPatch, towards: float) -> None:
    for module, names in (
        (kld, "exp log"),
        (speed, "exp log"),
        (stats, "exp log"),
        (blocks, "log"),
    ):
        for name in names.split():
            monkeypatch.setattr(module, name, rounded(getattr(math, name), towards))
    root = source_root()
    found = verify(root / REPORT, load_trust(root, user=False), root, deep=True)
    assert "kld-candidate" in found.replayed_drawn


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("0.123456789012", "0.123456789112"),
        ("8.5e-09", "8.6e-09"),
        ("12", "13"),
        ("1000000000001", "1000000000002"),
        ("1.5", "x"),
        ("en", "ja"),
        (1, 1.0),
        (True, 1),
        ((1, 2), (1,)),
        ({"kl": "1.0"}, {"kl": "1.0", "more": 1}),
        ("1.0", None),
    ],
)
def test_what_differs_is_not_alike(one: object, other: object) -> None:
    assert not alike(one, other)
    assert not alike({"a": [one]}, {"a": [other]})


@given(st.floats(-1e6, 1e6))
def test_a_bit_more_or_less_is_alike(value: float) -> None:
    near = math.nextafter(value, math.inf)
    assert alike({"rates": (f"{value:.12g}", "en")}, {"rates": [f"{near:.12g}", "en"]})
    assert alike("0", "1.2e-16")
