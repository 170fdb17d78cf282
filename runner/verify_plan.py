"""Whether the sealed plan is the one that order and seat manifest give: nothing softer, nothing besides.

Both are in the report, and compiling is pure. So everything that judges or is measured is compared with what this
checkout compiles: each gate with its windows and parameters, each window with its amounts, boots, arms and kill lines.
What an order may not even say (``require``, the seat's noise) is compared as well. Digests of subjects and graders say
what was there, and others check them. Of an older form are only the plans that :mod:`runner.older_plans` lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from pydantic import JsonValue

from runner.checks.fault import Fault
from runner.checks.limits import limits
from runner.digest import canonical_json, sha256_bytes
from runner.errors import CarveError, TrustError
from runner.model.order import OrderFile
from runner.model.order.order import parse_order
from runner.model.plan import Plan
from runner.model.seat import SeatManifest
from runner.older_plans import OLDER_PLANS
from runner.plan import PRODUCT, compile_plan, runnable, target_of

_DECIDES = {"variants", "pairing", "pairs", "boots", "windows", "gates", "kill_lines"}
"""Fields of a plan that follow from order and manifest (and, for ``product``, from what was made)."""
_OTHER = "the plan is not what its order and its seat give"
_ELSEWHERE = "check out the commit that the report was made with, if it is older or newer than this checkout"


def check_plan(order: str, manifest: Mapping[str, JsonValue] | None, plan: Plan, digest: str, where: str) -> None:
    """Raises TrustError where the plan, sealed as ``digest``, is not what the order's text and the manifest give."""
    if digest in OLDER_PLANS:
        return
    if manifest is None:
        raise TrustError(
            _OTHER,
            where=f"{where}, seat.manifest",
            expected="the manifest, or a published plan of before manifests were sealed",
            found="none",
        )
    made = {name: digest for name, digest in plan.subjects.items() if name.startswith(PRODUCT)}
    try:
        faults = _said_softer(order)
        wanted = _compiled(order, canonical_json(manifest), tuple(sorted(made.items())))
    except (CarveError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise TrustError(
            _OTHER,
            where=where,
            expected="an order and a manifest that can be planned",
            found=str(error),
            next_step=_ELSEWHERE,
        ) from error
    for fault in faults:
        place = ".".join(map(str, fault.path))
        raise TrustError("the order says what it may not say", where=f"{where}, order.{place}", found=fault.message)
    for place, expected, found in _differences(wanted, plan.model_dump(mode="json", include=_DECIDES), "plan"):
        raise TrustError(
            _OTHER, where=f"{where}, {place}", expected=str(expected), found=str(found), next_step=_ELSEWHERE
        )


@lru_cache(maxsize=64)  # many reports of few orders
def _compiled(order: str, manifest: bytes, made: tuple[tuple[str, str], ...]) -> Mapping[str, Any]:
    plan = compile_plan(_file(order), SeatManifest.model_validate_json(manifest), dict(made), sha256_bytes(b""))
    return plan.model_dump(mode="json", include=_DECIDES)


@lru_cache(maxsize=64)
def _said_softer(order: str) -> tuple[Fault, ...]:
    """Parameters that are the seat's or the plan's to say, and limits that decide nothing: compiling takes them all."""
    asked = runnable(_file(order))
    requests = enumerate(asked.gates)
    return tuple(fault for at, one in requests for fault in limits(("gates", at), one, target_of(asked)))


def _file(order: str) -> OrderFile:
    return OrderFile(order=parse_order(order), text=order, digest=sha256_bytes(order.encode()))


def _differences(wanted: Any, sealed: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    """(place, expected, found) of each value that differs; a text is never a number, nor a truth one."""
    if isinstance(wanted, dict) and isinstance(sealed, dict):
        for name in sorted(wanted.keys() | sealed.keys()):
            yield from _differences(wanted.get(name, "nothing"), sealed.get(name, "nothing"), f"{place}.{name}")
    elif isinstance(wanted, list) and isinstance(sealed, list) and len(wanted) == len(sealed):
        for number, (one, other) in enumerate(zip(wanted, sealed, strict=True)):
            yield from _differences(one, other, f"{place}.{_name(one, number)}")
    elif type(wanted) is not type(sealed) or wanted != sealed:
        yield place, _shown(wanted), _shown(sealed)


def _name(value: Any, number: int) -> str:
    """Of a gate, window or boot its own name, else where it stands."""
    return str(value.get("id") or value.get("name") or number) if isinstance(value, dict) else str(number)


def _shown(value: Any) -> str:
    """A list of records by their names alone."""
    named = isinstance(value, list) and all(isinstance(one, dict) for one in value)
    return ", ".join(_name(one, number) for number, one in enumerate(value)) if named else str(value)


__all__ = ["OLDER_PLANS", "check_plan"]
