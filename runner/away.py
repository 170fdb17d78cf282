"""A seat on another machine: the job that travels there, and the bundle that is made of it.

No key and no git go there, because candidate code runs there. The plan is sealed and the intent signed before the job
is written; what comes back is evidence that only fits this plan, and :mod:`runner.bundle` takes it in.

    runs/<run>/job/          measure, candidate.json, order.yaml, plan.json, seed, intent.dsse.json, libraries/, code/
    <job>/bundle/            bundle.json (run, plan, host, digest of every file), evidence.tar.xz

``candidate.json`` names the run, the sealed plan and the SHA-256 of every file that travels: they are computed again on
the seat's machine before anything is measured.
"""

from __future__ import annotations

import json
import shutil
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from runner import archive
from runner.craft.store import git
from runner.digest import canonical_json, sha256_bytes, sha256_file
from runner.errors import StateError, TrustError
from runner.files import write_whole
from runner.graders import GRADERS
from runner.paths import source_root
from runner.steps.state import Run

JOB, BUNDLE, NAMES, FILES, HOST = "job", "bundle", "bundle.json", "evidence.tar.xz", "host.json"
OURS = "dsv4-carve"
JOURNAL = "journal.jsonl"
MEASURING = "measuring"
"""Event of every ./measure, with the identity of the machine."""
BUNDLE_LIMIT = 1 << 30
"""Bytes of either file of a bundle."""
CANDIDATE, LIBRARIES, DIGESTS = "candidate.json", "libraries", "files"
_TRAVELS = ("*.py", "*.yaml", "*.cpp", "*.j2")
_SERVED = ("recipe/mini/text/*", "serve/witness/native/*", "kernels/cpu/abi.h")
"""What an engine's boots read besides code."""
_DESK = ("recipe/mini/pack/model-00004-of-00006.safetensors",)
"""What a desk reads besides code: a layer of experts that training made."""
_KEPT = ("boots/*.json", "evidence/*.json", "evidence/*/*.json", "logs/*.log")
_SCRIPT = """#!/bin/sh
# Measure this job on the machine it is for: Python with torch, pydantic, PyYAML and httpx, no key, no git.
# ./measure [SECONDS]: stop between blocks before SECONDS have passed; run it again for the rest.
cd "$(dirname "$0")" || exit 3
PYTHONPATH="$PWD/code:$PWD/code/kernels${PYTHONPATH:+:$PYTHONPATH}" exec python3 -P -m runner.host . "$@"
"""


def write_job(run: Run) -> Path:
    """The folder to carry to the seat's machine, made anew: everything a measurement needs and nothing that signs."""
    job = run.folder / JOB
    shutil.rmtree(job, ignore_errors=True)
    libraries = {}
    for name, library in run.built.libraries.items():
        libraries[name] = f"{LIBRARIES}/{name}.so" if library.is_file() else str(library)
        if library.is_file():
            _copy(library, job / libraries[name])
    root = source_root()
    for tree in GRADERS:
        for pattern in _TRAVELS:
            for path in (root / tree).rglob(pattern):
                _copy(path, job / "code" / path.relative_to(root))
    if run.manifest.adapter == "desk":
        for pattern in _DESK:
            _copy(root / pattern, job / "code" / pattern)
    else:
        served = [path for pattern in _SERVED for path in sorted(root.glob(pattern))]
        served += sorted((root / run.manifest.pack).glob("*"))  # none of the toy's, and none that is made from a seed
        for path in served:
            _copy(path, job / "code" / path.relative_to(root))
        _install(job / "code")
    for name in ("order.yaml", "plan.json", "seed", "intent.dsse.json"):
        _copy(run.folder / name, job / name)
    write_whole(job / "measure", _SCRIPT.encode(), mode=0o755)
    files = {path.relative_to(job).as_posix(): sha256_file(path) for path in sorted(job.rglob("*")) if path.is_file()}
    told: dict[str, Any] = {"run": run.name, "plan_digest": run.sealed.digest, "intent": run.sealed.intent_digest}
    told |= {"commit": _commit(root), LIBRARIES: libraries, DIGESTS: files}
    write_whole(job / CANDIDATE, canonical_json(told))
    return job


def _commit(root: Path) -> str:
    """The checkout's commit, for people; nothing where it is none. What counts are the digests of its files."""
    try:
        return git("rev-parse", "HEAD", folder=root).decode().strip()
    except StateError:
        return ""


def library_in(job: Path, named: str) -> Path:
    """A library of the job; the fake seat's are names alone."""
    return job / named if named.startswith(f"{LIBRARIES}/") else Path(named)


def _install(code: Path) -> None:
    """The distribution's own metadata beside its code: an engine finds plugins by it."""
    found = distribution(OURS)
    points = "".join(
        f"[{group}]\n" + "".join(f"{one.name} = {one.value}\n" for one in found.entry_points.select(group=group))
        for group in sorted({one.group for one in found.entry_points if one.group.startswith("vllm.")})
    )
    folder = code / f"{OURS.replace('-', '_')}-{found.version}.dist-info"
    write_whole(folder / "METADATA", f"Metadata-Version: 2.1\nName: {OURS}\nVersion: {found.version}\n".encode())
    write_whole(folder / "entry_points.txt", points.encode())


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def write_bundle(run: Run) -> Path:
    """What was measured in ``run``'s folder, on the seat's machine: two files in ``bundle/``."""
    paths = [run.folder / JOURNAL, *(path for pattern in _KEPT for path in sorted(run.folder.glob(pattern)))]
    files = {path.relative_to(run.folder).as_posix(): path.read_bytes() for path in paths}
    data = archive.build(files, sum(map(len, files.values())) + (1 << 20)).data
    names = {name: sha256_bytes(content) for name, content in files.items()}
    content = {"run": run.name, "plan_digest": run.sealed.digest, "files": names}
    content |= {"host": json.loads((run.folder / HOST).read_bytes())}
    write_whole(run.folder / BUNDLE / FILES, data)
    write_whole(run.folder / BUNDLE / NAMES, canonical_json(content))
    return run.folder / BUNDLE


def check_files(folder: Path) -> dict[str, Any]:
    """``candidate.json``, after every file that travelled was found to be what was written. Raises TrustError."""
    told: dict[str, Any] = json.loads((folder / CANDIDATE).read_bytes())
    for name, digest in told[DIGESTS].items():
        path = folder / name
        found = sha256_file(path) if path.is_file() else "nothing"
        if found != digest:
            raise TrustError(
                "the job is not what was written",
                where=str(path),
                expected=digest,
                found=found,
                next_step="carry the job folder again as `runner execute` left it",
            )
    return told


def check_job(folder: Path, libraries: dict[str, Path], subjects: dict[str, str], trees: dict[str, str]) -> None:
    """Libraries and graders are those of the sealed plan. Raises TrustError for the first that is not."""
    found = {f"library.{name}": sha256_file(path) for name, path in libraries.items() if path.is_file()} | trees
    for name, digest in subjects.items():
        if name.startswith(("library.", "tree.")) and digest != found.get(name):
            raise TrustError(
                "the job is not what was sealed",
                where=f"{folder}, {name}",
                expected=digest,
                found=found.get(name, "nothing"),
                next_step="carry the job folder again as `runner execute` left it",
            )


__all__ = ["check_files", "check_job", "write_bundle", "write_job"]
