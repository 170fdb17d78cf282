"""Patches on an invented distribution: what they refuse, what they leave, and what a kill leaves."""

from __future__ import annotations

import importlib.util
import itertools
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe import patch_apply, patch_check, patch_set, patch_shadow
from recipe.patch_set import Edit, FilePatch, Patch, PatchSet
from runner.digest import sha256_bytes
from runner.errors import InputError, StateError

FILES = {
    "engine/__init__.py": b"",
    "engine/streams.py": b"COUNT = 3\n\n\ndef streams():\n    return COUNT\n",
    "engine/deep/kernel.cu": b"int tune()\n{\n    return time();\n}\n",
    "engine/deep/__init__.py": b"",
    "engine/data/weights.bin": b"\x00\x01",
    "engine-1.0.dist-info/RECORD": b"engine/__init__.py,,\nengine/streams.py,,\n",
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """``site-packages`` with the invented distribution."""
    for name, data in FILES.items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "site"


def one(name: str, file: str, *edits: Edit, imports: str | None = None, version: int = 1) -> Patch:
    """A patch of one file, its digest after worked out."""
    part = FilePatch(file=file, before=sha256_bytes(FILES[file]), after="0" * 64, imports=imports, edits=tuple(edits))
    given = Patch(schema_version=1, name=name, version=version, distribution="engine==1.0", why="a test", files=(part,))
    after = sha256_bytes(patch_set.patched(given, part, FILES[file]))
    return given.model_copy(update={"files": (part.model_copy(update={"after": after}),)})


def two_streams(version: int = 1, count: int = 2) -> Patch:
    edit = Edit(anchor="COUNT = 3", place="replace", text=f"COUNT = {count}")
    return one("two-streams", "engine/streams.py", edit, imports="engine.streams", version=version)


def audible() -> Patch:
    edit = Edit(anchor="return COUNT", place="before", text="    print(COUNT)\n")
    return one("audible", "engine/streams.py", edit, imports="engine.streams")


def guard() -> Patch:
    edit = Edit(anchor="return time();", place="before", text="    if (capturing()) return 0;\n")
    return one("guard", "engine/deep/kernel.cu", edit)


BOTH = PatchSet((two_streams(), audible(), guard()))


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every real file below ``folder`` that is no bytecode."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink() and "__pycache__" not in path.parts
    }


def test_apply_twice_verify_and_revert(site: Path) -> None:
    assert patch_apply.apply(site, BOTH) == ["engine/streams.py", "engine/deep/kernel.cu"]
    text = (site / "engine/streams.py").read_text()
    assert "COUNT = 2" in text and "    print(COUNT)\n    return COUNT" in text
    assert patch_set.markers_in(text.encode()) == BOTH.markers("engine/streams.py")
    assert patch_apply.apply(site, BOTH) == []
    patch_apply.verify(site, BOTH)
    assert patch_apply.revert(site, BOTH) == ["engine/streams.py", "engine/deep/kernel.cu"]
    assert snapshot(site) == {name: FILES[name] for name in sorted(FILES)}
    assert patch_apply.revert(site, BOTH) == []
    with pytest.raises(InputError, match="not patched"):
        patch_apply.verify(site, BOTH)


def test_bytecode_of_other_code_is_named_and_goes_when_the_patch_is_applied_again(site: Path, tmp_path: Path) -> None:
    """In place the engine compiles beside its own files; what it compiled is no fault, what was planted is one."""
    patch_apply.apply(site, BOTH)
    file = site / "engine/streams.py"
    py_compile.compile(str(file), doraise=True)
    patch_apply.verify(site, BOTH)
    (tmp_path / "other.py").write_text("COUNT = 9\n")
    place = importlib.util.cache_from_source(str(file))
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(tmp_path / "other.py"), cfile=place, doraise=True, invalidation_mode=unchecked)
    with pytest.raises(StateError, match="other code than the patched file's"):
        patch_apply.verify(site, BOTH)
    assert patch_apply.apply(site, BOTH) == []
    patch_apply.verify(site, BOTH)
    assert not Path(place).exists()


def test_shadow_leaves_the_distribution_alone_and_comes_first(site: Path, tmp_path: Path) -> None:
    shadow = patch_shadow.shadow(site, BOTH, tmp_path / "shadow")
    assert snapshot(site) == {name: FILES[name] for name in sorted(FILES)}
    assert not list(tmp_path.glob(".shadow*"))
    assert (shadow / "engine/data").is_symlink() and (shadow / "engine-1.0.dist-info").is_symlink()
    code = "import engine.streams as s; print(s.streams(), s.__carve_patches__, s.__file__)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={"PYTHONPATH": f"{shadow}:{site}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "2 ('two-streams@1:" in done.stdout and str(shadow) in done.stdout
    assert patch_shadow.shadow(site, BOTH, shadow) == shadow
    (shadow / "engine/streams.py").write_text("COUNT = 3\n")
    with pytest.raises(StateError, match="not what these patches give"):
        patch_shadow.shadow(site, BOTH, shadow)


def test_a_drifted_file_is_refused_before_anything_is_written(site: Path, tmp_path: Path) -> None:
    (site / "engine/deep/kernel.cu").write_bytes(b"int tune() { return 1; }\n")
    before = snapshot(site)
    with pytest.raises(InputError, match="drifted"):
        patch_apply.apply(site, BOTH)
    with pytest.raises(InputError, match="drifted"):
        patch_shadow.shadow(site, BOTH, tmp_path / "shadow")
    assert snapshot(site) == before and not (tmp_path / "shadow").exists()


@pytest.mark.parametrize("anchor", ["absent text", "COUNT"])
def test_an_anchor_occurs_exactly_once(anchor: str) -> None:
    with pytest.raises(InputError, match="anchor is not unique"):
        one("wrong", "engine/streams.py", Edit(anchor=anchor, place="replace", text=""))


@pytest.mark.parametrize(
    ("text", "edits"),
    [
        ("NAME = 'ababab'\n", [Edit(anchor="abab", place="replace", text="ZZ")]),
        ("# -----\n", [Edit(anchor="----", place="replace", text="=")]),
        (
            "OLD = 1\n",
            [Edit(anchor="OLD =", place="after", text="NEW = 5\n"), Edit(anchor="NEW = 5", place="replace", text="")],
        ),
    ],
    ids=["overlapping", "dashes", "only in what an edit put in"],
)
def test_an_anchor_is_counted_in_the_file_itself_and_where_it_overlaps(text: str, edits: list[Edit]) -> None:
    part = FilePatch(file="engine/odd.py", before=sha256_bytes(text.encode()), after="0" * 64, edits=tuple(edits))
    patch = Patch(schema_version=1, name="odd", version=1, distribution="engine==1.0", why="a test", files=(part,))
    with pytest.raises(InputError, match="anchor is not unique"):
        patch_set.patched(patch, part, text.encode())


def test_a_module_is_the_proof_of_one_file() -> None:
    """A later file under the same name took the proof from the earlier one."""
    more = Edit(place="end", text="# more\n")
    both = PatchSet(
        tuple(
            one(name, file, more, imports="engine")
            for name, file in (("a", "engine/streams.py"), ("b", "engine/__init__.py"))
        )
    )
    with pytest.raises(InputError, match="one module is to be imported as proof of two files"):
        _ = both.modules


def test_a_second_patch_may_not_lose_its_anchor_to_the_first(site: Path) -> None:
    taken = one("late", "engine/streams.py", Edit(anchor="COUNT = 3", place="replace", text="COUNT = 1"))
    with pytest.raises(InputError, match="anchor is not unique"):
        patch_apply.apply(site, PatchSet((two_streams(), taken)))
    assert snapshot(site) == {name: FILES[name] for name in sorted(FILES)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("COUNT = = 2", "does not compile"),
        ("import no_such_module", "does not import"),
        ("COUNT = 1 / 0", "import"),
        ("import sys; sys.stderr.buffer.write(bytes([255])); COUNT = 1 / 0", "does not import"),
        ("import os; os._exit(0)", "another file than the patched one"),
        ("raise SystemExit(0)", "another file than the patched one"),
        ("__file__ = None", "another file than the patched one"),
    ],
)
def test_a_result_that_does_not_run_is_refused(site: Path, tmp_path: Path, text: str, message: str) -> None:
    broken = PatchSet(
        (
            one(
                "broken",
                "engine/streams.py",
                Edit(anchor="COUNT = 3", place="replace", text=text),
                imports="engine.streams",
            ),
        )
    )
    for attempt in (lambda: patch_apply.apply(site, broken), lambda: patch_shadow.shadow(site, broken, tmp_path / "s")):
        with pytest.raises(InputError, match=message):
            attempt()
    assert snapshot(site) == {name: FILES[name] for name in sorted(FILES)}
    assert not (tmp_path / "s").exists()


def test_a_stale_marker_is_refused_and_can_be_reverted(site: Path) -> None:
    """The file bears the same patch in another version: "already patched" would be wrong."""
    old, new = PatchSet((two_streams(),)), PatchSet((two_streams(version=2, count=1),))
    patch_apply.apply(site, old)
    with pytest.raises(StateError, match="stale marker") as caught:
        patch_apply.apply(site, new)
    assert "two-streams@1:" in caught.value.found
    patch_apply.revert(site, old)
    assert patch_apply.apply(site, new) == ["engine/streams.py"]


def test_an_edit_after_the_patch_is_drift(site: Path) -> None:
    patch_apply.apply(site, BOTH)
    file = site / "engine/deep/kernel.cu"
    whole = file.read_bytes()
    file.write_bytes(whole + b"// by hand\n")
    for attempt in (patch_apply.verify, patch_apply.apply, patch_apply.revert):
        with pytest.raises(StateError, match="has drifted") as caught:
            attempt(site, BOTH)
        assert (sha256_bytes(whole), sha256_bytes(file.read_bytes())) == (
            caught.value.expected.removeprefix("SHA-256 "),
            caught.value.found,
        )
    kept = next(word for word in caught.value.next_step.split() if patch_apply.STORE in word)
    shutil.copyfile(kept, file)
    assert patch_apply.apply(site, BOTH) == ["engine/deep/kernel.cu"]
    patch_apply.revert(site, BOTH)
    assert snapshot(site) == {name: FILES[name] for name in sorted(FILES)}


def test_kept_bytes_that_are_others_are_said_to_be_that(site: Path) -> None:
    patches = PatchSet((two_streams(),))
    patch_apply.apply(site, patches)
    for kept in (site / patch_apply.STORE).iterdir():
        kept.write_bytes(b"others\n")
    with pytest.raises(StateError, match="its own bytes are gone") as caught:
        patch_apply.revert(site, patches)
    assert caught.value.found == "other bytes"


def test_a_patched_file_whose_own_bytes_are_gone_is_said_to_be_that(site: Path) -> None:
    patches = PatchSet((two_streams(),))
    patch_apply.apply(site, patches)
    shutil.rmtree(site / patch_apply.STORE)
    for attempt in (patch_apply.apply, patch_apply.verify, patch_apply.revert):
        with pytest.raises(StateError, match="its own bytes are gone") as caught:
            attempt(site, patches)
        assert "install the distribution again" in caught.value.next_step


def test_a_shadow_beside_where_one_stands(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["patch_apply", "shadow", "site", "shadow", "two-streams"])
    monkeypatch.setattr(patch_apply, "load_set", lambda names: PatchSet((two_streams(),)))
    patch_apply.main()
    assert (tmp_path / "shadow/engine/streams.py").is_file()


@pytest.mark.parametrize("suffix", [".rej", ".orig"])
def test_leftovers_of_another_tool_stop_the_order(site: Path, suffix: str) -> None:
    (site / f"engine/streams.py{suffix}").write_text("@@ -1 +1 @@\n")
    with pytest.raises(StateError, match="another tool"):
        patch_apply.apply(site, BOTH)


def test_python_that_imports_another_copy_is_found_out(site: Path, tmp_path: Path) -> None:
    """The edit lands in one tree while Python imports another: here ``site`` comes before the shadow."""
    shadow = patch_shadow.shadow(site, BOTH, tmp_path / "shadow", None)
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH="{site}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    with pytest.raises(InputError, match="imports another file"):
        patch_check.import_check(str(wrapper), shadow, BOTH, site)


def test_the_stated_result_must_come_out(site: Path) -> None:
    wrong = two_streams()
    wrong = wrong.model_copy(update={"files": (wrong.files[0].model_copy(update={"after": "1" * 64}),)})
    with pytest.raises(InputError, match="another file than it says"):
        patch_apply.apply(site, PatchSet((wrong,)))


class Killed(BaseException):
    """Stands for the end of the process at one system call."""


def kill_at(monkeypatch: pytest.MonkeyPatch, point: int) -> Callable[[], int]:
    """End the process's work at call ``point`` of whatever changes the disk."""
    calls = itertools.count()
    last = [0]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            last[0] = next(calls)
            if last[0] == point:
                raise Killed
            return real(*arguments, **options)

        return call

    for owner, name in (
        ("os", "fsync"), ("os", "open"), ("pathlib.Path.replace", ""), ("pathlib.Path.mkdir", ""),
        ("pathlib.Path.symlink_to", ""), ("pathlib.Path.write_bytes", ""), ("pathlib.Path.unlink", ""),
    ):  # fmt: skip
        target = f"{owner}.{name}" if name else owner
        module, _, attribute = target.rpartition(".")
        holder = Path if module == "pathlib.Path" else __import__(module)
        monkeypatch.setattr(target, counted(getattr(holder, attribute)))
    return lambda: last[0]


def test_killed_at_every_point_in_place_the_next_run_completes(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = 0
    for point in range(200):
        with monkeypatch.context() as context:
            reached = kill_at(context, point)
            try:
                patch_apply.apply(site, BOTH, python=None)
            except Killed:
                points += 1
            done = reached() < point
        for file in BOTH.files:
            found = (site / file).read_bytes()
            assert found in (FILES[file], BOTH.compose(file, FILES[file]))
        patch_apply.apply(site, BOTH, python=None)
        patch_apply.verify(site, BOTH)
        patch_apply.revert(site, BOTH)
        assert snapshot(site) == {name: FILES[name] for name in sorted(FILES)}
        if done:
            break
    assert points > 10


def test_killed_at_every_point_a_shadow_is_absent_or_complete(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shadow, points = tmp_path / "shadow", 0
    for point in range(200):
        with monkeypatch.context() as context:
            reached = kill_at(context, point)
            try:
                patch_shadow.shadow(site, BOTH, shadow, python=None)
            except Killed:
                points += 1
            done = reached() < point
        if shadow.exists():
            patch_shadow.shadow(site, BOTH, shadow, python=None)
        patch_shadow.remove_shadow(shadow)
        if done:
            break
    assert points > 10
    assert snapshot(site) == {name: FILES[name] for name in sorted(FILES)}


def test_a_full_disk_is_named(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StateError, match="cannot be written") as caught:
        patch_shadow.shadow(site, BOTH, tmp_path / "shadow", None)
    assert caught.value.found == "No space left on device"
    with pytest.raises(StateError, match="could not be written"):
        patch_apply.apply(site, BOTH, None)
    monkeypatch.undo()
    assert snapshot(site) == {name: FILES[name] for name in sorted(FILES)}
    assert not (tmp_path / "shadow").exists()


WORDS = st.text(st.characters(categories=["L", "N"]), min_size=4, max_size=12)


@given(st.lists(WORDS, min_size=3, max_size=8, unique=True), st.data())
def test_edits_change_only_what_they_name(lines: list[str], data: st.DataObject) -> None:
    """Any file of distinct lines: the other lines stay, in order, and the marker comes last."""
    chosen = data.draw(st.integers(0, len(lines) - 1))
    place = data.draw(st.sampled_from(["replace", "before", "after"]))
    text = "".join(f"{line}\n" for line in lines)
    anchor = lines[chosen]
    inserted = "INSERTED" if place == "replace" else "INSERTED\n"
    edit = Edit.model_validate({"anchor": anchor, "place": place, "text": inserted})
    part = FilePatch(file="engine/notes.cu", before=sha256_bytes(text.encode()), after="0" * 64, edits=(edit,))
    made = Patch(schema_version=1, name="p", version=1, distribution="engine==1.0", why="w", files=(part,))
    if text.count(anchor) != 1:
        with pytest.raises(InputError):
            patch_set.patched(made, part, text.encode())
        return
    found = patch_set.patched(made, part, text.encode()).decode().splitlines()
    expected = lines.copy()
    at = chosen + (place == "after")
    expected[at : at + (place == "replace")] = ["INSERTED"]
    assert found[: len(expected)] == expected
    assert patch_set.markers_in("\n".join(found).encode()) == (made.marker_of(part),)


@pytest.mark.parametrize("python", ["/no/such/python", "/tmp", "/bin/true", "/bin/echo"])
def test_what_is_no_interpreter_is_named(python: str, site: Path) -> None:
    before = snapshot(site)
    with pytest.raises(InputError):
        patch_apply.apply(site, BOTH, python)
    assert snapshot(site) == before


@pytest.mark.parametrize("noise", ["import atexit; atexit.register(print, 'bye')", "print('[1]'); print(chr(233))"])
def test_a_module_that_talks_is_patched(noise: str, site: Path) -> None:
    """What it prints, before or after, is not taken for the answer."""
    edit = Edit(anchor="COUNT = 3", place="replace", text=f"COUNT = 4; {noise}")
    talking = PatchSet((one("talking", "engine/streams.py", edit, imports="engine.streams"),))
    assert patch_apply.apply(site, talking) == ["engine/streams.py"]
