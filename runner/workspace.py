"""A new workspace and starter orders."""

from __future__ import annotations

import json
from math import exp
from pathlib import Path

from jinja2 import StrictUndefined
from jinja2.sandbox import SandboxedEnvironment
from pydantic import TypeAdapter, ValidationError

from runner.clock import now
from runner.craft.crew import FILE as CREW
from runner.errors import InputError
from runner.files import write_whole
from runner.model.base import Slug
from runner.paths import source_root
from runner.schemas import json_schema
from runner.steps.seats import load_manifest

_FOLDERS = ("orders", "canon/adoptions", "canon/observations", "reports/ledger")
ATTRIBUTES = ".gitattributes"
"""Line ends that a git converts make every signed file another one."""
TEMPLATES = Path(__file__).parent / "brief"
KINDS = ("kernel", "bake", "overlay", "patch", "gate", "survey")
SCHEMA = Path("orders") / "order.schema.json"
CREW_SCHEMA = CREW.with_name("craftspeople.schema.json")
"""For editors: starters and the crew name them in their first line."""


def make_workspace(folder: Path) -> Path:
    """Folders, an empty trust root, and git told to keep every byte.

    Raises InputError where files of another kind stand there.
    """
    folder = folder.resolve()
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "orders").is_dir():
        raise InputError(
            "not an empty folder", where=str(folder), expected="an empty or new folder", next_step="name another one"
        )
    for name in _FOLDERS:
        (folder / name).mkdir(parents=True, exist_ok=True)
    signers = folder / "canon" / "allowed_signers"
    if not signers.exists():
        write_whole(signers, b"# ROLE:NAME [options] ssh-ed25519 BASE64: who may sign for this workspace\n")
    attributes = folder / ATTRIBUTES
    if not attributes.exists():
        write_whole(attributes, (source_root() / ATTRIBUTES).read_bytes())
    return folder


def write_schema(workspace: Path) -> None:
    """What an editor completes and checks orders and the crew with."""
    for path, name in ((SCHEMA, "order"), (CREW_SCHEMA, "craftspeople")):
        write_whole(workspace / path, (json.dumps(json_schema(name), indent=1, sort_keys=True) + "\n").encode())


def write_crew(workspace: Path) -> None:
    """The shipped examples of craftspeople, where the workspace has no crew yet."""
    if not (workspace / CREW).exists():
        write_whole(workspace / CREW, (source_root() / CREW).read_bytes())


def write_starter(workspace: Path, name: str, kind: str, seat: str) -> Path:
    """``orders/<name>.yaml``; `check` lists what is left to fill in, each as ``<...>``, and nothing else.

    Raises InputError for a bad name, kind or existing file.
    """
    try:
        TypeAdapter(Slug).validate_python(name)
    except ValidationError:
        raise InputError(
            "not a name for an order", expected="lower-case letters, digits and dashes", found=name
        ) from None
    if kind not in KINDS:
        raise InputError("no starter for this kind", expected=", ".join(KINDS), found=kind)
    path = workspace / "orders" / f"{name}.yaml"
    if path.exists():
        raise InputError("this order exists already", where=str(path), next_step="choose another id")
    environment = SandboxedEnvironment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    template = environment.from_string((TEMPLATES / f"starter-{kind}.yaml.j2").read_text(encoding="utf-8"))
    manifest = load_manifest(seat)
    least = exp(float(manifest.noise.a_a_half_width))
    text = template.render(
        name=name,
        file=name.replace("-", "_"),
        date=now()[:10],
        manifest=manifest,
        low=f"{least * 1.1:.2f}",
        high=f"{least * 1.5:.2f}",
    )
    write_whole(path, text.encode())
    write_schema(workspace)
    return path
