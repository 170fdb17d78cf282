"""Open items of a workspace."""

from __future__ import annotations

from pathlib import Path

from runner.model.open_item import OpenItem, OpenItems
from runner.yaml_strict import read

FILE = Path("orders/open-items.yaml")


def open_items(workspace: Path) -> tuple[OpenItem, ...]:
    """Every item that is not closed; none where there is no file. Raises InputError with the place of every fault."""
    path = workspace / FILE
    if not path.is_file():
        return ()
    found: OpenItems = read(path).validate(OpenItems)
    return tuple(item for item in found.items if item.closed is None)


def blocking(workspace: Path, order: str) -> tuple[OpenItem, ...]:
    """Open items for which no report of the order can be adopted."""
    return tuple(item for item in open_items(workspace) if item.order == order and item.impact == "blocks-adoption")


__all__ = ["FILE", "blocking", "open_items"]
