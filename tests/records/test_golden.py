"""Golden records: what was signed with a released version is read by every later one, by others too."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey

from runner import ledger
from runner.attest.statement import TYPES
from runner.attest.trust import Trust, load_trust
from runner.errors import InputError
from runner.ledger import Ledger
from runner.model.adoption import Adoption, Observation, Reproduction, Revocation, Waiver
from runner.model.challenge import Challenge
from runner.model.report import ReportPredicate
from runner.model.verdict import Status
from runner.paths import source_root
from runner.schemas import json_schema
from runner.verify import verify
from tests.records.make import make

VERSION = Path(__file__).parent / "v1"
VERDICTS = {
    "fake-lna2": Status.PASS,
    "small-half-k": Status.FAIL,
    "small-one-rank": Status.INVALID,
    "small-gate": Status.PASS,
}


@pytest.fixture(scope="module")
def trust() -> Trust:
    return load_trust(VERSION, user=False)


@pytest.fixture(scope="module")
def book(trust: Trust) -> Ledger:
    return ledger.load(VERSION, trust)


def payload_of(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(base64.b64decode(json.loads(path.read_bytes())["payload"]))
    return value


def report_of(order: str) -> Path:
    (folder,) = (VERSION / "reports" / order).iterdir()
    return folder


@pytest.mark.parametrize("order", VERDICTS)
def test_a_golden_report_verifies_down_to_its_evidence(order: str, trust: Trust) -> None:
    found = verify(report_of(order), trust, VERSION, deep=True)
    assert (found.order, found.verdict, found.label) == (order, VERDICTS[order], "simulated")
    assert found.replayed


def test_the_golden_ledger_holds_every_kind_of_statement(book: Ledger) -> None:
    kinds = (ReportPredicate, Adoption, Waiver, Revocation, Observation, Challenge, Reproduction)
    assert [len(book.of(kind)) for kind in kinds] == [4, 1, 1, 1, 1, 1, 1]
    ((_, abandoned),) = book.abandoned()
    assert abandoned.order == "small-half-k"


def test_a_golden_report_says_what_it_is_about(book: Ledger) -> None:
    for entry, report in book.of(ReportPredicate):
        assert {"order", "plan", "engine.record", "tree.runner", "tree.plugin", "tree.witness"} <= entry.subjects.keys()
        assert ("brief" in entry.subjects) == (report.order.name != "small-gate")
        assert {f"gate/{gate.name}@{gate.version}" for gate in report.gates} <= report.graders.keys()
        signed = payload_of(report_of(report.order.name) / "report.dsse.json")["predicate"]["costs"]  # not in a ledger
        assert {cost["what"] for cost in signed} >= {f"gate {gate.name}" for gate in report.gates}


def test_golden_records_are_never_written_over() -> None:
    with pytest.raises(InputError, match="kept for ever"):
        make(VERSION)


def test_another_implementation_accepts_every_envelope(trust: Trust) -> None:
    keys = [SSlibKey(signer.key.id, "ed25519", "ed25519", {"public": signer.key.raw.hex()}) for signer in trust.signers]
    paths = sorted(VERSION.rglob("*.dsse.json"))
    assert len(paths) == 15
    for path in paths:
        assert len(Envelope.from_dict(json.loads(path.read_bytes())).verify(keys, 1)) == 1


def test_the_example_for_other_readers_runs_as_it_stands(tmp_path: Path) -> None:
    text = (source_root() / "reports" / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    script = tmp_path / "read.py"
    script.write_text(example, encoding="utf-8")
    report, intent = (
        report_of("fake-lna2") / "report.dsse.json",
        payload_of(report_of("fake-lna2") / "report.dsse.json"),
    )
    told = subprocess.run(
        [sys.executable, "-I", script, report, VERSION / "canon" / "allowed_signers"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert told.splitlines()[0] == f"fake-lna2 on fake (simulated): PASS, plan {intent['predicate']['plan']['digest']}"
    forged = tmp_path / "forged.dsse.json"
    forged.write_bytes(report.read_bytes().replace(b'"sig":"', b'"sig":"A', 1))
    refused = subprocess.run(
        [sys.executable, "-I", script, forged, VERSION / "canon" / "allowed_signers"], capture_output=True, check=False
    )
    assert refused.returncode


def check_against(schema: dict[str, Any], value: Any, root: dict[str, Any], path: str) -> None:
    """Objects have the documented fields and no other; variants of a union are left to the validators."""
    while "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rsplit("/", 1)[1]]
    if isinstance(value, dict) and "properties" in schema:
        assert schema["additionalProperties"] is False, path
        assert set(schema.get("required", ())) <= value.keys() <= schema["properties"].keys(), path
        for name, inner in value.items():
            check_against(schema["properties"][name], inner, root, f"{path}.{name}")
    if isinstance(value, list) and "items" in schema:
        for inner in value:
            check_against(schema["items"], inner, root, f"{path}[]")
    if "const" in schema:
        assert value == schema["const"], path


def test_every_golden_payload_has_the_documented_fields_and_no_other() -> None:
    seen = set()
    for path in sorted(VERSION.rglob("*.dsse.json")):
        payload = payload_of(path)
        kind = payload["predicateType"].split(":")[2]
        schema = json_schema(kind)
        check_against(schema, payload, schema, kind)
        seen.add(kind)
    assert seen == {kind.split(":")[2] for kind in TYPES}


def test_every_documented_field_of_a_report_is_described() -> None:
    schema = json_schema("report")
    fields = schema["$defs"]["ReportPredicate"]["properties"]
    assert [name for name, field in fields.items() if "description" not in field and "$ref" not in field] == []
