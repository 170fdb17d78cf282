"""Orders whose candidate is made: planned, executed on the fake seat, and refused where what was made is not served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recipe.closure import INDEX
from recipe.pack import read_pack
from runner.check import check
from runner.errors import InputError, SeatError
from runner.model.order import OrderFile, OverlayOrder, load_order, parse_order
from runner.paths import source_root
from runner.plan import compile_plan, runnable
from runner.plan_text import draft
from runner.session import open_run, release
from runner.steps.seats import load_manifest
from runner.steps.state import Silent
from runner.workflow import STEPS
from runner.workflow import execute as execute_steps
from serve.adapters.fake import FakeSeat
from serve.seat import Boot, BootRequest
from tests.recipe.overlays import contents, donor_pack, source_pack
from tests.runner.flow_orders import HEAD, write_order
from tests.runner.test_workflow import ask, execute

RECIPE = """recipe:
  what: layer
  source: {{pack: {source}}}
  donor: {{pack: {donor}}}
  layers: {{model.layers.1: model.layers.1}}
  experts: mlp.experts
"""
GATES = """gates:
  - name: pack
  - name: product
    parameters: {{loaded: {loaded}}}
  - name: resolved
  - name: ppl-decode
    parameters: {{margin: 0.0198}}
    windows: {{documents: 20, tokens: 12, rows: 4}}
  - name: restore
kill_lines:
  - gate: product
"""


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("packs")
    return source_pack(folder / "source"), donor_pack(folder / "donor")


def overlay_order(packs: tuple[Path, Path], loaded: str = "changed") -> str:
    head = HEAD.format(name="small-overlay", kind="overlay", seat="fake")
    return head + RECIPE.format(source=packs[0], donor=packs[1]) + GATES.format(loaded=loaded)


def test_an_overlay_order_ends_in_a_signed_report_with_provenance(
    packs: tuple[Path, Path], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(packs[0])
    code, verdicts, report = execute(capsys, write_order(home, overlay_order(packs)))
    assert {name: one["status"] for name, one in verdicts.items()} == dict.fromkeys(verdicts, "PASS"), verdicts
    assert code == 0
    assert ask(capsys, "verify", "--deep", "--require", "pass", str(report))[0] == 0
    assert contents(packs[0]) == before
    run = home / "state" / "runs" / report.name
    product = read_pack(run / "product")
    record = json.loads((run / "record.json").read_text())
    assert record["plan"]["subjects"]["product.header"] == product.header_digest()
    arms = {boot["planned"]: boot["ranks"][0]["weights"] for boot in record["boots"] if boot["planned"] != "desk"}
    assert arms["candidate-only"] == product.header_digest() != arms["incumbent-only"]
    told = json.loads(json.loads((run / "evidence" / "product.json").read_text())["facts"]["provenance"])
    assert len(told["tensors"]) == 24
    it_can_be_taken_out(run, capsys)


def it_can_be_taken_out(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where it lies, and a copy of it: as long as it is what was sealed, to the last small file."""
    made, out = run / "product", run.parent.parent / "out"
    code, found = ask(capsys, "product", run.name)
    assert (code, found["verdict"], found["folder"], found["unsealed"]) == (0, "PASS", str(made), [])
    assert ask(capsys, "product", run.name, "--to", str(out / "pack"))[0] == 3, "no folder is made that nobody named"
    out.mkdir()
    assert ask(capsys, "product", run.name, "--to", str(out / "pack"))[0] == 0
    assert contents(out / "pack") == contents(made)
    assert all(file.stat().st_nlink == 1 for file in (out / "pack").iterdir())
    code, said = ask(capsys, "product", run.name, "--to", str(out / "pack"))
    assert code == 2 and said["error"]["what"] == "the folder exists already"
    for name in ("config.json", "tokenizer.json", "model-00001-of-00004.safetensors", "provenance.json"):
        kept = (made / name).read_bytes()
        (made / name).write_bytes(kept.replace(b"}", b" }", 1) if name.endswith("json") else kept[:-1] + b"!")
        code, said = ask(capsys, "product", run.name, "--to", str(out / "other"))
        assert code == 3 and said["error"]["what"] == "the product is not the one that was sealed"
        (made / name).write_bytes(kept)
    (made / "modeling.py").write_text("import os\n")
    assert ask(capsys, "product", run.name, "--to", str(out / "other"))[0] == 3
    (made / "modeling.py").unlink()
    assert ask(capsys, "product", run.name, "--to", "/proc/pack")[0] == 2
    for inside, words in (
        (made / "copy", "inside a pack"),
        (made / "deep/er", "no place for a copy"),
        (out / "pack/copy", "inside a pack"),
    ):
        before = sorted(made.rglob("*"))
        code, said = ask(capsys, "product", run.name, "--to", str(inside))
        assert code == 3 and words in said["error"]["what"]
        assert sorted(made.rglob("*")) == before
    made.rename(run / "elsewhere")
    code, said = ask(capsys, "product", run.name)
    assert code == 2 and said["error"]["what"] == "what this run made is gone"
    (run / "product.json").rename(run / "other.json")
    assert ask(capsys, "product", run.name)[0] == 2
    assert ask(capsys, "product", "no-such-run")[0] == 3
    assert [path.name for path in out.iterdir()] == ["pack"]


def test_weights_that_should_be_the_same_and_are_not_stop_the_run(
    packs: tuple[Path, Path], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, verdicts, _ = execute(capsys, write_order(home, overlay_order(packs, loaded="same")))
    assert verdicts["product"]["status"] == "FAIL"
    assert "other weights than the incumbent's" in verdicts["product"]["reasons"][0]
    assert code == 1


def test_a_product_exchanged_after_sealing_is_never_booted(packs: tuple[Path, Path], home: Path) -> None:
    order = write_order(home, overlay_order(packs))
    run = open_run(order, progress=Silent())
    name, sealed = run.name, STEPS[: [step.__name__ for step in STEPS].index("self_test")]
    with pytest.raises(AssertionError, match="the last step"):
        execute_steps(run, sealed)
    release(run)
    for file in (packs[0] / "model-00003-of-00004.safetensors", packs[0] / INDEX, packs[0] / "config.json"):
        (run.folder / "product" / file.name).write_bytes(file.read_bytes())
    again = open_run(order, resume=name, progress=Silent())
    assert execute_steps(again) == 1
    release(again)
    record = json.loads((run.folder / "record.json").read_text())
    verdicts = {one["gate"]: one for one in record["verdicts"]}
    assert verdicts["product"]["status"] == "FAIL"
    assert any("sealed was" in reason for reason in verdicts["product"]["reasons"])
    assert {boot["planned"] for boot in record["boots"]} == {"desk"}, "the kill line struck before an engine started"


EXCHANGES = ("exchanged", "exchanged and put back", "linked by another overlay")


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_what_was_served_is_the_sealed_product(
    exchange: str,
    packs: tuple[Path, Path],
    home: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The desk has read the product and found it sound; then something is done to it around the boot that serves it."""
    honest, name = FakeSeat.boot, "model-00001-of-00004.safetensors"

    def boot(self: FakeSeat, request: BootRequest) -> Boot:
        file, kept = request.pack / name, request.folder / "kept"
        if request.planned.id != "candidate-only":
            return honest(self, request)
        if exchange == "linked by another overlay":
            kept.hardlink_to(file)
            return honest(self, request)
        content = file.read_bytes()
        file.rename(kept)
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        started = honest(self, request)
        if exchange == "exchanged and put back":
            kept.replace(file)
        return started

    monkeypatch.setattr(FakeSeat, "boot", boot)
    _, verdicts, report = execute(capsys, write_order(home, overlay_order(packs)))
    said = "; ".join(verdicts["product"]["reasons"])
    if exchange == "linked by another overlay":
        assert verdicts["product"]["status"] == "PASS", said
    else:
        assert verdicts["product"]["status"] == "FAIL"
        assert f"{name} was written or exchanged" in said
        assert ("payload after candidate-only" in said) == (exchange == "exchanged")
    assert ask(capsys, "verify", "--deep", str(report))[0] == 0


def test_the_plan_boots_each_arm_once_and_counts_without_writing(packs: tuple[Path, Path], home: Path) -> None:
    value, text = draft(write_order(home, overlay_order(packs)))
    boots = {boot["id"]: boot.get("product", False) for boot in value["plan"]["boots"]}
    assert boots == {"desk": True, "incumbent-only": False, "candidate-only": True}
    arms = {window["id"]: window["boot"] for window in value["plan"]["windows"]}
    assert arms["ppl-decode-incumbent"] == "incumbent-only"
    assert arms["ppl-decode-candidate"] == "candidate-only"
    assert value["make"]["tensors out"] == "24"
    assert "make bytes in" in text
    assert not (home / "state").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("  - name: restore", "  - name: engaged"), "is about a native library"),
        (("  - name: restore", "  - {name: parity}"), "is about a native library"),
        (("  - name: product\n    parameters: {loaded: changed}\n", ""), "gate product is missing"),
        (("loaded: changed", "loaded: whatever"), "product: loaded"),
    ],
    ids=str,
)
def test_an_order_that_shows_nothing_is_refused(change: tuple[str, str], words: str, packs: tuple[Path, Path]) -> None:
    text = overlay_order(packs).replace(*change).replace("kill_lines:\n  - gate: product\n", "")
    faults = check(parse_order(text), load_manifest("fake"))
    assert any(words in fault.message for fault in faults), faults


def test_an_order_without_recipe_or_seat_has_no_run(packs: tuple[Path, Path]) -> None:
    order = parse_order(overlay_order(packs))
    assert isinstance(order, OverlayOrder)

    def file(**changes: Any) -> OrderFile:
        return OrderFile(order=order.model_copy(update=changes), text="", digest="0" * 64)

    assert runnable(file()) == order
    with pytest.raises(InputError, match="what is to be made"):
        runnable(file(recipe=None))
    with pytest.raises(SeatError, match="names no seat"):
        runnable(file(target=None))


@pytest.mark.parametrize("name", ["mini-overlay-layer", "mini-overlay-mtp"])
def test_the_committed_overlay_orders_can_be_decided(name: str) -> None:
    file = load_order(source_root() / "orders" / f"{name}.yaml")
    manifest = load_manifest("cpu-mini")
    assert check(file.order, manifest) == ()
    plan = compile_plan(file, manifest, {"product.header": "1" * 64, "pack.header": "2" * 64}, "0" * 64)
    sealed = next(gate for gate in plan.gates if gate.name == "product").parameters
    assert sealed["digests"] == {"header": "1" * 64}
