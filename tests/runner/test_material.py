"""Prompts, needles and perturbations of a real report follow from its seed and its plan, and from no other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner import ledger
from runner.attest import dsse
from runner.attest.keys import PrivateKey
from runner.attest.trust import load_trust, repository_file, signer_line, trust_key
from runner.digest import canonical_json, sha256_bytes, sha256_json
from runner.draw import Draw
from runner.errors import TrustError
from runner.exploits.honest import load, refusal
from runner.judge import judge
from runner.material import card_answer, check_material, desk_seed, needle_answer
from runner.measured import pack_json, unpack
from runner.model.evidence import Call, Evidence
from runner.model.plan import PlannedWindow
from runner.model.report import Measured, Packed
from runner.paths import source_root
from runner.report import REPORT
from runner.verify import verify
from tests.runner.records import make_run

GOLDEN = source_root() / "tests" / "records" / "v1"
DRAW = Draw(bytes(32), "1" * 64)
PLAN = make_run().record.plan
WINDOW = PLAN.windows[0]


def evidence(**material: Any) -> Evidence:
    own = make_run().files[f"evidence/{WINDOW.id}.json"]
    return Evidence.model_validate_json(own).model_copy(update={"material": material})


def test_what_was_drawn_is_accepted() -> None:
    label = WINDOW.id
    documents = DRAW.permutation(f"{label}/en", 40)[:6]
    drawn = {"en": {"of": 40, "documents": documents}}
    needles = {"en-10": {"answer": needle_answer(DRAW, label, "en-10")}}
    check_material(evidence(texts={}, drawn=drawn, needles=needles), PLAN, DRAW, "x")


def test_a_window_of_another_plan_is_refused() -> None:
    with pytest.raises(TrustError, match="not in the plan"):
        check_material(evidence(), PLAN.model_copy(update={"windows": ()}), DRAW, "x")


@pytest.mark.parametrize(
    "material",
    [
        {"texts": {}},
        {"drawn": {"en": {"of": 40, "documents": [0, 1, 2]}}},
        {"needles": {"en-10": {"answer": "731204"}}, "drawn": {"en": {"of": 40, "documents": []}}},
    ],
)
def test_what_was_chosen_is_refused(material: dict[str, Any]) -> None:
    with pytest.raises(TrustError, match="do not follow from the seed"):
        check_material(evidence(**material), PLAN, DRAW, "x")


def planned_texts(*names: str) -> dict[str, Any]:
    return {name: {"language": name.rpartition("-")[2], "tokens": [1]} for name in names}


WHOLE = {
    "kld@1": (
        {"documents": 4, "languages": ["en", "ja", "code"]},
        "texts",
        planned_texts("d001-en", "d002-ja", "d003-code", "d004-en"),
    ),
    "acceptance@1": ({"texts": 2, "language": "ja"}, "texts", planned_texts("d001-ja", "d002-ja")),
    "speed@1": (
        {"streams": 2, "languages": ["en", "ja"]},
        "texts",
        {f"{language}-{stream}": {"language": language} for language in ("en", "ja") for stream in (1, 2)},
    ),
    "score@1": (
        {"items": 2, "languages": ["en", "ja"]},
        "items",
        {
            name: {"language": language, "choices": ["a"], "answer": 0}
            for name, language in (("i001", "en"), ("i002", "ja"))
        },
    ),
    "needle@1": (
        {"depths": [5, 50], "languages": ["en", "ja"]},
        "needles",
        {
            f"{language}-{depth}": {
                "language": language,
                "answer": needle_answer(DRAW, WINDOW.id, f"{language}-{depth}"),
            }
            for language in ("en", "ja")
            for depth in ("05", "50")
        },
    ),
    "vision@1": (
        {"cards": 2, "digits": 3},
        "cards",
        {name: {"answer": card_answer(DRAW, WINDOW.id, name, 3)} for name in ("c1", "c2")},
    ),
}
"""By instrument: what a window is told, the kind of its material, and all of it."""


@pytest.mark.parametrize("instrument", WHOLE)
def test_nothing_that_the_plan_asks_for_is_left_out(instrument: str) -> None:
    """Whoever leaves out the needles that were lost, or a language, has measured something else."""
    arguments, kind, whole = WHOLE[instrument]
    window = WINDOW.model_copy(update={"instrument": instrument, "arguments": arguments, "arm": "candidate"})
    plan = PLAN.model_copy(update={"windows": (window,)})
    drawn = {"en": {"of": 40, "documents": []}}

    def check(material: dict[str, Any]) -> None:
        check_material(evidence(**{kind: material, "drawn": drawn}), plan, DRAW, "x")

    check(whole)
    last = max(whole)
    changed = [{name: each for name, each in whole.items() if name != last}, whole | {"z": whole[last]}, {}]
    if kind != "cards":
        changed.append(whole | {last: whole[last] | {"language": "fr"}})
    for material in changed:
        with pytest.raises(TrustError, match="do not follow from the seed"):
            check(material)


def test_a_perturbation_of_ones_own_is_refused() -> None:
    arguments = {"rank": 0, "layer": "x", "expert": 1, "projection": "up", "factor": 1.0}
    own = evidence().model_copy(update={"calls": (Call(method="perturb", arguments=arguments, results=(), at_ns=0),)})
    with pytest.raises(TrustError, match="do not follow from the seed"):
        check_material(own, PLAN, DRAW, "x")


def desk_evidence(window: PlannedWindow, **arguments: Any) -> Evidence:
    """Of one desk job, asked with what the plan names and these on top."""
    asked = {**window.arguments, "seed": desk_seed(DRAW, window.id), **arguments}
    call = Call(method="kernel-speed", arguments=asked, results=(), at_ns=0)
    return evidence().model_copy(update={"instrument": window.instrument, "calls": (call,)})


def test_a_desk_job_is_asked_with_what_seed_and_plan_say() -> None:
    window = WINDOW.model_copy(update={"instrument": "kernel-speed@1", "arguments": {"rows": [1, 2], "cold": 24}})
    plan = PLAN.model_copy(update={"windows": (window,)})
    check_material(desk_evidence(window), plan, DRAW, "x")
    none = desk_evidence(window).model_copy(update={"calls": ()})
    for other in (desk_evidence(window, seed=7), desk_evidence(window, rows=[1]), desk_evidence(window, warm=1), none):
        with pytest.raises(TrustError, match="do not follow from the seed"):
            check_material(other, plan, DRAW, "x")


def test_evidence_that_names_another_plan_is_refused() -> None:
    own = evidence()
    check_material(own.model_copy(update={"plan": DRAW.plan}), PLAN, DRAW, "x")
    check_material(own, PLAN, DRAW, "x")  # of before plans were named in it
    assert "plan" not in own.model_dump(mode="json")
    with pytest.raises(TrustError, match="evidence of another plan"):
        check_material(own.model_copy(update={"plan": "2" * 64}), PLAN, DRAW, "x")


@pytest.fixture
def drawn_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan is not compared with what its order gives: what was drawn from it has to notice by itself."""
    monkeypatch.setattr("runner.verify.check_plan", lambda *sealed: None)


@pytest.mark.usefixtures("drawn_alone")
@pytest.mark.parametrize(("more", "reason"), [(0, ""), (1, "the prompts do not follow from the seed and the plan")])
def test_the_plan_of_a_desk_report_cannot_be_changed_by_whoever_signed_it(more: int, reason: str) -> None:
    root = source_root()
    honest = load(root / "reports/kernel-dense/20261130-141114-0709946c", root, load_trust(root, user=False))

    def change(_: dict[str, Any], record: dict[str, Any]) -> None:
        record["plan"]["windows"][0]["seconds"] += more

    assert refusal(honest, change, announced=True) == reason


Forge = Callable[[dict[str, Any]], None]


@pytest.fixture
def own_copy(tmp_path: Path) -> tuple[Path, PrivateKey]:
    """The golden workspace as if this key had signed it."""
    workspace = Path(shutil.copytree(GOLDEN, tmp_path / "workspace"))
    key = PrivateKey.generate()
    trust_key(repository_file(workspace), signer_line("runner", "forger", key.public))
    return workspace, key


def forge(workspace: Path, key: PrivateKey, order: str, change: Forge) -> Path:
    """Change the plan of the golden report, judge again, and sign report and intent so that every digest fits."""
    (folder,) = (workspace / "reports" / order).iterdir()
    statement = json.loads(dsse.parse((folder / REPORT).read_bytes()).payload)
    predicate = statement["predicate"]
    record: dict[str, Any] = unpack(Packed.model_validate(predicate["record"]), "x")[1]
    change(record["plan"])
    digest = sha256_json(record["plan"])
    old = workspace / ledger.LEDGER / f"{predicate['plan']['intent']}{ledger.SUFFIX}"
    intent = json.loads(dsse.parse(old.read_bytes()).payload)
    for each in (statement, intent):
        for subject in each["subject"]:
            subject["digest"]["sha256"] = digest if subject["name"] == "plan" else subject["digest"]["sha256"]
    intent["predicate"]["plan_digest"] = predicate["plan"]["digest"] = digest
    signed = dsse.sign(canonical_json(intent), key)
    ledger.append(workspace, ledger.LEDGER, signed)
    predicate["plan"]["intent"] = sha256_bytes(signed)
    predicate["parents"] = [predicate["plan"]["intent"]]
    measured = Measured.model_validate_json(canonical_json(record))
    verdicts = [judge(measured.plan, gate, measured.samples, measured.boots) for gate in measured.plan.gates]
    for gate, verdict in zip(predicate["gates"], verdicts, strict=True):
        said = verdict.model_dump(mode="json")
        gate.update(verdict=said["status"], reasons=said["reasons"], figures=said["figures"])
    predicate["record"] = pack_json(record).model_dump(mode="json")
    (folder / REPORT).write_bytes(dsse.sign(canonical_json(statement), key))
    return folder


def move_margin(plan: dict[str, Any]) -> None:
    (gate,) = (each for each in plan["gates"] if each["name"] == "ppl-decode")
    gate["parameters"]["margin"] = "0.006"


def ignore_a_field(plan: dict[str, Any]) -> None:
    (gate,) = (each for each in plan["gates"] if each["name"] == "resolved")
    gate["parameters"]["ignored"] = ["strict"]


@pytest.mark.usefixtures("drawn_alone")
@pytest.mark.parametrize(
    ("order", "change", "reason"),
    [
        ("small-half-k", move_margin, "positions that the seed did not draw"),
        ("small-one-rank", ignore_a_field, "the prompts do not follow from the seed and the plan"),
    ],
)
def test_a_plan_changed_by_the_runner_itself_asks_other_prompts(
    own_copy: tuple[Path, PrivateKey], order: str, change: Forge, reason: str
) -> None:
    workspace, key = own_copy
    folder = forge(workspace, key, order, change)
    with pytest.raises(TrustError, match=reason):
        verify(folder, load_trust(workspace, user=False), workspace, deep=True)


@pytest.mark.parametrize("order", ["small-half-k", "small-one-rank"])
def test_forging_without_a_change_is_accepted(own_copy: tuple[Path, PrivateKey], order: str) -> None:
    workspace, key = own_copy
    folder = forge(workspace, key, order, lambda plan: None)
    assert verify(folder, load_trust(workspace, user=False), workspace, deep=True).replayed
