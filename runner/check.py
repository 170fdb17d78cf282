"""Can this order be decided on this seat? All faults at once, each with the path of its field."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from math import exp, log
from pathlib import Path

from carve_kernels.registry import VARIANTS, Role
from pydantic import ValidationError

from runner.checks.amounts import amounts
from runner.checks.citations import citations, namesakes
from runner.checks.duties import duties, unfilled
from runner.checks.existence import existence, to_be_written
from runner.checks.facts import facts
from runner.checks.fault import Fault
from runner.checks.floors import floors
from runner.checks.gains import factor
from runner.checks.judgement import judgement
from runner.checks.limits import limits
from runner.checks.needs import needs
from runner.errors import InputError
from runner.gates.registry import gate
from runner.model.order import (
    Fact,
    GateOrder,
    KernelOrder,
    Primary,
    RecipeOrder,
    RunnableOrder,
    SurveyOrder,
    Target,
    WorkOrder,
    load_order,
)
from runner.model.order.judgement import MOST_PAIRS
from runner.model.seat import SeatManifest
from runner.order_lines import for_a_person
from runner.plan_parameters import half_width, sealed_parameters
from runner.plan_windows import MAKERS, NEEDS_CANDIDATE, NEEDS_LIBRARY, NEEDS_PRODUCT
from runner.probes import findings
from runner.prospects import prospect
from runner.stats import supports
from runner.steps.seats import load_manifest
from runner.yaml_strict import Mark, read

_MINIMUM_BLOCK_BOOTS = 2
WIDEST_MARGIN = Decimal("0.6931")
"""ln 2: where no larger gain is hoped for, a margin that half the speed would stay inside."""
QUALITY = frozenset({"parity", "kld", "ppl-prefill", "ppl-decode"})
"""Gates that see whether the candidate still computes the same."""
RESERVED = frozenset({"ledger"})
"""Names among the reports that no order may have."""
SERVED = QUALITY - {"parity"} | {"needle", "sensitivity"}
"""Gates that boot what a recipe made beside the standing configuration."""


@dataclass(frozen=True)
class PlacedFault:
    """A fault and where it was written."""

    place: Mark
    fault: Fault

    def __str__(self) -> str:
        return f"{self.place}: {'.'.join(map(str, self.fault.path))}: {self.fault.message}"


def check_file(path: Path, seat: str = "") -> tuple[PlacedFault, ...]:
    """Faults of one order on its seat (or on ``seat``). Raises InputError where the order cannot be read at all."""
    order = load_order(path).order
    document = read(path)
    faults = (*_alone(path, order), *check(order, _manifest(order, seat)))
    placed = (PlacedFault(document.locate(fault.path), fault) for fault in faults)
    return tuple(sorted(placed, key=lambda one: (one.place.line, one.place.column)))


def looked_at(path: Path, seat: str = "") -> str:
    """Of an order without faults, in words.

    How many facts were derived again, what is still to be written, what no gate judges, and why its report could not be
    adopted.
    """
    order = load_order(path).order
    waits = "".join(f"; {name} is still to be written: runner dispatch" for name in to_be_written(order))
    names = ", ".join(dict.fromkeys(name for name, _ in for_a_person(order)))
    left = f"; no gate judges the lines under measure of {names}: a person looks at them" if names else ""
    hopes = prospect(order, _manifest(order, seat))
    return _derived(order.facts) + waits + left + (f"; {hopes}" if hopes else "")


def _derived(facts: tuple[Fact, ...]) -> str:
    """Nothing where no fact has a probe."""
    seen = [finding.agrees for finding in findings(facts)]
    if not seen:
        return ""
    elsewhere = f", {seen.count(None)} not on this machine" if None in seen else ""
    return f" ({seen.count(True)} of {len(facts)} facts derived again{elsewhere})"


def _manifest(order: WorkOrder, seat: str) -> SeatManifest | None:
    """The seat of the order; None where its kind needs none and names none."""
    target: Target | None = getattr(order, "target", None)
    name = seat or (target.seat if target else "")
    return load_manifest(name) if name else None


def check(order: WorkOrder, manifest: SeatManifest | None) -> tuple[Fault, ...]:
    """Every fault of the order on this seat; empty where it can be decided."""
    if blank := tuple(unfilled(order)):
        return blank  # a starter: everything else would only distract
    sound = (
        *_id(order),
        *facts(order),
        *citations(order),
        *floors(order, manifest),
        *judgement(order, manifest),
        *amounts(order, manifest),
        *duties(order, manifest),
        *existence(order, manifest),
    )
    if not isinstance(order, RunnableOrder) or order.target is None or manifest is None:
        return sound
    return (
        *sound,
        *_seat(order, manifest),
        *_target(order.target, manifest),
        *_kind(order, manifest),
        *_gates(order, manifest),
        *_candidate(order, manifest),
    )


def _alone(path: Path, order: WorkOrder) -> Iterator[Fault]:
    """One id and version are one order: attempts, leases and reports are kept by them."""
    for other in namesakes(path, order):
        message = f"{other.name} is version {order.version} of an order {order.id} too: another id, or another version"
        yield Fault(("id",), message)


def _id(order: WorkOrder) -> Iterator[Fault]:
    """Reports lie in a folder of the order's name, beside the ledger."""
    if order.id in RESERVED:
        yield Fault(("id",), f"{order.id} has a folder among the reports already: name the order otherwise")


def _target(target: Target, manifest: SeatManifest) -> Iterator[Fault]:
    if target.pack != manifest.pack:
        yield Fault(("target", "pack"), f"the seat serves {manifest.pack!r}, the order is about {target.pack!r}")
    for name, value in target.serve.items():
        if name not in manifest.arguments:
            yield Fault(("target", "serve", name), f"seat {manifest.name} does not set {name}")
        elif manifest.arguments[name] != value:
            yield Fault(
                ("target", "serve", name),
                f"the order asks for {value!r}, seat {manifest.name} starts with {manifest.arguments[name]!r}",
            )
    for name, word in target.environment.items():
        if manifest.environment.get(name) != word:
            found = manifest.environment.get(name, "nothing")
            message = f"the order asks for {word!r}, seat {manifest.name} sets {found!r}"
            yield Fault(("target", "environment", name), message)


def _primary(order: KernelOrder | GateOrder, manifest: SeatManifest) -> Iterator[Fault]:
    primary = order.primary
    names = {request.name for request in order.gates}
    if primary is None:
        if "speed" in names:
            yield Fault(("gates",), "gate speed needs a primary metric")
        return
    if "speed" not in names:
        yield Fault(("primary",), "a primary metric without the gate speed decides nothing")
    if not primary.languages or len(set(primary.languages)) < len(primary.languages):
        yield Fault(("primary", "languages"), "a rate is read of one language or several, each once")
    metrics = (primary.metric, *primary.secondary)
    if len(set(metrics)) < len(metrics):
        yield Fault(("primary", "secondary"), f"a metric is declared twice: {', '.join(metrics)}")
    if primary.secondary and any(request.name == "speed" and request.version == 1 for request in order.gates):
        named = ", ".join(primary.secondary)
        message = f"{named} would decide nothing: speed@1 is about one metric; `version: 2` of the gate decides several"
        yield Fault(("primary", "secondary"), message)
    if not supports(len(metrics), primary.pairs):
        needed = next(pairs for pairs in range(1, MOST_PAIRS + 1) if supports(len(metrics), pairs))
        whose = "a deciding metric needs" if len(metrics) == 1 else f"{len(metrics)} deciding metrics need"
        yield Fault(
            ("primary", "pairs"),
            f"{primary.pairs} pairs cover the median with 1 − 2^(1−{primary.pairs}); {whose} {needed}",
        )
    elif primary.pairing == "block" and primary.pairs < _MINIMUM_BLOCK_BOOTS:
        yield Fault(("primary", "pairs"), "block pairing spreads its pairs over two boots")
    if Decimal(primary.margin) < (noise := half_width(primary, manifest)):
        whose, source = "A/A half width", manifest.noise.source
        if primary.pairing == "boot":
            whose, source = "spread between boots", manifest.noise.boot_to_boot_source
        yield Fault(
            ("primary", "margin"),
            f"margin {primary.margin} is below the seat's own {whose} {noise} ({source}): noise alone would decide",
        )
    yield from _power(order, primary)


def _power(order: KernelOrder | GateOrder, primary: Primary) -> Iterator[Fault]:
    """A hope inside the margin: even if it comes true, the verdict is not FASTER."""
    gain = order.intent.expected_gain if isinstance(order, KernelOrder) else None
    hope = factor(gain.high, gain.unit) if gain else None
    if gain is None or hope is None:
        if Decimal(primary.margin) > WIDEST_MARGIN:
            message = f"margin {primary.margin} (natural-log ratio) is a factor of {_times(primary.margin)}"
            yield Fault(
                ("primary", "margin"), f"{message}: beyond {WIDEST_MARGIN}, a factor of two, it decides nothing"
            )
    elif hope <= 0 or log(hope) <= Decimal(primary.margin):
        yield Fault(
            ("intent", "expected_gain", "high"),
            f"a gain of {gain.high} {gain.unit} lies inside the margin {primary.margin} (natural-log ratio, a factor "
            f"of {_times(primary.margin)}): it cannot be decided",
        )


def _times(margin: str) -> str:
    """The factor that a margin is; a margin beyond what binary64 holds is beyond everything."""
    return f"{exp(min(float(margin), 700)):.4g}"


def _seat(order: RunnableOrder, manifest: SeatManifest) -> Iterator[Fault]:
    if manifest.adapter == "none" and not isinstance(order, SurveyOrder):
        message = f"seat {manifest.name} has no engine and no pack: a survey stands there, a {order.kind} order cannot"
        yield Fault(("target", "seat"), message)


def _kind(order: RunnableOrder, manifest: SeatManifest) -> Iterator[Fault]:
    """What only this kind of order has to have."""
    if isinstance(order, SurveyOrder):
        return _survey(order)
    return _product(order) if isinstance(order, RecipeOrder) else _primary(order, manifest)


def _survey(order: SurveyOrder) -> Iterator[Fault]:
    for index, request in enumerate(order.gates):
        if request.name != "claims":
            yield Fault(("gates", index, "name"), f"gate {request.name} needs a seat; a survey has gate claims alone")
    if order.gates and not any(fact.probe for fact in order.facts if fact.status == "standing"):
        yield Fault(("facts",), "no standing fact has a probe: there is nothing that gate claims could look at")


def _product(order: RecipeOrder) -> Iterator[Fault]:
    if not order.recipe:
        yield Fault(("recipe",), "the order does not say what is to be made")
    if "product" not in {request.name for request in order.gates}:
        yield Fault(("gates",), "gate product is missing: nothing would show what was made and that it was served")
    if not SERVED.intersection(request.name for request in order.gates if request.planned is None):
        yield Fault(
            ("gates",), f"what is made would never be served: one of {', '.join(sorted(SERVED))} has to compare"
        )


def _gates(order: RunnableOrder, manifest: SeatManifest) -> Iterator[Fault]:
    if not order.gates:
        yield Fault(("gates",), "an order without gates decides nothing")
    for index, request in enumerate(order.gates):
        path = ("gates", index)
        if request.planned is not None:
            continue
        try:
            known = gate(request.name, request.version)
        except InputError as error:
            hint = "; one that is still to be written says `planned`"
            yield Fault((*path, "name"), f"{error.what} {error.found}; known: {error.expected}{hint}")
            continue
        if request.name not in MAKERS:
            yield Fault((*path, "name"), f"no windows are planned for gate {request.name}")
        yield from needs(path, order, request, manifest)
        if order.target is not None:
            yield from limits(path, request, order.target)
        if isinstance(order, GateOrder) and request.name in NEEDS_CANDIDATE:
            yield Fault((*path, "name"), f"gate {request.name} needs a candidate, a gate order has none")
        if isinstance(order, RecipeOrder) and request.name in NEEDS_LIBRARY:
            yield Fault(
                (*path, "name"), f"gate {request.name} is about a native library, a {order.kind} order has none"
            )
        if isinstance(order, KernelOrder) and request.name in NEEDS_PRODUCT:
            about = f"gate {request.name} is about what a recipe made, a kernel order makes nothing"
            yield Fault((*path, "name"), about)
        try:
            known.Parameters.model_validate(sealed_parameters(order, manifest, request))
        except ValidationError as error:
            for fault in error.errors():
                place = (*path, "parameters", *fault["loc"])
                yield Fault(place, f"{request.name}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}")


def _candidate(order: RunnableOrder, manifest: SeatManifest) -> Iterator[Fault]:
    if manifest.adapter == "attach" and not isinstance(order, GateOrder):
        message = f"seat {manifest.name} is a server that somebody else started: only a gate order can look at it"
        yield Fault(("target", "seat"), message)
    if not isinstance(order, KernelOrder):
        return
    candidate = order.candidate
    if manifest.container and candidate.strict != manifest.container.strict.gates:
        strict = manifest.container.strict
        message = f"seat {manifest.name} is judged with strict {strict.gates}; {strict.production} is for production"
        yield Fault(("candidate", "strict"), message)
    if candidate.variant == candidate.incumbent:
        yield Fault(("candidate", "variant"), "the candidate is the incumbent")
    brings = any(name.startswith("kernels/") for name in candidate.sources)
    if manifest.adapter == "process" and candidate.variant not in VARIANTS and not brings:
        message = f"nothing says what {candidate.variant} is built from: name its source below kernels"
        yield Fault(("candidate", "sources"), message)
    known = VARIANTS.get(candidate.incumbent)
    if known and known.role not in (Role.INCUMBENT, Role.CANDIDATE):
        message = f"{known.name} is wrong on purpose ({known.description}): whatever is compared with it looks good"
        yield Fault(("candidate", "incumbent"), message)
    if order.primary and not QUALITY.intersection(request.name for request in order.gates):
        yield Fault(
            ("gates",),
            f"faster alone is worth nothing: one of {', '.join(sorted(QUALITY))} has to judge what comes out",
        )
    if not 1 <= candidate.min_rows <= candidate.max_rows:
        yield Fault(("candidate", "max_rows"), f"no rows between {candidate.min_rows} and {candidate.max_rows}")
    # On a desk every launch is the runner's own, and its outputs and the library's count are compared with it.
    proof = "parity" if manifest.adapter == "desk" else "engaged"
    if proof not in {request.name for request in order.gates}:
        yield Fault(("gates",), f"gate {proof} is missing: nothing would show that the candidate ran")
