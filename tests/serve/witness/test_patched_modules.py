"""What a rank says about patched code: from the modules it imported, whoever patched them."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from recipe.patch import tree_digest
from runner.digest import sha256_file
from serve.witness.worker import _patched_modules

pytestmark = pytest.mark.engine


def load(monkeypatch: pytest.MonkeyPatch, name: str, file: Path) -> None:
    """Import a file under a name, for this test."""
    spec = spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, name, module)


def test_only_imported_modules_with_a_marker_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "streams.py"
    file.write_text('__carve_patches__ = ("two@1:0123456789ab",)\n')
    assert _patched_modules() == {}
    load(monkeypatch, "engine.streams", file)
    expected = tree_digest({"engine/streams.py": (sha256_file(file), ["two@1:0123456789ab"])})
    assert _patched_modules() == {"product": expected}
    load(monkeypatch, "engine.second", file)
    assert _patched_modules() != {"product": expected}


def test_an_edit_after_the_import_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "streams.py"
    file.write_text('__carve_patches__ = ("two@1:0123456789ab",)\n')
    load(monkeypatch, "engine.streams", file)
    before = _patched_modules()
    file.write_text('__carve_patches__ = ("two@2:0123456789ab",)\n')
    assert _patched_modules() != before
