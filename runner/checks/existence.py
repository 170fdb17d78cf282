"""What an order names and this checkout, workspace or machine does not have.

Sources are the checkout's on every seat. The rest is asked only of a seat that stands on this machine: an order for
another machine stays a draft, and its plan lists what is missing there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from carve_kernels.cuda.registry import VARIANTS as GPU_VARIANTS
from carve_kernels.registry import VARIANTS

from runner.checks.fault import Fault
from runner.craft.crew import FILE as CREW
from runner.craft.crew import load_crew
from runner.craft.globs import permitted
from runner.errors import CarveError, InputError
from runner.model.order import KernelOrder, RecipeOrder, RunnableOrder, WorkOrder, files_of
from runner.model.seat import SeatManifest
from runner.paths import source_root, workspace
from runner.steps.make import estimate
from serve.adapters.fake_model import BEHAVIOURS

CPU_SOURCES = "kernels/cpu/"
BROUGHT = "packs/"
"""Where packs lie that git does not hold: whoever runs the order brings them, and its plan says what is missing."""


def existence(order: WorkOrder, manifest: SeatManifest | None) -> Iterator[Fault]:
    """Every name that leads nowhere."""
    for index, name in enumerate(order.candidate.sources if isinstance(order, KernelOrder) else ()):
        path = source_root() / name
        if path.exists() and not path.is_file():
            yield Fault(("candidate", "sources", index), f"{name} is no plain file")
        elif not path.exists() and not permitted(name, files_of(order)):
            message = f"{name} does not exist below {source_root()}, and no glob of files_allowed lets anybody write it"
            yield Fault(("candidate", "sources", index), message)
    if manifest is None or manifest.container is not None or manifest.adapter == "attach":
        return
    if isinstance(order, KernelOrder):
        yield from _variants(order, manifest)
    if manifest.away:
        return
    if isinstance(order, RunnableOrder):
        yield from _pack(order, manifest)
    if order.result is None:
        yield from _people(order)


def to_be_written(order: WorkOrder) -> tuple[str, ...]:
    """Sources that do not exist yet and that whoever it is given to may write."""
    sources = order.candidate.sources if isinstance(order, KernelOrder) else ()
    return tuple(name for name in sources if not (source_root() / name).exists() and permitted(name, files_of(order)))


def _variants(order: KernelOrder, manifest: SeatManifest) -> Iterator[Fault]:
    candidate = order.candidate
    if manifest.gpu:
        if candidate.variant not in GPU_VARIANTS:
            yield Fault(
                ("candidate", "variant"),
                f"there is no GPU variant {candidate.variant}; known: {', '.join(GPU_VARIANTS)}",
            )
        return
    if manifest.adapter == "fake":
        marked = any(request.name == "watermark" for request in order.gates)
        for name in (candidate.variant, *([f"{candidate.variant}-watermark"] if marked else [])):
            if name not in BEHAVIOURS:
                message = f"seat {manifest.name} compiles nothing and has no {name}; it plays {', '.join(BEHAVIOURS)}"
                yield Fault(("candidate", "variant"), message)
    if candidate.incumbent not in VARIANTS:
        message = f"there is no incumbent {candidate.incumbent}; known: {', '.join(VARIANTS)}"
        yield Fault(("candidate", "incumbent"), message)
    known = VARIANTS.get(candidate.variant)
    brought = [name for name in candidate.sources if name.startswith(CPU_SOURCES)]
    if manifest.adapter == "process" and known and brought and f"{CPU_SOURCES}{known.source}" not in brought:
        message = f"variant {known.name} is built from {CPU_SOURCES}{known.source}: another source needs another name"
        yield Fault(("candidate", "variant"), message)


def _pack(order: RunnableOrder, manifest: SeatManifest) -> Iterator[Fault]:
    pack = source_root() / manifest.pack
    made = manifest.generated is not None or manifest.pack.startswith(BROUGHT)
    if manifest.adapter == "process" and not made and not (pack / "config.json").is_file():
        yield Fault(("target", "pack"), f"no pack stands at {pack}: there is no config.json")
    elif manifest.adapter == "process" and isinstance(order, RecipeOrder) and order.recipe and not files_of(order):
        quantiser = getattr(order.recipe, "quantiser", "native")
        if quantiser != "native" and not manifest.gpu:
            message = f"seat {manifest.name} has no GPU, and quantiser {quantiser} needs one: native runs without"
            yield Fault(("recipe", "quantiser"), message)
        try:
            estimate(order, manifest)
        except CarveError as error:
            told = ": ".join(part for part in (error.what, error.where, error.found) if part)
            yield Fault(("recipe",), f"it cannot be made from what is here: {told}")


def _people(order: WorkOrder) -> Iterator[Fault]:
    """Names that the workspace's crew does not have; nothing where there is no workspace or no crew."""
    with suppress(InputError):
        place = workspace()
        if (place / CREW).is_file():
            crew = load_crew(place).craftspeople
            named = [("craftspeople", index, one.name) for index, one in enumerate(order.people.craftspeople)]
            named += [("reviewers", index, one.name) for index, one in enumerate(order.people.reviewers)]
            for field, index, name in named:
                if name not in crew:
                    message = f"{CREW} knows nobody called {name}; it knows {', '.join(crew)}"
                    yield Fault(("people", field, index, "name"), message)


__all__ = ["existence", "to_be_written"]
