"""The order itself, by kind. All kinds but ``survey`` run on a seat."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from runner.digest import sha256_bytes
from runner.model.base import Record, Slug
from runner.model.order.bake import Bake
from runner.model.order.candidate import Candidate, Target
from runner.model.order.contract import Card, Contract, Design, ReportDuties, RequiredTests, Restore
from runner.model.order.facts import Deliverable, Fact, OrderInput, Reading, Ruling
from runner.model.order.intent import Capability, Constraints, Intent, People, Scope
from runner.model.order.judgement import GateRequest, KillLine, Primary
from runner.model.order.outcome import Outcome
from runner.model.order.overlay import Overlay
from runner.model.order.patch import Patching
from runner.model.order.roofline import Floor
from runner.model.scalars import Line, Whole
from runner.yaml_strict import parse, read


class Addition(Record):
    """A field that an earlier form of the order did not have."""

    field: Line
    """Path with dots, list entries by number or name: ``primary.pairs``."""
    why: Line


class WorkOrder(Record):
    """What every kind shares."""

    schema_version: Annotated[Whole, Field(ge=1, le=1)]
    """Version of this schema: 1."""
    id: Slug
    version: Whole = 1
    """Counts the versions of this order."""
    title: Line
    date: Line
    supersedes: Slug | None = None
    archived_as: Line | None = None
    """Where the earlier form can be read."""
    added: tuple[Addition, ...] = ()
    """What was added to the earlier form."""
    people: People
    intent: Intent
    facts: tuple[Fact, ...] = ()
    rulings: tuple[Ruling, ...] = ()
    floors: tuple[Floor, ...] = ()
    inputs: tuple[OrderInput, ...] = ()
    contract: Contract | None = None
    design: Design | None = None
    scope: Scope | None = None
    constraints: Constraints = Constraints()
    tests_required: RequiredTests | None = None
    gates: tuple[GateRequest, ...] = ()
    kill_lines: tuple[KillLine, ...] = ()
    deliverables: tuple[Deliverable, ...] = ()
    report: ReportDuties = ReportDuties()
    reading: tuple[Reading, ...] = ()
    capability: tuple[Capability, ...] = ()
    restore: Restore | None = None
    card: Card | None = None
    result: Outcome | None = None
    """What came of it when it was carried out by hand."""

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        faults = []
        for what, place, key, names in (
            ("gate", "gates", "name", [gate.name for gate in self.gates]),
            ("fact", "facts", "id", [fact.id for fact in self.facts]),
            ("kill line", "kill_lines", "gate", [line.gate for line in self.kill_lines]),
            ("floor", "floors", "id", [floor.id for floor in self.floors]),
        ):
            for index, name in enumerate(names):
                if name in names[:index]:
                    faults.append(_fault((place, index, key), f"{what} {name!r} is named twice"))
        named = {gate.name for gate in self.gates}
        for index, line in enumerate(self.kill_lines):
            if line.gate not in named:
                message = f"kill line on {line.gate!r}, which is no gate of this order"
                faults.append(_fault(("kill_lines", index, "gate"), message))
        for index, outcome in enumerate(self.result.gates if self.result else ()):
            if outcome.gate not in named:
                message = f"result of {outcome.gate!r}, which is no gate of this order"
                faults.append(_fault(("result", "gates", index, "gate"), message))
        if faults:
            raise ValidationError.from_exception_data(type(self).__name__, faults)  # each with its own place
        return self


def _fault(place: tuple[str | int, ...], message: str) -> InitErrorDetails:
    return InitErrorDetails(type=PydanticCustomError("order", "{message}", {"message": message}), loc=place, input=None)


class KernelOrder(WorkOrder):
    """A native kernel against the incumbent on a standing seat."""

    kind: Literal["kernel"]
    target: Target
    candidate: Candidate
    primary: Primary | None = None
    """Absent where the order asks for correctness alone."""


class GateOrder(WorkOrder):
    """No candidate: named gates over a standing configuration (baseline, A/A floor, drift alarm)."""

    kind: Literal["gate"]
    target: Target
    primary: Primary | None = None


class BakeOrder(WorkOrder):
    """A calibrated quantisation of named modules into a pack."""

    kind: Literal["bake"]
    target: Target | None = None
    recipe: Bake | None = None
    """Absent in an order that is not to be run here."""


class OverlayOrder(WorkOrder):
    """A pack made of another pack with some tensors replaced."""

    kind: Literal["overlay"]
    target: Target | None = None
    recipe: Overlay | None = None
    """Absent in an order that is not to be run here."""


class PatchOrder(WorkOrder):
    """Edits of the engine or plugin at exact anchors."""

    kind: Literal["patch"]
    target: Target | None = None
    recipe: Patching | None = None
    """Absent in an order that is not to be run here."""


class SurveyOrder(WorkOrder):
    """No seat: claims with evidence that other orders may cite."""

    kind: Literal["survey"]
    questions: tuple[Line, ...] = ()

    @property
    def target(self) -> Target:
        """A survey stands nowhere: its seat has no engine and no pack."""
        return Target(seat="none", pack="none")


Order = Annotated[
    KernelOrder | GateOrder | BakeOrder | OverlayOrder | PatchOrder | SurveyOrder, Field(discriminator="kind")
]
"""Any work order."""

RecipeOrder = BakeOrder | OverlayOrder | PatchOrder
"""Orders whose candidate is a product: a pack or a patched tree, booted against the standing pack."""

RunnableOrder = KernelOrder | GateOrder | RecipeOrder | SurveyOrder
"""Orders that have a run."""


def files_of(order: WorkOrder) -> tuple[str, ...]:
    """The globs of an order that a craftsperson can deliver; none for one that the runner makes by itself."""
    if isinstance(order, KernelOrder):
        return order.candidate.files_allowed
    return order.scope.files_allowed if isinstance(order, PatchOrder) and order.scope else ()


class OrderFile(Record):
    """An order as it was read."""

    order: Order
    text: str
    digest: str
    """SHA-256 of the file's bytes."""


def load_order(path: Path) -> OrderFile:
    """Read and validate one order. Raises InputError with ``file:line:column`` of every fault."""
    document = read(path)
    order = document.validate(Order)
    data = path.read_bytes()
    return OrderFile(order=order, text=data.decode(), digest=sha256_bytes(data))


def parse_order(text: str, name: str = "order.yaml") -> Order:
    """The same from text that was kept (a run folder, a report)."""
    order: Order = parse(text.encode(), name).validate(Order)
    return order
