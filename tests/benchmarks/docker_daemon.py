"""The docker adapter against a real daemon: ``python -m tests.benchmarks.docker_daemon FOLDER``.

Needs ``docker`` on the path with a daemon that answers (``DOCKER_HOST``), and no network: the image holds nothing, the
host's Python is mounted into it, and inside a fake engine serves. FOLDER receives the boots' files. Prints one line of
JSON a case; exit code 1 where one is not as expected. What the stand-in of the tests answers is checked against this.
"""

from __future__ import annotations

import argparse
import io
import json
import signal
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from runner.digest import sha256_file
from runner.errors import SeatError
from runner.model.configuration import pairs
from runner.model.seat import Container, Mount, SeatManifest
from runner.paths import source_root
from runner.sandbox import python_folders
from runner.standing import canonical_boot
from runner.steps.seats import load_manifest
from serve.adapters.docker import DockerSeat
from serve.adapters.docker_client import Docker
from serve.adapters.docker_standing import standing
from serve.seat import BootRequest
from tests.serve.adapters.test_docker import differing, request

ENGINE = """
import json, sys
sys.path.append("/carve/stand-in")
from serve.adapters import fake_engine
from tests.serve.adapters.docker_stand_in import engine_of
class Everywhere(fake_engine.Server):
    def __init__(self, address, handler):
        super().__init__(("0.0.0.0", address[1]), handler)
fake_engine.Server = Everywhere
sys.argv = engine_of(sys.argv[1:], sys.argv[sys.argv.index("--port") + 1])[3:]
sys.exit(fake_engine.main())
"""
UNUSED = "ab" * 32


def image() -> str:
    """Digest of an image that holds mount points alone."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name in ("usr", "lib", "lib64", "bin", "tmp", "proc", "dev", "sys", "etc", "run"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777
            archive.addfile(entry)
    command = ["docker", "import", "--change", f"ENV PATH={Path(sys.executable).parent}:/usr/bin", "-"]
    made = subprocess.run(command, input=data.getvalue(), capture_output=True, check=True)
    return made.stdout.decode().strip().removeprefix("sha256:")


def seat(folder: Path, digest: str) -> SeatManifest:
    """The toy in a container whose operating system and Python are this host's."""
    engine = folder / "engine.py"
    engine.write_text(ENGINE)
    host = dict.fromkeys(str(path) for path in (Path("/usr"), Path("/lib"), Path("/lib64"), *python_folders()))
    mounts = (
        Mount(host="{pack}", inside="/pack"),
        Mount(host="{code}", inside="/carve/code"),
        Mount(host=str(source_root() / "tests"), inside="/carve/stand-in/tests"),  # no part of what an engine imports
        Mount(host=str(folder / "cache"), inside="/carve/cache", writable=True),
        Mount(host=str(engine), inside="/carve/engine.py", digest=sha256_file(engine)),
        *(Mount(host=path, inside=path) for path in host if Path(path).exists()),
    )
    container = Container(image="mount points", digest=digest, mounts=mounts, ulimits={"core": 0}, shared_memory_gb=1)
    command = ("/carve/engine.py", "--model", "{pack}", "--port", "{port}", "--served-model-name", "toy")
    changes = {"adapter": "docker", "container": container, "command": command, "pack": str(folder / "pack")}
    return load_manifest("fake-tp2").model_copy(update=changes | {"environment": {"VLLM_PLUGINS": "carve_exl3"}})


def left() -> list[str]:
    """Every container of ours that the daemon knows."""
    return Docker.find().labelled(seat="fake-tp2")


def refused(asked: BootRequest) -> str:
    """Why a boot did not come up."""
    try:
        DockerSeat().boot(asked).stop()
    except SeatError as error:
        return f"{error.what}: {error.found}"
    return "it came up"


def serves(asked: BootRequest) -> str:
    boot = DockerSeat().boot(asked)
    different, ended = differing(boot.record), boot.stop()
    return f"{ended.ended}, {len(different)} of {len(boot.record.requested)} differ, {ended.leftovers}"


def killed_runner(asked: BootRequest) -> str:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom tests.benchmarks import docker_daemon as d\n"
        "folder, digest = Path(sys.argv[1]), sys.argv[2]\n"
        "d.DockerSeat().boot(d.request(folder, d.seat(folder, digest), run='killed'))\n"
        "print('up', flush=True)\ntime.sleep(60)\n"
    )
    assert asked.manifest.container is not None
    words = [sys.executable, "-c", code, str(asked.folder.parent), asked.manifest.container.digest]
    runner = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert runner.stdout is not None
    assert runner.stdout.readline() == "up\n"
    runner.send_signal(signal.SIGKILL)
    runner.communicate()
    limit = time.monotonic() + 20
    while Docker.find().running() and time.monotonic() < limit:
        time.sleep(0.1)
    running, found = len(Docker.find().running()), len(left())
    ended = DockerSeat().boot(replace(asked, run="killed")).stop()
    return f"{running} running, {found} ended, then {ended.ended} and {len(left())} left"


def port_taken(asked: BootRequest) -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with patch("serve.adapters.docker.free_port", return_value=int(taken.getsockname()[1])):
            return refused(asked)


def killed_engine(asked: BootRequest) -> str:
    boot = DockerSeat().boot(asked)
    subprocess.run(
        ["docker", "kill", f"carve-{asked.manifest.name}-{asked.run}-{asked.planned.id}"],
        capture_output=True,
        check=True,
    )
    limit = time.monotonic() + 20
    while boot.process.poll() is None and time.monotonic() < limit:
        time.sleep(0.1)
    ended = boot.stop()
    return f"{ended.ended}: {ended.ended_reason.splitlines()[-1]}"


def stands(asked: BootRequest) -> str:
    canonical = canonical_boot(asked.manifest, asked.folder)
    library = asked.libraries["lna2"]
    boot = DockerSeat().boot(replace(canonical, libraries={"incumbent": library}))
    try:
        name, wanted, found = standing(canonical)
    finally:
        boot.stop()
    return f"{name}: {sum(one.requested != one.resolved for one in pairs(wanted, found))} of {len(wanted)} differ"


CASES: tuple[tuple[str, Callable[[BootRequest], str], str], ...] = (
    ("serves and is read back", serves, "stopped, 0 of"),
    ("runner killed", killed_runner, "0 running, 1 ended, then stopped and 0 left"),
    ("port taken", port_taken, "address already in use"),
    ("engine killed", killed_engine, "died: the container ended, exit code 137"),
    ("stands", stands, "carve-fake-tp2-standing-standing: 0 of"),
)


def cases(folder: Path, manifest: SeatManifest) -> Iterator[tuple[str, str, str]]:
    """(case, what came of it, what has to be in it)."""
    for number, (name, run, expected) in enumerate(CASES):
        asked = request(folder, manifest, run=f"r{number}")
        yield name, run(replace(asked, folder=folder / f"boot-{number}")), expected
    container = manifest.container
    assert container is not None
    elsewhere = manifest.model_copy(update={"container": container.model_copy(update={"digest": UNUSED})})
    yield "image missing", refused(request(folder, elsewhere)), "the seat's image is not here"
    broken = manifest.model_copy(update={"command": ("/carve/nothing.py", *manifest.command[1:])})
    yield "dies at start", refused(request(folder, broken)), "No such file or directory"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    digest, broken = image(), False
    for case, found, expected in cases(folder, seat(folder, digest)):
        good = expected in found and left() == []
        broken |= not good
        print(json.dumps({"case": case, "as_expected": good, "found": found[-200:]}), flush=True)
    subprocess.run(["docker", "rmi", f"sha256:{digest}"], capture_output=True, check=False)
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
