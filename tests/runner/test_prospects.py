"""What could ever become of an order's report, said before seat time and after."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from runner.attest import dsse
from runner.check import looked_at
from runner.model.order import load_order
from runner.paths import source_root
from runner.plan_text import draft
from runner.prospects import prospect
from runner.report import REPORT
from runner.status import order_states
from runner.steps.seats import load_manifest
from tests.runner.records import make_workspace

ORDERS = source_root() / "orders"


@pytest.mark.parametrize(
    ("name", "seat", "said"),
    [
        ("mini-lna2", "", ""),
        ("mini-overlay-layer", "", ""),
        ("kernel-lna2", "", ""),
        ("h200-lna2", "", ""),
        ("mini-bake", "", "where kld, ppl-prefill, ppl-decode, needle pass, its report can never be adopted"),
        ("mini-patch", "", "its gates leave it payload alone (another comes with any of speed, "),
        ("fake-lna2", "", "the seat is simulated"),
        ("mini-lna2", "attach", "only be adopted as descriptive"),
    ],
)
def test_what_an_order_s_report_could_become(name: str, seat: str, said: str) -> None:
    order = load_order(ORDERS / f"{name}.yaml").order
    found = prospect(order, load_manifest(seat or order.target.seat))  # type: ignore[union-attr]  # these have one
    assert said in found and bool(said) == bool(found)


def test_check_and_plan_say_it() -> None:
    assert "can never be adopted" in looked_at(ORDERS / "mini-bake.yaml")
    assert "adopted" not in looked_at(ORDERS / "mini-lna2.yaml")
    value, text = draft(ORDERS / "fake-lna2.yaml")
    assert value["adoption"] in text and "the seat is simulated" in value["adoption"]


def _as_reported(name: str) -> str:
    """The order's text in its newest committed report."""
    newest = max((source_root() / "reports" / name).glob(f"*/{REPORT}"))
    text: str = json.loads(dsse.parse(newest.read_bytes()).payload)["predicate"]["order"]["text"]
    return text


def test_status_proposes_an_adoption_only_where_one_could_be(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "w")
    for folder in ("reports", "canon"):
        shutil.copytree(source_root() / folder, workspace / folder, dirs_exist_ok=True)
    for name in ("mini-bake", "mini-lna2", "mini-overlay-layer"):
        (workspace / "orders" / f"{name}.yaml").write_text(_as_reported(name), encoding="utf-8")
    found = {each.order: each for each in order_states(workspace)}
    bake = found.pop("mini-bake")
    assert bake.next.startswith("runner review ") and "2 witnesses from outside the engine are needed" in bake.detail
    assert all(each.next.startswith("runner adopt ") for each in found.values()), found
