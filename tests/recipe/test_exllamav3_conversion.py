"""A bake by exllamav3's conversion: its command line, what a resume refuses, what is taken from it.

The library needs a GPU. A stand-in with the same three names answers here: it reads the same recipe file, codes with
our quantiser and leaves its files where the library leaves them.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from carve_kernels.exl3.pack_format import tensor_names

from recipe import bake, whole_folder
from recipe.bake_coding import CONVERSION
from recipe.exllamav3_conversion import PLAIN, Conversion, arguments, collect, convert, recipe_text
from recipe.exllamav3_host import whole_conversion
from recipe.mini.dequantise import dequantise
from recipe.mini.random_pack import generate
from recipe.pack import read_pack
from recipe.pack_write import write_shard
from recipe.product import Job
from runner.errors import InputError, StateError
from runner.model.order.bake import Bake, Calibration, Rate

STAND_IN = """
import argparse, json, os, pathlib, sys
import numpy as np
from carve_kernels.exl3 import pack_format, quantise
from carve_kernels.exl3.codebook import Codebook
from safetensors.numpy import load_file, save_file

parser = argparse.ArgumentParser(allow_abbrev=False)
for flag in ("-w", "-i", "-o", "-rcp", "-hb", "-mb", "-vb", "-cb", "-cr", "-cc", "-d", "-cd", "--out_scales"):
    parser.add_argument(flag)
parser.add_argument("-r", action="store_true")

def prepare(args):
    work = pathlib.Path(args.w)
    print("rows of", args.cd, load_file(args.cd)["input_ids"].shape if args.cd else None)
    (work / "qtensors").mkdir(exist_ok=True)
    (work / "ckpt").mkdir(exist_ok=True)
    (work / "ckpt/job.json").write_text("{}")
    return vars(args), {}, True, None

def main(args, state):
    if os.environ.get("GIVE_UP") and not args["r"]:
        sys.exit("out of memory")
    tensors = {}
    for file in pathlib.Path(args["i"]).glob("*.safetensors"):
        tensors |= load_file(file)
    for name, bits in json.loads(pathlib.Path(args["rcp"]).read_text())["tensors"].items():
        weight = tensors[name + ".weight"].T
        if bits < 16:
            coded = quantise.quantise_linear(weight, bits, Codebook(args["cb"]), 0)
            file = pathlib.Path(args["w"]) / f"qtensors/{name}.safetensors"
            save_file(pack_format.to_tensors(name, coded.linear), file)
            print(f" -- Quantized: {name:40}  bpw: {bits:5.2f}  proxy_err: {0.01234:8.6f}  o.  g_sc: 1.0")
            if not (os.environ.get("LOSE") and name.endswith("k_proj")):
                tensors |= pack_format.to_tensors(name, coded.linear)
                del tensors[name + ".weight"]
    out = pathlib.Path(args["o"])
    out.mkdir(exist_ok=True)
    save_file({name: np.ascontiguousarray(array) for name, array in tensors.items()}, out / "model.safetensors")
    for file in pathlib.Path(args["i"]).glob("*.json"):
        if "index" not in file.name:
            (out / file.name).write_bytes(file.read_bytes())
    config = json.loads((out / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "exl3"}
    (out / "config.json").write_text(json.dumps(config))
"""
NAMES = [f"model.layers.0.self_attn.{part}_proj" for part in "qkvo"]


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for exllamav3 1.6.5, first on everybody's path."""
    site = tmp_path / "site"
    package = site / "exllamav3/conversion"
    package.mkdir(parents=True)
    (site / "exllamav3/__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "convert_model.py").write_text(STAND_IN)
    (site / "exllamav3-1.6.5.dist-info").mkdir()
    (site / "exllamav3-1.6.5.dist-info/METADATA").write_text("Name: exllamav3\nVersion: 1.6.5\n")
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", str(site))
    return site


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("standing") / "pack"
    return generate(folder, layers=1, hidden=128, intermediate=128, experts=2, topk=1, vocabulary=300)


def conversion(source: Path, work: Path) -> Conversion:
    return Conversion(source, work, {NAMES[0]: 2, NAMES[1]: PLAIN})


def silent(_: str) -> None:
    """Nobody listens."""


def test_nothing_is_left_to_a_default_that_a_resume_or_a_version_changes() -> None:
    asked = conversion(Path("source"), Path("work"))
    words = arguments(asked, resume=True)
    told = dict(zip(words[:-1:2], words[1:-1:2], strict=True))
    assert told == {
        "-w": "work", "-i": "source", "-o": "work.output", "-rcp": "work.recipe.json", "-hb": "16", "-mb": "16",
        "-vb": "16", "-cb": "mcg", "-cr": "250", "-cc": "2048", "-d": "0", "--out_scales": "always",
    }  # fmt: skip
    assert words[-1] == "-r"
    assert json.loads(recipe_text(asked))["tensors"] == {NAMES[0]: 2, NAMES[1]: 16}
    with pytest.raises(InputError, match="no such bits"):
        recipe_text(replace(asked, bits={NAMES[0]: 9}))


def test_a_bake_takes_the_named_modules_and_keeps_all_else(library: Path, standing: Path, tmp_path: Path) -> None:
    recipe = Bake(
        modules=("*.k_proj", "*.v_proj", "*.q_proj"), rates=(Rate(modules="*", bits=3),), quantiser=CONVERSION
    )
    job = Job(recipe, standing, tmp_path, tmp_path / "product", tmp_path / "work")
    product = bake.make(job)
    assert bake.verify(job, product).faults == ()
    assert "0.012340 mean" in product.summary["K=3 error of outputs (proxy, as exllamav3 says)"]
    before, after = read_pack(standing), read_pack(job.product)
    assert set(after.modules) - set(before.modules) == set(NAMES[:3])
    assert NAMES[3] + ".weight" in after.tensors


def test_a_bake_calibrates_on_our_text_where_it_has_some(library: Path, standing: Path, tmp_path: Path) -> None:
    texts = [{"id": name, "text": f"{name}: " + "abc " * 20} for name in ("one", "two", "three")]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts))
    calibration = Calibration(texts="t.jsonl", documents=2, tokens=50)
    recipe = Bake(
        modules=("*.k_proj",), rates=(Rate(modules="*", bits=2),), quantiser=CONVERSION, calibration=calibration
    )
    job = Job(recipe, standing, tmp_path, tmp_path / "product", tmp_path / "work")
    bake.make(job)
    assert (
        f"rows of {tmp_path / 'work/calibration.safetensors'} (2, 50)"
        in (tmp_path / "work/conversion/log.txt").read_text()
    )
    long = recipe.model_copy(update={"calibration": calibration.model_copy(update={"tokens": 500})})
    with pytest.raises(InputError, match="too short") as caught:
        bake.make(replace(job, recipe=long, product=tmp_path / "other", work=tmp_path / "other-work"))
    assert caught.value.where == "one, two"


def test_a_version_without_its_text_needs_ours(library: Path, standing: Path, tmp_path: Path) -> None:
    (library / "exllamav3-1.6.5.dist-info/METADATA").write_text("Name: exllamav3\nVersion: 1.4.5\n")
    with pytest.raises(InputError, match="without its calibration text"):
        convert(conversion(standing, tmp_path / "work"), silent)
    assert not (tmp_path / "work").exists()


def test_what_gave_up_goes_on_and_refuses_to_be_another(
    library: Path, standing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = tmp_path / "rows.safetensors"
    write_shard(rows, {"input_ids": np.ones((2, 8), np.int64)})
    asked = replace(conversion(standing, tmp_path / "work"), calibration=rows)
    monkeypatch.setenv("GIVE_UP", "1")
    with pytest.raises(StateError, match="did not finish") as caught:
        convert(asked, silent)
    assert "out of memory" in caught.value.found
    other = tmp_path / "other.safetensors"
    write_shard(other, {"input_ids": np.zeros((2, 8), np.int64)})
    different: list[dict[str, Any]] = [{"codebook": "mul1"}, {"calibration": other}]
    for changed in different:
        with pytest.raises(StateError, match="other arguments") as caught:
            convert(replace(asked, **changed), silent)
        assert caught.value.found == f"changed: {next(iter(changed))}"
    (library / "exllamav3-1.6.5.dist-info/METADATA").write_text("Name: exllamav3\nVersion: 1.4.5\n")
    with pytest.raises(StateError, match="another library") as caught:
        convert(asked, silent)
    assert caught.value.found == "changed: exllamav3"
    (library / "exllamav3-1.6.5.dist-info/METADATA").write_text("Name: exllamav3\nVersion: 1.6.5\n")
    assert sorted(convert(asked, silent)) == sorted(
        tensor_names(NAMES[0], read_pack(standing).modules["model.layers.0.mlp.gate_proj"].codebook)
    )


def test_modules_that_are_not_what_was_asked_for_are_refused(library: Path, standing: Path, tmp_path: Path) -> None:
    asked = conversion(standing, tmp_path / "work")
    convert(asked, silent)
    for other in (
        replace(asked, bits={NAMES[0]: 3}),
        replace(asked, codebook="mul1"),
        replace(asked, bits={NAMES[2]: 2}),
    ):
        with pytest.raises(StateError, match="another module than it was asked for"):
            collect(other)


def test_a_whole_conversion_is_a_whole_pack_of_one_process(
    library: Path, standing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU host three at once once wrote into one folder, and a pack came out without its first layer."""
    rows, out = tmp_path / "rows.safetensors", tmp_path / "made"
    write_shard(rows, {"input_ids": np.ones((2, 8), np.int64)})
    source = dequantise(standing, tmp_path / "plain")
    work = tmp_path / "made.work"
    work.mkdir()
    with monkeypatch.context() as hasty:
        hasty.setattr(whole_folder, "PATIENCE_SECONDS", 0.0)
        with whole_folder.alone(work), pytest.raises(StateError, match="another process"):
            whole_conversion(source, rows, out, 3)
    monkeypatch.setenv("LOSE", "1")
    with pytest.raises(StateError, match="lacks modules") as caught:
        whole_conversion(source, rows, out, 3)
    assert caught.value.found == NAMES[1] and not out.exists()
    monkeypatch.delenv("LOSE")
    whole_conversion(source, rows, out, 3)
    made = read_pack(out)
    assert set(NAMES) <= set(made.modules) and {module.bits for module in made.modules.values()} == {3}
    with pytest.raises(StateError, match="exists already"):
        whole_conversion(source, rows, out, 3)


def test_another_version_is_not_used(library: Path, standing: Path, tmp_path: Path) -> None:
    (library / "exllamav3-1.6.5.dist-info/METADATA").write_text("Name: exllamav3\nVersion: 2.0.0\n")
    with pytest.raises(StateError, match="not installed") as caught:
        convert(conversion(standing, tmp_path / "work"), silent)
    assert caught.value.found == "2.0.0"
