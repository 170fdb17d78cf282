"""What lies beside the weights: every file is kept at any depth, and what no pack can hold is named before any work."""

from __future__ import annotations

import json
import py_compile
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from recipe import bake, overlay
from recipe.headers import Fault, PackError
from recipe.pack import inspect, read_pack
from runner.model.order.bake import Bake, Rate
from tests.recipe.overlays import contents, donor_pack, job_of, recipe_of, source_pack

RECIPE = Bake(modules=("model.layers.0.self_attn.k_proj",), rates=(Rate(modules="*", bits=2),))


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("packs")
    return source_pack(folder / "source", vocabulary=300), donor_pack(folder / "donor", vocabulary=300)


@pytest.fixture
def standing(packs: tuple[Path, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(packs[0], tmp_path / "standing"))


@pytest.mark.parametrize("kind", ["overlay", "bake"])
def test_files_further_down_are_kept_and_bytecode_is_nobody_s(
    kind: str, standing: Path, packs: tuple[Path, Path], tmp_path: Path
) -> None:
    (standing / "assets/deep").mkdir(parents=True)
    (standing / "assets/deep/notes.txt").write_text("kept")
    (standing / "modeling.py").write_text("NAME = 1\n")
    before = read_pack(standing).small_files_digest()
    py_compile.compile(str(standing / "modeling.py"))
    assert read_pack(standing).small_files_digest() == before, "importing a module changes no pack"
    recipe, order = (overlay, recipe_of(packs[1])) if kind == "overlay" else (bake, RECIPE)
    job = job_of(tmp_path / "job", standing, order)
    product = recipe.make(job)
    assert recipe.verify(job, product).faults == ()
    assert {"assets/deep/notes.txt", "modeling.py"} < contents(job.product).keys()
    assert not (job.product / "__pycache__").exists()
    py_compile.compile(str(job.product / "modeling.py"))
    found = recipe.verify(job, product)
    assert found.faults == () and found.digests == product.digests, "an engine that imported it changed nothing"
    (job.product / "__pycache__/other.cpython-311.pyc").write_bytes(b"of no module")
    assert recipe.verify(job, product).faults


def edited_config(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda pack: (pack / "config.json").write_bytes(change((pack / "config.json").read_bytes()))


def folder_link(pack: Path) -> None:
    (pack / "assets").mkdir()
    (pack / "same").symlink_to("assets")


UNFIT: dict[str, tuple[Callable[[Path], object], Fault]] = {
    "a byte order mark": (edited_config(lambda content: b"\xef\xbb\xbf" + content), Fault.MALFORMED),
    "UTF-16": (edited_config(lambda content: content.decode().encode("utf-16")), Fault.MALFORMED),
    "half a character": (edited_config(lambda content: content.replace(b"{", b'{"x": "\\ud800",', 1)), Fault.MALFORMED),
    "too deep": (
        edited_config(lambda content: content.replace(b"{", b'{"x": ' + b"[" * 300 + b"]" * 300 + b",", 1)),
        Fault.MALFORMED,
    ),
    "a link to a folder": (folder_link, Fault.LINK),
}


@pytest.mark.parametrize("case", UNFIT)
def test_what_could_not_be_written_again_is_refused_first(case: str, standing: Path, tmp_path: Path) -> None:
    change, fault = UNFIT[case]
    change(standing)
    assert [one.fault for one in inspect(standing)[1]] == [fault]
    job = job_of(tmp_path / "job", standing, RECIPE)
    with pytest.raises(PackError):
        bake.make(job)
    assert not job.product.exists() and not job.work.exists()


@pytest.mark.parametrize("escape", [b'"\\ud800"', b'{"\\udfff": 1}'])
def test_half_a_character_in_a_header_is_malformed(escape: bytes, standing: Path) -> None:
    file = next(standing.glob("*.safetensors"))
    content = file.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    text = json.dumps(header).encode()[:-1] + b', "__metadata__": {"note": ' + escape + b"}}"
    text = text.replace(b'"__metadata__": {"format": "pt"}, ', b"")
    file.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])
    assert Fault.MALFORMED in {one.fault for one in inspect(standing)[1]}
