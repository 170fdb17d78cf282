"""The code that a bake's bytes follow from, whose digest decides whether one that was begun may go on."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from recipe import bake
from runner.paths import source_root

OURS = {"recipe": "", "carve_kernels": "kernels"}
"""Where the packages of whose code a bake's bytes follow lie; what the runner adds changes no byte."""


def test_every_module_that_a_bake_imports_is_among_its_code() -> None:
    root = source_root()
    named = {file for pattern in bake._CODE for file in root.glob(pattern)}
    seen: set[Path] = set()
    todo = [root / "recipe/bake.py", root / "recipe/mini/calibrate.py"]
    while todo:
        file = todo.pop()
        if file in seen:
            continue
        seen.add(file)
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in OURS:
                base = root / OURS[node.module.split(".")[0]] / node.module.replace(".", "/")
                found = [base.with_suffix(".py"), *(base / f"{alias.name}.py" for alias in node.names)]
                todo += [path for path in found if path.is_file()]
    assert seen and len(seen) > 20 and not seen - named


def test_the_library_that_codes_is_named_as_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers coded by one version must not be joined with another's after a kill."""
    found = []
    for version in ("1.4.5", "1.6.5"):
        told = tmp_path / version / f"exllamav3-{version}.dist-info"
        told.mkdir(parents=True)
        (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: exllamav3\nVersion: {version}\n")
        (told / "RECORD").write_text("exllamav3/__init__.py,,\n")
        monkeypatch.syspath_prepend(tmp_path / version)
        found.append(bake._library("exllamav3")["library"])
    assert [one.split()[0] for one in found] == ["1.4.5", "1.6.5"]
    assert bake._library("native") == {}
