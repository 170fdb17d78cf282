"""The registries of gates and instruments, what has been withdrawn, and what graders may import."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from runner.errors import InputError
from runner.gates import registry as gates
from runner.paths import source_root
from serve.instruments import registry as instruments

ROOT = source_root()
GRADERS = sorted(
    [*(ROOT / "runner/gates").glob("*.py"), *(ROOT / "serve/instruments").glob("*.py"), ROOT / "runner/stats.py"]
)
ALLOWED = (
    "runner.model",
    "runner.stats",
    "runner.gates",
    "runner.digest",
    "runner.errors",
    "runner.yaml_strict",
    "serve.instruments",
)


def test_a_name_and_version_is_one_gate() -> None:
    names = [(gate.NAME, gate.VERSION) for gate in gates.all_gates()]
    assert len(set(names)) == len(names) == 40
    assert gates.gate("speed", 1).NAME == "speed"
    for name, version in (("speed", 3), ("divination", 1)):
        with pytest.raises(InputError, match="unknown gate"):
            gates.gate(name, version)


def test_an_instrument_is_named_with_its_version() -> None:
    assert instruments.instrument(*instruments.parse("kld@1")).NAME == "kld"
    for malformed in ("kld", "@1", "kld@", "kld@one", "kld@²"):
        with pytest.raises(InputError, match="named with its version"):
            instruments.parse(malformed)
    with pytest.raises(InputError, match="unknown instrument"):
        instruments.instrument("kld", 2)


def test_every_parameter_is_documented() -> None:
    for gate in gates.all_gates():
        schema = gates.parameter_schema(gate)
        undocumented = [name for name, field in schema.get("properties", {}).items() if not field.get("description")]
        assert undocumented == [], gate.NAME
        assert schema["additionalProperties"] is False


def test_source_digests_differ_and_stay() -> None:
    told = [gates.source_digest(gate) for gate in gates.all_gates()]
    told += [instruments.source_digest(known) for known in instruments.all_instruments()]
    assert len(set(told)) == len(told)
    assert gates.source_digest(gates.gate("speed", 1)) == gates.source_digest(gates.gate("speed", 1))


def test_nothing_has_been_withdrawn_yet() -> None:
    assert gates.withdrawn() == ()
    assert gates.withdrawal("speed", 1) is None


def test_a_withdrawn_version_says_why(tmp_path: Path) -> None:
    listed = tmp_path / "withdrawn.yaml"
    listed.write_text("- {kind: gate, name: speed, version: 1, date: '2026-12-01', reason: counted events}\n")
    found = gates.withdrawal("speed", 1, listed)
    assert found is not None
    assert found.reason == "counted events"
    assert gates.withdrawal("speed", 2, listed) is None


WITHDRAWN = "- {kind: gate, name: speed, version: 1, date: '2026-12-01', reason: counted events}\n"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "- 1\n",
        "- {gate: speed}\n",
        "3\n",
        "",
        WITHDRAWN.replace("name: speed", "name: spead"),
        WITHDRAWN.replace("version: 1", "version: 99"),
        WITHDRAWN.replace("name: speed", "name: speed, name: kld"),
        WITHDRAWN.replace("kind: gate", "kind: gate, kind: instrument"),
        WITHDRAWN + WITHDRAWN.replace("speed", "sp\u202eeed"),
    ],
)
def test_a_list_of_withdrawals_that_withdraws_nothing_is_an_error(tmp_path: Path, text: str) -> None:
    """A slip in a name, or a key given twice, would let what was found wrong stand."""
    listed = tmp_path / "withdrawn.yaml"
    listed.write_text(text)
    with pytest.raises(InputError):
        gates.withdrawn(listed)


@pytest.mark.parametrize("path", GRADERS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_graders_import_nothing_that_serves_builds_or_signs(path: Path) -> None:
    imported = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            imported.append(str(node.module))
        elif isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
    ours = [name for name in imported if name.split(".")[0] in ("runner", "serve", "recipe", "carve_kernels")]
    assert [name for name in ours if not name.startswith(ALLOWED)] == []
