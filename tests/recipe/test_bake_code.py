"""The code that a bake's bytes follow from, whose digest decides whether one that was begun may go on."""

from __future__ import annotations

import ast
from pathlib import Path

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
