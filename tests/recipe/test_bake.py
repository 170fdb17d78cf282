"""Bake and merge on a small generated pack: what is coded, what stays, what a kill leaves, what is refused."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from carve_kernels.exl3 import quantise
from carve_kernels.exl3.codebook import Codebook
from carve_kernels.exl3.linear import dequantise
from safetensors.numpy import load_file, save_file

from recipe import bake, bake_layers, pack_write
from recipe.headers import Entry, read_header
from recipe.mini import random_pack
from recipe.mini.dequantise import coded
from recipe.pack import Pack, read_pack
from recipe.product import Job
from runner.digest import sha256_bytes
from runner.errors import InputError, StateError
from runner.model.order.bake import Bake, Calibration, PlantedFault, Rate
from runner.paths import source_root
from tests.recipe.interrupting import Killed, killing

ATTENTION = Bake(preset="glm4-moe-attention", rates=(Rate(modules="model.layers.*", bits=3),))
SMALL: dict[str, Any] = {"hidden": 128, "intermediate": 128, "experts": 2, "topk": 1, "vocabulary": 300}


_CODED: dict[str, quantise.Quantised] = {}


def code_once(weight: Any, bits: int, book: Codebook, seed: int, hessian: Any = None) -> quantise.Quantised:
    """The native quantiser, asked once for the same module: most tests here are about the disk."""
    key = f"{sha256_bytes(np.ascontiguousarray(weight).tobytes())} {bits} {seed}"
    if key not in _CODED:
        _CODED[key] = quantise.quantise_linear(weight, bits, book, seed, hessian)
    return _CODED[key]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coding the same modules again costs nothing."""
    monkeypatch.setitem(bake.QUANTISERS, "native", code_once)


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack of two layers and a draft layer whose attention is plain."""
    return random_pack.generate(tmp_path_factory.mktemp("standing") / "pack", layers=2, draft_layers=1, **SMALL)


def job_of(standing: Path, folder: Path, recipe: Bake = ATTENTION) -> Job:
    return Job(recipe=recipe, standing=standing, root=source_root(), product=folder / "product", work=folder / "work")


@pytest.fixture(scope="module")
def baked(standing: Path, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A finished bake."""
    job = job_of(standing, tmp_path_factory.mktemp("baked"))
    bake.make(job)
    return job


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_named_linears_are_coded_and_all_else_is_the_same_bytes(standing: Path, baked: Job) -> None:
    before, after = read_pack(standing), read_pack(baked.product)
    names = {f"model.layers.{layer}.self_attn.{part}_proj" for layer in range(3) for part in "qkvo"}
    assert set(after.modules) - set(before.modules) == names
    assert {after.modules[name].bits for name in names} == {3}
    assert not {f"{name}.weight" for name in names} & set(after.tensors)
    for name in set(before.tensors) - {f"{name}.weight" for name in names}:
        assert _bytes(after.tensors[name]) == _bytes(before.tensors[name])
    config = json.loads((baked.product / "config.json").read_bytes())
    index = json.loads((baked.product / "model.safetensors.index.json").read_bytes())
    assert set(config["quantization_config"]["tensor_storage"]) == set(after.modules)
    assert index["metadata"]["total_size"] == sum(entry.nbytes for entry in after.tensors.values())
    product = bake.make(baked)
    assert bake.verify(baked, product).faults == ()
    assert product.summary["modules"] == "12" and "K=3 error of weights" in product.summary


def _bytes(entry: Entry) -> bytes:
    return entry.file.read_bytes()[entry.start : entry.stop]


def test_estimate_tells_modules_and_bytes_and_writes_nothing(standing: Path, tmp_path: Path) -> None:
    job = job_of(standing, tmp_path / "none")
    counts = bake.estimate(job).counts
    weights = 3 * (256 * 128 + 2 * 128 * 128 + 128 * 256)
    assert counts["modules at K=3"] == "12"
    assert counts["bytes of weights before"] == str(2 * weights)
    assert counts["bytes of codes after"] == str(weights * 3 // 8)
    assert not (tmp_path / "none").exists()


def test_the_same_bake_gives_the_same_bytes(
    standing: Path, baked: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(bake.QUANTISERS, "native", quantise.quantise_linear)
    again = job_of(standing, tmp_path)
    assert bake.make(again).digests == bake.make(baked).digests
    assert contents(again.product) == contents(baked.product)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (ATTENTION.model_copy(update={"count": 790}), "another number of modules"),
        (ATTENTION.model_copy(update={"modules": ("model.layers.*.no_such",)}), "names no module"),
        (ATTENTION.model_copy(update={"rates": (Rate(modules="model.layers.0.*", bits=3),)}), "has no rate"),
        (
            ATTENTION.model_copy(update={"rates": (*ATTENTION.rates, Rate(modules="*.k_proj", bits=4))}),
            "one served module need one K",
        ),
        (ATTENTION.model_copy(update={"preset": None, "modules": ("model.norm",)}), "cannot be coded"),
        (ATTENTION.model_copy(update={"planted_fault": PlantedFault(module="nothing", factor="2")}), "names no module"),
    ],
)  # fmt: skip
def test_an_order_that_does_not_fit_is_refused(standing: Path, tmp_path: Path, recipe: Bake, message: str) -> None:
    with pytest.raises(InputError, match=message):
        bake.make(job_of(standing, tmp_path, recipe))
    assert not (tmp_path / "product").exists()


@pytest.mark.parametrize(("factor", "error"), [("1.5", "0.2"), ("-100", "100")])
def test_a_planted_fault_is_found(standing: Path, tmp_path: Path, factor: str, error: str) -> None:
    """The scales of one module are wrong: the bake noted another error than the pack has."""
    fault = PlantedFault(module="model.layers.1.self_attn.q_proj", factor=factor)
    job = job_of(standing, tmp_path, ATTENTION.model_copy(update={"planted_fault": fault}))
    (found,) = bake.verify(job, bake.make(job)).faults
    assert found.startswith(f"model.layers.1.self_attn.q_proj differs from its weight by {error}")


@pytest.mark.parametrize("factor", ["1e30", "-1e30", "0", "1e-30"])
def test_a_planted_fault_that_no_pack_may_hold_is_refused(standing: Path, tmp_path: Path, factor: str) -> None:
    fault = PlantedFault(module="model.layers.1.self_attn.q_proj", factor=factor)
    job = job_of(standing, tmp_path, ATTENTION.model_copy(update={"planted_fault": fault}))
    with pytest.raises(InputError, match="no pack may hold"):
        bake.make(job)
    assert not job.product.exists()


def rewrite(folder: Path, file: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Change one weight file and let index and configuration follow, as a careful wrong tool would."""
    tensors = load_file(folder / file)
    change(tensors)
    save_file(tensors, folder / file, {"format": "pt"})
    headers = [read_header(path) for path in sorted(folder.glob("*.safetensors"))]
    pack_write.write_index(folder, headers)
    config = json.loads((folder / "config.json").read_bytes())
    shapes = ((entry.name, entry.shape) for header in headers for entry in header.entries)
    pack_write.write_json(
        folder / "config.json", config | {"quantization_config": pack_write.quantization_config(shapes)}
    )


def other_bits(tensors: dict[str, Any]) -> None:
    name = "model.layers.0.self_attn.q_proj"
    coded = quantise.quantise_linear(np.ones((128, 256)), 2, Codebook.MCG, 0).linear
    tensors[f"{name}.trellis"] = coded.trellis.view(np.int16)


def spoil(tensors: dict[str, Any], factor: float) -> None:
    name = "model.layers.0.self_attn.q_proj.svh"
    tensors[name] = (tensors[name].astype(np.float64) * factor).astype(np.float16)


FAULTY: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "nothing was dropped": (
        lambda t: t.update({"model.layers.0.self_attn.q_proj.weight": np.zeros((256, 128), np.float16)}),
        "coded and plain at once",
    ),
    "a kept tensor changed": (
        lambda t: t.update({"model.layers.0.input_layernorm.weight": np.full(128, 2, np.float16)}),
        "input_layernorm.weight is not the base's",
    ),
    "a kept tensor changed its type": (
        lambda t: t.update({"model.layers.0.input_layernorm.weight": np.ones(128, np.float32)}),
        "input_layernorm.weight is not the base's",
    ),
    "an ignored module was packed": (
        lambda t: t.update({"model.layers.0.extra.weight_packed": np.zeros(4, np.int32)}),
        "weight_packed is not of this bake",
    ),
    "a kept tensor is missing": (
        lambda t: t.pop("model.layers.0.input_layernorm.weight"),
        "layernorm.weight is missing",
    ),
    "a scale is no number": (lambda t: spoil(t, np.nan), "scales are not finite"),
    "a scale is infinite": (lambda t: spoil(t, np.inf), "scales are not finite"),
    "a scale differs by less than errors show": (lambda t: spoil(t, 1.0005), "q_proj: tensors: svh"),
    "other bits than ordered": (other_bits, "q_proj has 2 bits, the order says 3"),
}
"""FL-38, FL-39, field cases 10 and 11: a pack that loads and is not what was asked for."""


@pytest.mark.parametrize("case", FAULTY)
def test_a_product_that_is_not_what_was_asked(standing: Path, baked: Job, tmp_path: Path, case: str) -> None:
    product = bake.make(baked)
    job = job_of(standing, tmp_path)
    shutil.copytree(baked.product, job.product)
    file = read_pack(baked.product).tensors["model.layers.0.self_attn.q_proj.trellis"].file.name
    change, message = FAULTY[case]
    rewrite(job.product, file, change)
    found = bake.verify(job, product)
    assert any(message in fault for fault in found.faults), found.faults
    assert found.digests != product.digests


def test_a_stamp_that_the_tensors_contradict_is_a_fault(standing: Path, baked: Job, tmp_path: Path) -> None:
    """FL-39: the configuration says 4 bits, the tensors say 3."""
    job = job_of(standing, tmp_path)
    shutil.copytree(baked.product, job.product)
    config = json.loads((job.product / "config.json").read_bytes())
    config["quantization_config"]["tensor_storage"]["model.layers.0.self_attn.q_proj"]["bits_per_weight"] = 4
    pack_write.write_json(job.product / "config.json", config)
    (found,) = bake.verify(job, bake.make(baked)).faults
    assert "disagree on a module's bits" in found and "expected 3, found 4" in found


def test_a_product_without_provenance_is_a_fault(standing: Path, baked: Job, tmp_path: Path) -> None:
    job = job_of(standing, tmp_path)
    shutil.copytree(baked.product, job.product)
    (job.product / "provenance.json").unlink()
    assert bake.verify(job, bake.make(baked)).faults == ("provenance.json is missing",)


def test_resume_refuses_other_arguments_inputs_and_code(
    standing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FL-39 and the campaign's open point: the version of the code belongs to what a resume compares."""
    job = job_of(standing, tmp_path)
    with monkeypatch.context() as context:
        context.setattr(bake_layers, "errors_of", _stop)
        with pytest.raises(KeyboardInterrupt):
            bake.make(job)
    other = replace(job, recipe=ATTENTION.model_copy(update={"seed": 1}))
    with pytest.raises(StateError, match="changed since this bake began") as caught:
        bake.make(other)
    assert caught.value.found == "changed: arguments"
    with monkeypatch.context() as context:
        context.setattr(bake, "_CODE", bake._CODE[1:])
        with pytest.raises(StateError) as caught:
            bake.make(job)
        assert caught.value.found == "changed: code"
    bake.make(job)
    with pytest.raises(StateError, match="another product lies"):
        bake.make(other)


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


def test_killed_at_every_point_the_product_is_absent_or_complete(
    standing: Path, baked: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, inputs = contents(baked.product), contents(standing)
    points = 0
    for point in range(400):
        job = job_of(standing, tmp_path / str(point))
        with monkeypatch.context() as context:
            reached = killing(context, point, Killed)
            try:
                bake.make(job)
            except Killed:
                points += 1
            done = reached() < point
        if job.product.exists():
            assert contents(job.product) == wanted
        if point % 7 == 0 or done:
            bake.make(job)
            assert contents(job.product) == wanted
            assert {path.name for path in job.product.parent.iterdir()} == {"product", "work"}
        shutil.rmtree(job.product.parent, ignore_errors=True)
        if done:
            break
    assert points > 60
    assert contents(standing) == inputs


@pytest.mark.parametrize("point", [3, 17, 40, 58])
def test_a_full_disk_and_a_read_only_folder_are_named(
    standing: Path, baked: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: int
) -> None:
    for number, text in ((28, "No space left on device"), (30, "Read-only file system")):
        job = job_of(standing, tmp_path / str(number))
        with monkeypatch.context() as context:
            killing(context, point, lambda number=number, text=text: OSError(number, text))  # type: ignore[misc]
            with pytest.raises(StateError) as caught:
                bake.make(job)
            assert caught.value.found == text and "free the disk" in caught.value.next_step
        assert not job.product.exists()
        bake.make(job)
        assert contents(job.product) == contents(baked.product)


def test_killed_for_real_and_resumed(standing: Path, baked: Job, tmp_path: Path) -> None:
    """Eight processes ended by SIGKILL at different times, each going on where the one before was."""
    code = (
        "import sys; from pathlib import Path; from tests.recipe.test_bake import job_of; from recipe import bake;"
        "print('begun', flush=True); bake.make(job_of(Path(sys.argv[1]), Path(sys.argv[2])))"
    )
    command = [sys.executable, "-c", code, str(standing), str(tmp_path)]
    for attempt in range(8):
        process = subprocess.Popen(command, cwd=source_root(), stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.03 * attempt)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if (tmp_path / "product").exists():
            break
    job = job_of(standing, tmp_path)
    bake.make(job)
    assert contents(job.product) == contents(baked.product)


def test_slices_are_the_rows_of_the_whole(tmp_path: Path) -> None:
    """Each slice of wo_a is coded from its own rows, and the whole weight goes."""
    weight = np.random.default_rng(0).standard_normal((1024, 128)).astype(np.float16)
    folder = tmp_path / "pack"
    random_pack.generate(folder, layers=1, **SMALL)
    file = read_pack(folder).tensors["model.layers.0.self_attn.q_proj.weight"].file.name
    rewrite(folder, file, lambda tensors: tensors.update({"model.layers.0.attn.wo_a.weight": weight}))
    recipe = Bake(preset="deepseek-v4-dense", rates=(Rate(modules="*", bits=4),), count=8)
    job = job_of(folder, tmp_path, recipe)
    assert bake.verify(job, bake.make(job)).faults == ()
    pack: Pack = read_pack(job.product)
    for rank in (0, 7):
        name = f"model.layers.0.attn.wo_a.slice.{rank}"
        assert (pack.modules[name].in_features, pack.modules[name].out_features) == (128, 128)
        error = dequantise(coded(pack, name)) - weight[128 * rank : 128 * rank + 128].T
        assert (error**2).mean() < 0.01
    assert "model.layers.0.attn.wo_a.weight" not in pack.tensors


def test_calibration_needs_a_model_that_can_run_here(standing: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(standing, other)
    config = json.loads((other / "config.json").read_bytes())
    pack_write.write_json(other / "config.json", config | {"model_type": "deepseek_v4"})
    wish = Calibration(texts="recipe/mini/calibration.jsonl", documents=3)
    with pytest.raises(InputError, match="no forward for this architecture"):
        bake.make(job_of(other, tmp_path, ATTENTION.model_copy(update={"calibration": wish})))


def test_a_finished_layer_that_was_written_to_is_coded_again(standing: Path, baked: Job, tmp_path: Path) -> None:
    job = job_of(standing, tmp_path)
    with pytest.MonkeyPatch.context() as context:
        context.setattr(bake_layers, "errors_of", _stop)
        with pytest.raises(KeyboardInterrupt):
            bake.make(job)
    layers = sorted((job.work / "layers").glob("*.safetensors"))
    before = {file: file.stat().st_mtime_ns for file in layers}
    content = layers[0].read_bytes()
    layers[0].write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert bake.make(job).digests == bake.make(baked).digests
    assert [file for file in layers if file.stat().st_mtime_ns != before[file]] == [layers[0]]


def test_scales_of_a_plain_weight_go_with_it(standing: Path, tmp_path: Path) -> None:
    """Left behind they belong to nothing, and an engine would scale the codes with them."""
    base = Path(shutil.copytree(standing, tmp_path / "base"))
    name = "model.layers.0.self_attn.k_proj"
    file = next(header.file for header in read_pack(base).headers if f"{name}.weight" in str(header.entries))
    scales = {f"{one}.weight_scale_inv": np.ones((1, 1), np.float32) for one in (name, name.replace("k_", "o_"))}
    pack_write.write_shard(file, load_file(file) | scales)
    pack_write.write_index(base, [read_header(one) for one in sorted(base.glob("*.safetensors"))])
    recipe = Bake(source=str(standing), modules=(name,), rates=(Rate(modules="*", bits=2),))
    job = job_of(base, tmp_path, recipe)
    product = bake.make(job)
    left = {tensor for tensor in read_pack(job.product).tensors if tensor.endswith("weight_scale_inv")}
    assert left == {f"{name.replace('k_', 'o_')}.weight_scale_inv"}, "another module's scale stays with its weight"
    assert bake.verify(job, product).faults == ()
