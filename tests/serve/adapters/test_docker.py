"""The docker adapter against a stand-in for docker, behind which the fake engine serves; each fault has its name."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import SystemRandom
from typing import Any

import httpx
import pytest

from runner.digest import sha256_file
from runner.errors import SeatError
from runner.model.boot import BootRecord
from runner.model.plan import PlannedBoot
from runner.model.seat import Container, Machine, Mount, SeatManifest
from runner.paths import source_root
from runner.sandbox import HIDDEN_CODE, SERVED_CODE, private
from runner.steps.seats import load_manifest, seat_of
from serve.adapters.booted import BootedEngine
from serve.adapters.docker import DockerSeat, label_of
from serve.adapters.docker_launch import bears
from serve.adapters.watchdog import descendants, listening
from serve.seat import BootRequest
from tests.serve.adapters.docker_stand_in import IMAGE, Daemon, World, docker

DEVICES = tuple(SystemRandom().sample(range(10_000, 1_000_000), 2))
"""No other test process on this machine reserves these."""
COMMAND = ("-m", "engine", "--model", "{pack}", "--port", "{port}", "--served-model-name", "toy")


def manifest_of(folder: Path, *extra: Mount, digest: str = IMAGE, seat: str = "fake-tp2") -> SeatManifest:
    """The toy seat in a container that mounts a pack, this checkout, a cache, and an extension by its digest."""
    extension = folder / "extension.so"
    if not extension.exists():
        extension.write_bytes(b"compiled")
    container = Container(
        image="a toy",
        digest=digest,
        mounts=(
            Mount(host="{pack}", inside="/pack"),
            Mount(host="{code}", inside="/carve/code"),
            Mount(host=str(folder / "cache"), inside="/carve/cache", writable=True),
            Mount(host=str(extension), inside="/carve/extension.so", digest=sha256_file(extension)),
            *extra,
        ),
        ulimits={"core": 0},
        shared_memory_gb=1,
    )
    machine = Machine(
        processor="toy",
        devices=DEVICES,
        memory_gb="1",
        multiprocessors=1,
        l2_mb="1",
        bandwidth="1",
        clocks="",
        power="",
    )
    changes = {"adapter": "docker", "container": container, "machine": machine, "command": COMMAND}
    return load_manifest(seat).model_copy(update=changes | {"environment": {"VLLM_PLUGINS": "carve_exl3"}})


def request(folder: Path, manifest: SeatManifest, *, strict: int = 2, run: str = "r1") -> BootRequest:
    """A boot with one candidate library."""
    library = folder / "lna2.so"
    library.write_bytes(b"lna2")
    (folder / "pack").mkdir(exist_ok=True)
    (folder / "pack" / "config.json").write_text("{}")
    planned = PlannedBoot.model_validate(
        {"id": "shared-a", "role": "shared", "libraries": ["lna2"], "strict": strict, "seconds": 1}
    )
    return BootRequest(
        planned=planned,
        manifest=manifest,
        pack=folder / "pack",
        libraries={"lna2": library},
        variant="incumbent",
        allowed_declines=("rows-above-limit",),
        folder=folder / "boot",
        run=run,
    )


@contextmanager
def world_of(folder: Path, monkeypatch: pytest.MonkeyPatch, world: World | None = None) -> Iterator[Daemon]:
    """The stand-in is this process's docker."""
    with docker(folder, world) as (daemon, environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield daemon


def booted(folder: Path, *extra: Mount, **choices: Any) -> BootedEngine:
    return DockerSeat().boot(request(folder, manifest_of(folder, *extra), **choices))


def differing(record: BootRecord) -> dict[str, tuple[Any, Any]]:
    return {
        name: (value, record.resolved.get(name))
        for name, value in record.requested.items()
        if record.resolved.get(name) != value
    }


def test_a_boot_is_read_back_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world_of(tmp_path, monkeypatch) as daemon:
        boot = booted(tmp_path)
        record = boot.record
        assert (record.label, record.canary, record.kv_tokens) == ("simulated", True, 8192)
        assert [rank.rank for rank in record.ranks] == [0, 1]
        assert {rank.pid for rank in record.ranks} <= set(descendants(record.pid)), "whose processor time is ours"
        assert (record.sandbox.tool, record.sandbox.version) == ("docker", "29.0.1")
        assert differing(record) == {}
        assert record.resolved["container.devices"] == [str(device) for device in DEVICES]
        assert record.resolved["container.mount./pack"] == "{pack} read-only"
        assert record.resolved["container.ulimits"] == {"core": 0}
        assert record.resolved["environment.CARVE_STRICT"] == "2"
        kept = [name for name, value in record.resolved.items() if str(tmp_path) in json.dumps(value)]
        assert kept == ["container.mount./carve/cache", "container.mount./carve/extension.so"], "as the manifest says"
        assert httpx.get(f"{boot.base_url}/health", timeout=120).status_code == 200
        (container,) = daemon.containers.values()
        assert bears(container.inspect, run="r1", seat="fake-tp2", boot="shared-a")
        port = int(boot.base_url.rpartition(":")[2])
        ended = boot.stop()
        assert (ended.ended, ended.leftovers) == ("stopped", ())
        assert daemon.containers == {}
        assert not listening(port)
        assert "plugin ready on rank 1" in boot.logs()
        assert boot.stop() is boot.record
        assert {path.name for path in (tmp_path / "boot").iterdir()} == {"engine.log"}
    verbs = [call[0] for call in daemon.calls if call[0] in ("run", "stop", "rm")]
    assert verbs == ["run", "stop", "rm"]


def test_output_that_comes_late_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers over HTTP overtake what was printed before them."""
    with world_of(tmp_path, monkeypatch, World(holds_back="carve mark")):
        boot = booted(tmp_path)
        assert (boot.record.canary, boot.record.kv_tokens) == (True, 8192)
        boot.stop()


def test_output_that_does_not_come_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve.adapters.booted.LOG_SECONDS", 0.2)
    with world_of(tmp_path, monkeypatch, World(holds_back="never")) as daemon:
        with pytest.raises(SeatError, match="the engine's output does not arrive"):
            booted(tmp_path)
        assert daemon.containers == {}


def test_what_is_in_flight_finishes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world_of(tmp_path, monkeypatch), ThreadPoolExecutor(1) as pool:
        boot = booted(tmp_path)
        body = {"model": "toy", "prompt": [65], "max_tokens": 200, "ignore_eos": True}
        asked = pool.submit(httpx.post, f"{boot.base_url}/v1/completions", json=body, timeout=120)
        while not boot.counters()[0].witness[0].launches > 5:
            time.sleep(0.01)
        ended = boot.stop()
        assert asked.result().json()["usage"]["completion_tokens"] == 200
    assert (ended.ended, ended.leftovers) == ("stopped", ())


def test_the_seat_is_found_by_its_adapter(tmp_path: Path) -> None:
    asked = request(tmp_path, manifest_of(tmp_path))
    assert isinstance(seat_of(asked.manifest, asked.planned), DockerSeat)


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world_of(tmp_path, monkeypatch) as daemon:
        booted(tmp_path).stop()
    (line,) = [call for call in daemon.calls if call[0] == "run"]
    assert line[line.index("--gpus") + 1] == f'"device={DEVICES[0]},{DEVICES[1]}"'
    assert line[line.index("--pull") + 1] == "never"
    assert line[line.index("--publish") + 1].startswith("127.0.0.1:")
    assert line[line.index("--ulimit") + 1] == "core=0"
    mounts = [word for before, word in pairwise(line) if before == "--mount"]
    assert f"type=bind,src={tmp_path}/extension.so,dst=/carve/extension.so,readonly" in mounts
    assert f"type=bind,src={tmp_path}/cache,dst=/carve/cache" in mounts
    assert "type=tmpfs,dst=/carve/code/runner/gates" in mounts
    after = line[line.index(f"sha256:{IMAGE}") :]
    assert after[1:4] == ["-P", "-m", "engine"]
    assert after[after.index("--model") + 1] == "/pack"
    assert after[after.index("--port") + 1] == "8000"
    assert "--no-enable-prefix-caching" in after
    assert not [word for word in line if "-v" in (word, word[:2]) or ":latest" in word]


def test_nothing_that_judges_is_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the checkout what is imported, and that without gates and texts; no canon, reports, orders, tests or keys."""
    with world_of(tmp_path, monkeypatch) as daemon:
        booted(tmp_path).stop()
    (line,) = [call for call in daemon.calls if call[0] == "run"]
    mounts = [dict(part.partition("=")[::2] for part in line[at + 1].split(",")) for at in _places(line, "--mount")]
    bound = {Path(one["src"]): one["dst"] for one in mounts if one["type"] == "bind"}
    hidden = {one["dst"] for one in mounts if one["type"] == "tmpfs"}
    ours = {path: inside for path, inside in bound.items() if inside.startswith("/carve/code")}
    assert ours == {source_root() / name: f"/carve/code/{name}" for name in SERVED_CODE}
    folders = [path for path in bound if path.is_dir()]  # a file is shown by its name: a library of the build cache
    for kept in (*private(), *(source_root() / name for name in HIDDEN_CODE)):
        assert not [path for path in folders if path.is_relative_to(kept) and kept != source_root()]
        reached = [f"{inside}/{kept.relative_to(path)}" for path, inside in bound.items() if kept.is_relative_to(path)]
        assert set(reached) <= hidden


def _places(words: list[str], option: str) -> list[int]:
    return [at for at, word in enumerate(words) if word == option]


@pytest.mark.parametrize(
    ("world", "words"),
    [
        (World(images={}), "the seat's image is not here"),
        (World(denied=True), "this user may not talk to docker"),
        (World(port_taken=True), "port is already allocated"),
        (World(dies_at="ready on rank 0"), "exit code 137"),
        (World(says="RuntimeError: CUDA out of memory\n", dies_at="KV cache"), "CUDA out of memory"),
        (World(dies_at="KV cache", out_of_memory=True), "killed for memory (OOMKilled), exit code 137"),
    ],
)
def test_faults_before_readiness_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: World, words: str
) -> None:
    with world_of(tmp_path, monkeypatch, world) as daemon:
        with pytest.raises(SeatError) as error:
            booted(tmp_path)
        assert words in f"{error.value.what} {error.value.found}"
        assert daemon.containers == {}


def test_a_container_killed_for_memory_while_it_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world_of(tmp_path, monkeypatch, World(out_of_memory=True)) as daemon:
        boot = booted(tmp_path)
        daemon.containers[f"carve-fake-tp2-r1-{boot.record.planned}"].end(9)
        limit = time.monotonic() + 60
        while boot.process.poll() is None and time.monotonic() < limit:
            time.sleep(0.02)
        with pytest.raises(SeatError, match="does not answer"):
            boot.counters()
        ended = boot.stop()
    assert ended.ended == "died"
    assert "killed for memory (OOMKilled), exit code 137" in ended.ended_reason


def test_no_docker_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SeatError, match="docker is not installed here"):
        booted(tmp_path)


def test_no_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world_of(tmp_path, monkeypatch):
        monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere")
        with pytest.raises(SeatError, match="daemon does not answer"):
            booted(tmp_path)


def test_a_stale_extension_is_refused_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FL-05, FL-10: what is mounted is not what the manifest was written for."""
    manifest = manifest_of(tmp_path)
    (tmp_path / "extension.so").write_bytes(b"compiled last week")
    with world_of(tmp_path, monkeypatch) as daemon:
        with pytest.raises(SeatError, match="not what the manifest says") as error:
            DockerSeat().boot(request(tmp_path, manifest))
        assert "mount /carve/extension.so" in error.value.found
        assert daemon.calls == []


def test_a_folder_that_docker_made_for_a_missing_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = manifest_of(tmp_path)
    (tmp_path / "extension.so").unlink()
    (tmp_path / "extension.so").mkdir()
    with world_of(tmp_path, monkeypatch), pytest.raises(SeatError) as error:
        DockerSeat().boot(request(tmp_path, manifest))
    assert "is an empty folder" in error.value.found


def test_a_missing_mount_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = Mount(host=str(tmp_path / "attention.py"), inside="/engine/attention.py")
    with world_of(tmp_path, monkeypatch), pytest.raises(SeatError) as error:
        booted(tmp_path, absent)
    assert "attention.py is not on this machine" in error.value.found
    assert not (tmp_path / "attention.py").exists()


@pytest.mark.parametrize(
    ("world", "name", "found"),
    [
        (World(runs="cd" * 32), "container.image", f"sha256:{'cd' * 32}"),
        (World(drops="/carve/extension.so"), "container.mount./carve/extension.so", None),
        (World(adds="/engine/attention.py"), "container.mounts", 13),
        (World(reset={"VLLM_PLUGINS": "other"}), "environment.VLLM_PLUGINS", "other"),
        (World(reset={"CARVE_STRICT": "0"}), "environment.CARVE_STRICT", "0"),
    ],
)
def test_what_the_container_became_is_compared(
    *, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: World, name: str, found: object
) -> None:
    """FL-10: a mount that is missing, one that nobody asked for, and a variable that the engine reset."""
    with world_of(tmp_path, monkeypatch, world):
        boot = booted(tmp_path)
        boot.stop()
    assert differing(boot.record)[name][1] == found


def test_a_foreign_container_on_the_devices_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world_of(tmp_path, monkeypatch) as daemon:
        daemon.add_foreign("production", [str(DEVICES[1])])
        daemon.add_foreign("elsewhere", ["7777777"])
        with pytest.raises(SeatError, match="not ours") as error:
            booted(tmp_path)
        assert error.value.found == "production"
        assert {call[0] for call in daemon.calls} & {"run", "stop", "rm"} == set()
        assert set(daemon.containers) == {"production", "elsewhere"}


def test_a_device_that_another_run_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = f"import serve.adapters.supervisor as s; print(s.reserve('device-{DEVICES[0] + 5}'), flush=True); input()"
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None and other.stdin is not None
    assert other.stdout.readline() == "True\n"
    manifest = manifest_of(tmp_path)
    assert manifest.machine is not None
    machine = manifest.machine.model_copy(update={"devices": (DEVICES[0] + 5,)})
    with world_of(tmp_path, monkeypatch), pytest.raises(SeatError, match="another run holds devices"):
        DockerSeat().boot(request(tmp_path, manifest.model_copy(update={"machine": machine})))
    other.communicate("\n")


def test_a_resumed_run_ends_exactly_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    anywhere = manifest_of(tmp_path).model_copy(update={"machine": None})
    seat = DockerSeat()
    with world_of(tmp_path, monkeypatch) as daemon:
        lost = seat.boot(request(tmp_path, anywhere, run="r1"))  # nobody stops it: its runner has died
        other = seat.boot(replace(request(tmp_path, anywhere, run="r2"), folder=tmp_path / "other"))
        (first, second) = daemon.containers.values()
        again = seat.boot(replace(request(tmp_path, anywhere, run="r1"), folder=tmp_path / "again"))
        assert first.process is not None and first.process.wait(120) != 0
        assert second.process is not None and second.process.poll() is None
        assert httpx.get(f"{other.base_url}/health", timeout=120).status_code == 200
        for boot in (again, other):
            assert boot.stop().leftovers == ()
        lost.http.close()
        assert lost.process.poll() is not None
        assert daemon.containers == {}


def test_a_container_of_the_same_name_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world_of(tmp_path, monkeypatch) as daemon:
        daemon.add_foreign("carve-fake-tp2-r1-shared-a", ["7777777"])
        with pytest.raises(SeatError, match="ended at start") as error:
            booted(tmp_path)
        assert "is already in use" in error.value.found
        assert list(daemon.containers) == ["carve-fake-tp2-r1-shared-a"]
        assert {call[0] for call in daemon.calls} & {"stop", "rm"} == set()


def test_where_the_runner_is_killed_its_container_ends_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\n"
        "from tests.serve.adapters import test_docker\n"
        f"test_docker.DEVICES = {DEVICES[0] + 1, DEVICES[1] + 1}\n"
        "boot = test_docker.booted(Path(sys.argv[1]), run='killed')\n"
        "print('up', flush=True)\ntime.sleep(60)\n"
    )
    with world_of(tmp_path, monkeypatch) as daemon:
        root = str(Path(__file__).parents[3])
        runner = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=root
        )
        assert runner.stdout is not None
        assert runner.stdout.readline() == "up\n"
        (container,) = daemon.containers.values()
        os.kill(runner.pid, signal.SIGKILL)
        runner.communicate()
        assert container.process is not None
        assert container.process.wait(50) is not None
        assert list(daemon.containers) == ["carve-fake-tp2-killed-shared-a"], (
            "what ended stays until the run is resumed"
        )
        boot = booted(tmp_path, run="killed")
        assert boot.stop().leftovers == ()
        assert daemon.containers == {}


def test_strict_refuses_as_in_any_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "built.so"
    library.write_bytes(b"")
    asked = replace(
        request(tmp_path, manifest_of(tmp_path)), variant="knock-out-decline", libraries={"knock-out-decline": library}
    )
    with world_of(tmp_path, monkeypatch) as daemon:
        with pytest.raises(SeatError, match="refused"):
            DockerSeat().boot(asked)
        assert daemon.containers == {}


def test_the_label_comes_from_what_answered() -> None:
    answered = {"distribution": "vllm", "distribution_version": "0.28", "device_type": "cuda"}
    assert label_of(answered, "vllm==0.28") == "real"
    assert label_of(answered | {"device_type": "cpu"}, "vllm==0.28") == "cpu"
    assert label_of({"distribution": "dsv4-carve"}, "vllm==0.28") == "simulated"
    with pytest.raises(SeatError, match="another engine"):
        label_of(answered, "vllm==0.27")
