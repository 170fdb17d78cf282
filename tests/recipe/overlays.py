"""Small packs and jobs that overlay tests share."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recipe.mini.random_pack import generate
from recipe.product import Job
from runner.model.order import Bake, Overlay

SHAPE: dict[str, Any] = {"hidden": 128, "intermediate": 128, "experts": 2, "topk": 1, "vocabulary": 512, "layers": 3}
SWAPPED = "model.layers.1.mlp.experts"
REWRITTEN, UNCHANGED = "model-00003-of-00004.safetensors", "model-00002-of-00004.safetensors"


def source_pack(folder: Path, **changes: Any) -> Path:
    """Three layers, two with two small experts each: gate and up at 2 bits, down at 3; then all at 3."""
    return generate(folder, seed=1, **(SHAPE | {"expert_bits": ((3, 3), (2, 2))} | changes))


def donor_pack(folder: Path, **changes: Any) -> Path:
    """The same model by another seed, experts at two bits."""
    return generate(folder, seed=2, **(SHAPE | {"expert_bits": ((2, 2),)} | changes))


def recipe_of(donor: Path, **changes: Any) -> Overlay:
    """Experts of layer 1 by the donor's."""
    words: dict[str, Any] = {
        "what": "layer",
        "donor": {"pack": str(donor)},
        "layers": {"model.layers.1": "model.layers.1"},
        "experts": "mlp.experts",
        "fused": [["gate_proj", "up_proj"]],
    }
    return Overlay.model_validate(words | changes)


def job_of(folder: Path, source: Path, recipe: Overlay | Bake, *, product: Path | None = None) -> Job:
    """A job whose product and work lie in ``folder``."""
    return Job(recipe, source, folder, product or folder / "product", folder / "work")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def damage_byte(file: Path, at: int) -> None:
    """Flip one bit."""
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


def edit(file: Path, change: Callable[[Any], object]) -> None:
    """Change a JSON file."""
    value = json.loads(file.read_text())
    change(value)
    file.write_text(json.dumps(value, indent=1))
