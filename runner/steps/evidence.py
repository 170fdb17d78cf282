"""Evidence files of a run folder: written whole, found again by digest, never overwritten."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from runner.digest import sha256_bytes
from runner.files import write_whole
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.steps.state import Run
from serve.instruments.base import evidence_bytes

FOLDER = "evidence"


def path_of(run: Run, window: str) -> Path:
    """``evidence/<window>.json``."""
    return run.folder / FOLDER / f"{window}.json"


def keep(run: Run, evidence: Evidence) -> None:
    """Write one window's evidence, with the plan it is of, and only then say so in the journal."""
    data = evidence_bytes(evidence.model_copy(update={"plan": run.sealed.digest}))
    write_whole(path_of(run, evidence.window), data)
    run.journal.write("window-closed", window=evidence.window, boot=evidence.boot, digest=sha256_bytes(data))


def closed_in(run: Run, window: str) -> str:
    """Boot id in which the window's kept evidence was measured; empty where there is none, or not what was written."""
    events = run.journal.of("window-closed", window=window)
    path = path_of(run, window)
    if not events or not path.is_file():
        return ""
    last = events[-1].facts
    return str(last["boot"]) if sha256_bytes(path.read_bytes()) == last["digest"] else ""


def kept_evidence(run: Run, window: str) -> Evidence | None:
    """The window's evidence, where it was closed and is whole."""
    if not closed_in(run, window):
        return None
    return Evidence.model_validate_json(path_of(run, window).read_bytes())


def set_aside(run: Run, windows: tuple[PlannedWindow, ...], why: str) -> None:
    """Move evidence that will be measured again to ``evidence/<why>/``; it stays in the record."""
    for window in windows:
        path = path_of(run, window.id)
        if path.exists():
            folder = path.parent / why
            folder.mkdir(exist_ok=True)
            count = len(list(folder.glob(f"{window.id}.*.json")))
            path.rename(folder / f"{window.id}.{count + 1}.json")
            run.journal.write(f"window-{why}", window=window.id)


def set_aside_evidence(run: Run, window: str, why: str) -> tuple[Evidence, ...]:
    """What was set aside of one window, oldest first."""
    folder = run.folder / FOLDER / why
    count = len(list(folder.glob(f"{window}.*.json")))
    paths = (folder / f"{window}.{number}.json" for number in range(1, count + 1))
    return tuple(Evidence.model_validate_json(path.read_bytes()) for path in paths)


def all_evidence(run: Run) -> Iterator[Evidence]:
    """Every evidence file of the run, those set aside included."""
    for path in sorted((run.folder / FOLDER).rglob("*.json")):
        yield Evidence.model_validate_json(path.read_bytes())


def digests(run: Run) -> dict[str, str]:
    """SHA-256 of every evidence file by its path in the run folder."""
    root = run.folder / FOLDER
    return {str(path.relative_to(run.folder)): sha256_bytes(path.read_bytes()) for path in sorted(root.rglob("*.json"))}
