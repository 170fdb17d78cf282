"""The recipe of a patch order on an invented, installed distribution."""

from __future__ import annotations

import importlib.util
import os
import py_compile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from recipe import patch
from recipe.patch_set import PatchSet
from recipe.product import Job
from runner.digest import sha256_file
from runner.errors import InputError, StateError
from runner.model.order.patch import Patching
from tests.recipe.test_patch_apply import audible, guard, two_streams

RECIPE = Patching(distribution="engine==1.0", patches=("two-streams", "audible", "guard"))
FILES = {
    "engine/__init__.py": "",
    "engine/streams.py": "COUNT = 3\n\n\ndef streams():\n    return COUNT\n",
    "engine/deep/kernel.cu": "int tune()\n{\n    return time();\n}\n",
    "engine-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: engine\nVersion: 1.0\n",
    "engine-1.0.dist-info/RECORD": "engine/__init__.py,,\n",
}


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """The distribution installed for this interpreter, the patches among the known ones."""
    site = tmp_path / "site"
    for name, text in FILES.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setattr(patch, "load_set", lambda names, folder: PatchSet((two_streams(), audible(), guard())))
    return Job(recipe=RECIPE, standing=tmp_path, root=tmp_path, product=tmp_path / "product", work=tmp_path / "work")


def test_product_and_provenance(job: Job, tmp_path: Path) -> None:
    assert patch.estimate(job).counts == {"patches": "3", "files": "2", "edits": "3"}
    product = patch.make(job)
    assert product.kind == "tree" and set(product.digests) == {"tree", "provenance", "inputs"}
    assert patch.make(job) == product
    found = patch.verify(job, product)
    assert found.faults == () and found.digests == product.digests
    markers = PatchSet((two_streams(), audible())).markers("engine/streams.py")
    streams = sha256_file(job.product / "engine/streams.py")
    assert product.digests["tree"] == patch.tree_digest({"engine/streams.py": (streams, markers)})
    again = patch.make(replace(job, product=tmp_path / "again"))
    assert again.digests == product.digests


def test_a_change_of_product_or_distribution_is_a_fault(job: Job, tmp_path: Path) -> None:
    product = patch.make(job)
    sound = (job.product / "engine/streams.py").read_text()
    (job.product / "engine/streams.py").write_text(sound.replace("COUNT = 2", "COUNT = 4"))
    found = patch.verify(job, product)
    assert "not what these patches give" in found.faults[0] and found.digests != product.digests
    (job.product / "engine/streams.py").write_text(sound)
    (tmp_path / "site/engine/streams.py").write_text("COUNT = 5\n")
    assert "drifted" in patch.verify(job, product).faults[0]
    (job.product / "provenance.json").unlink()
    assert patch.verify(job, product).faults == ("provenance.json is missing",)


def elsewhere(link: Path) -> None:
    link.unlink()
    link.symlink_to("/etc/hostname")


def by_a_copy(link: Path) -> None:
    target = link.readlink()
    link.unlink()
    link.write_bytes(target.read_bytes())


def with_a_stranger_in_it(folder: Path) -> None:
    folder.mkdir()
    (folder / "streams.py").write_text("")


CHANGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a link leads elsewhere": ("engine/__init__.py", elsewhere),
    "a link became a file": ("engine/__init__.py", by_a_copy),
    "a link is gone": ("engine/__init__.py", Path.unlink),
    "the metadata's link is gone": ("engine-1.0.dist-info", Path.unlink),
    "a file was added at the top": ("sitecustomize.py", lambda path: path.write_text("import os\n")),
    "a file was added inside": ("engine/extra.py", lambda path: path.write_text("")),
    "a folder was added": ("engine/extra", Path.mkdir),
    "a pipe was added": ("engine/pipe", os.mkfifo),
    "bytecode at the top": ("__pycache__", Path.mkdir),
    "bytecode is a program": ("engine/__pycache__", with_a_stranger_in_it),
    "a patched file is gone": ("engine/streams.py", Path.unlink),
    "a patched file became a link": ("engine/streams.py", elsewhere),
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_entry_is_what_it_should_be_and_nothing_more(name: str, job: Job) -> None:
    product = patch.make(job)
    place, change = CHANGES[name]
    change(job.product / place)
    (fault,) = patch.verify(job, product).faults
    assert "not what these patches give" in fault and place in fault
    with pytest.raises(StateError, match="not what these patches give"):
        patch.make(job)


def test_a_folder_that_is_no_shadow_keeps_what_it_has(job: Job, tmp_path: Path) -> None:
    """Neither its own bytecode goes, nor that of a package which it has by a link."""
    for package in (job.product / "mine", tmp_path / "theirs/engine"):
        (package / "__pycache__").mkdir(parents=True)
        (package / "streams.py").write_text("")
        py_compile.compile(str(package / "streams.py"), doraise=True)
    (job.product / "engine").symlink_to(tmp_path / "theirs/engine")
    with pytest.raises(StateError, match="not what these patches give"):
        patch.make(job)
    for package in (job.product / "mine", tmp_path / "theirs/engine"):
        assert len(list((package / "__pycache__").iterdir())) == 1


def test_bytecode_beside_a_patched_file_is_named_and_never_kept(job: Job, tmp_path: Path) -> None:
    """An interpreter runs it without a look at the file, whose digest stays what it was."""
    product = patch.make(job)
    patched, other = job.product / "engine/streams.py", tmp_path / "other.py"
    other.write_text(patched.read_text().replace("COUNT = 2", "COUNT = 666"))
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    cached = importlib.util.cache_from_source(str(patched))
    py_compile.compile(str(other), cfile=cached, dfile=str(patched), invalidation_mode=unchecked)
    (fault,) = patch.verify(job, product).faults
    assert "engine/__pycache__" in fault and "expected nothing" in fault
    Path(f"{cached}.140234").write_bytes(b"killed while writing")
    assert patch.make(job) == product, "what an interpreter of somebody's left is cleared away"
    assert not Path(cached).exists() and patch.verify(job, product).faults == ()


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (RECIPE.model_copy(update={"distribution": "engine==2.0"}), "another distribution"),
        (RECIPE.model_copy(update={"after": {"engine/streams.py": "0" * 64}}), "than the order says"),
        (RECIPE.model_copy(update={"after": {"engine/other.py": "0" * 64}}), "no patch edits"),
    ],
)
def test_an_order_that_does_not_fit(job: Job, recipe: Patching, message: str) -> None:
    with pytest.raises(InputError, match=message):
        patch.make(replace(job, recipe=recipe))
    assert not job.product.exists()


def test_another_version_is_not_patched(job: Job, tmp_path: Path) -> None:
    metadata = tmp_path / "site/engine-1.0.dist-info/METADATA"
    metadata.write_text(metadata.read_text().replace("Version: 1.0", "Version: 1.1"))
    with pytest.raises(InputError, match="another version is installed"):
        patch.make(job)
