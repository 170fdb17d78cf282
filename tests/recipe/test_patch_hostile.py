"""Patches against files and installations that are not as one expects."""

from __future__ import annotations

import configparser
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from recipe import patch_apply, patch_set
from recipe.patch_set import Edit, FilePatch, Patch, PatchSet, markers_in
from runner.digest import sha256_bytes
from runner.errors import InputError, StateError


def patch_of(content: bytes, *edits: Edit, file: str = "engine/part.py") -> Patch:
    part = FilePatch(file=file, before=sha256_bytes(content), after="0" * 64, edits=edits)
    given = Patch(schema_version=1, name="p", version=1, distribution="engine==1.0", why="a test", files=(part,))
    try:
        after = sha256_bytes(patch_set.patched(given, part, content))
    except InputError:
        after = "0" * 64
    return given.model_copy(update={"files": (part.model_copy(update={"after": after}),)})


def site_with(folder: Path, content: bytes) -> Path:
    (folder / "engine").mkdir(parents=True)
    (folder / "engine/part.py").write_bytes(content)
    return folder


ADD = Edit(anchor="COUNT = 1", place="after", text="MORE = 2\n")


@pytest.mark.parametrize("content", [b"COUNT = 1", b"FIRST = 0\nCOUNT = 1", b"COUNT = 1\nLAST = 3", b"COUNT = 1\n"])
def test_what_comes_after_the_last_line_comes_last(content: bytes, tmp_path: Path) -> None:
    """A file need not end with a line's end."""
    site = site_with(tmp_path, content)
    patch_apply.apply(site, PatchSet((patch_of(content, ADD),)), None)
    found = (site / "engine/part.py").read_text()
    values: dict[str, object] = {}
    exec(compile(found, "part", "exec"), values)  # the patched file of this test
    assert values["COUNT"] == 1 and values["MORE"] == 2
    assert found.index("COUNT = 1\nMORE = 2\n") >= 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"COUNT = 1\n\xff\xfe\n", "no UTF-8 text"),
        (b"COUNT = 1\n\x00\n", "does not compile"),
        (b"COUNT = 1\nCOUNT = 1\n", "anchor is not unique"),
        (b"", "anchor is not unique"),
    ],
)
def test_a_file_that_cannot_be_patched_is_named_and_left(content: bytes, message: str, tmp_path: Path) -> None:
    site = site_with(tmp_path, content)
    with pytest.raises(InputError, match=message):
        patch_apply.apply(site, PatchSet((patch_of(content, ADD),)), None)
    assert (site / "engine/part.py").read_bytes() == content
    assert sorted(path.name for path in site.rglob("*")) == ["engine", "part.py"]


@pytest.mark.parametrize(
    "file", ["engine/./part.py", "engine//part.py", "./engine/part.py", "engine/part.py/", "/engine/p"]
)
def test_one_file_has_one_name(file: str) -> None:
    """Two names of one file would be patched one over the other."""
    with pytest.raises(ValueError, match="no file inside a package"):
        patch_of(b"COUNT = 1\n", ADD, file=file)


READERS: dict[str, tuple[str, Callable[[str], object]]] = {
    "part.yaml": ("count: 1\n", yaml.safe_load),
    "part.toml": ("count = 1\n", tomllib.loads),
    "part.sh": ("count=1\n", lambda text: subprocess.run(["bash", "-euc", text], check=True).returncode),
    "part.cfg": ("[one]\ncount = 1\n", lambda text: configparser.ConfigParser().read_string(text)),
}


@pytest.mark.parametrize("name", READERS)
def test_a_marker_is_a_comment_in_its_files_language(name: str, tmp_path: Path) -> None:
    text, read = READERS[name]
    edit = Edit(anchor="ount", place="replace", text="ounts")
    patch = patch_of(text.encode(), edit, file=f"engine/{name}")
    made = PatchSet((patch,)).compose(f"engine/{name}", text.encode())
    assert read(made.decode()) == read(text.replace("ount", "ounts"))
    assert markers_in(made) == PatchSet((patch,)).markers(f"engine/{name}")


@pytest.mark.parametrize("name", ["config.json", "notes.txt", "script", "table.csv"])
def test_a_file_without_comments_cannot_be_patched(name: str) -> None:
    with pytest.raises(ValueError, match="no room for a marker"):
        patch_of(b"{}", ADD, file=f"engine/{name}")


def test_a_folder_that_is_a_link_out_is_another_installations(tmp_path: Path) -> None:
    content = b"COUNT = 1\n"
    other = site_with(tmp_path / "other", content)
    site = tmp_path / "site"
    site.mkdir()
    (site / "engine").symlink_to(other / "engine")
    patches = PatchSet((patch_of(content, ADD),))
    for attempt in (patch_apply.apply, patch_apply.verify):
        with pytest.raises(StateError, match="link out of the installation"):
            attempt(site, patches)
    assert (other / "engine/part.py").read_bytes() == content


def test_a_file_that_is_a_link_is_replaced_and_what_it_led_to_stays(tmp_path: Path) -> None:
    content = b"COUNT = 1\n"
    other = site_with(tmp_path / "other", content)
    site = tmp_path / "site"
    (site / "engine").mkdir(parents=True)
    (site / "engine/part.py").symlink_to(other / "engine/part.py")
    patches = PatchSet((patch_of(content, ADD),))
    patch_apply.apply(site, patches, None)
    assert (other / "engine/part.py").read_bytes() == content
    assert patch_apply.revert(site, patches) == ["engine/part.py"]
    assert (site / "engine/part.py").read_bytes() == content


def test_files_with_equal_bytes_are_reverted_each_by_itself(tmp_path: Path) -> None:
    """Of one patch set, and of two; also where the first revert was killed between them."""
    content = b"COUNT = 1\n"
    site = site_with(tmp_path / "site", content)
    (site / "engine/twin.py").write_bytes(content)
    (site / "engine/third.py").write_bytes(content)
    first, second, third = (patch_of(content, ADD, file=f"engine/{name}.py") for name in ("part", "twin", "third"))
    pair, other = PatchSet((first, second)), PatchSet((third,))
    for patches in (pair, other):
        patch_apply.apply(site, patches, None)
    assert patch_apply.revert(site, PatchSet((first,))) == ["engine/part.py"]
    assert patch_apply.revert(site, pair) == ["engine/twin.py"]
    patch_apply.apply(site, pair, None)
    assert patch_apply.revert(site, pair) == ["engine/part.py", "engine/twin.py"]
    assert patch_apply.revert(site, other) == ["engine/third.py"]
    assert {path.read_bytes() for path in (site / "engine").iterdir()} == {content}
    assert not (site / patch_apply.STORE).exists()


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        patch_apply.apply(tmp_path / "nowhere", PatchSet((patch_of(b"COUNT = 1\n", ADD),)), None)
