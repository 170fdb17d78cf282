"""``orders/people/craftspeople.yaml`` of a workspace."""

from __future__ import annotations

from pathlib import Path

from runner.errors import InputError
from runner.model.craftsperson import CraftspersonEntry, Crew
from runner.paths import source_root
from runner.yaml_strict import read

FILE = Path("orders/people/craftspeople.yaml")


def load_crew(workspace: Path) -> Crew:
    """Everybody who can be given a brief. Raises InputError with the place of every fault."""
    if not (workspace / FILE).is_file():
        raise InputError(
            "the workspace knows no craftspeople",
            where=str(workspace / FILE),
            next_step=f"begin with the examples in {source_root() / FILE}",
        )
    crew: Crew = read(workspace / FILE).validate(Crew)
    return crew


def craftsperson(workspace: Path, name: str) -> CraftspersonEntry:
    """One of them. Raises InputError for an unknown name."""
    known = load_crew(workspace).craftspeople
    if name not in known:
        raise InputError(
            "no such craftsperson",
            where=str(workspace / FILE),
            expected=", ".join(known),
            found=name,
            next_step="add an entry with the command line that starts it",
        )
    return known[name]


__all__ = ["FILE", "craftsperson", "load_crew"]
