"""Readings that need no engine: the pack on disk, and a variant's parity at the desk."""

from __future__ import annotations

import time
from collections.abc import Callable

from pydantic import JsonValue, TypeAdapter

from recipe.pack import inspect
from runner.clock import now
from runner.errors import InputError, SeatError
from runner.material import desk_seed
from runner.model.evidence import Call, Evidence
from runner.model.order import Fact
from runner.probes import Finding, findings
from serve.client.context import WindowContext


def parity(context: WindowContext) -> Evidence:
    """Argument ``variant``: whose library the desk compares with the reference; the rest goes to the desk as it is.

    Tensors, routes and inputs come from a seed that is drawn for the run, so that no library can know them.
    Raises SeatError where the desk does not answer with cases.
    """
    arguments = {**context.window.arguments, "seed": desk_seed(context.draw, context.window.id)}
    at_ns = time.monotonic_ns()

    def collect() -> dict[str, JsonValue]:
        (answer,) = context.boot.call("parity", arguments)
        if not isinstance(answer, dict) or "cases" not in answer:
            raise SeatError("the desk's job gave no cases", where=context.boot.record.id, found=str(answer)[:200])
        return {"cases": answer["cases"]}

    call = Call(method="parity", arguments=arguments, results=(), at_ns=at_ns)
    return _record(context, collect, calls=(call,))


def kernel_speed(context: WindowContext) -> Evidence:
    """Arguments ``variant``, ``version`` (of the incumbent library), ``bits``, ``rows``, ``cold`` and ``warm``."""
    return _job(context, "kernel-speed")


def pressure(context: WindowContext) -> Evidence:
    """Arguments ``variant``, ``bits``, ``rows`` and ``replays``."""
    return _job(context, "pressure")


def sanitizer(context: WindowContext) -> Evidence:
    """Argument ``variant``."""
    return _job(context, "sanitizer")


def _job(context: WindowContext, method: str) -> Evidence:
    """The desk's answer to one job, whose material comes from a seed drawn for the run. SeatError where it has none."""
    arguments = {**context.window.arguments, "seed": desk_seed(context.draw, context.window.id)}
    call = Call(method=method, arguments=arguments, results=(), at_ns=time.monotonic_ns())

    def collect() -> dict[str, JsonValue]:
        (answer,) = context.boot.call(method, arguments)
        if not isinstance(answer, dict):
            raise SeatError("the desk's job gave no facts", where=context.boot.record.id, found=str(answer)[:200])
        return answer

    return _record(context, collect, calls=(call,))


def pack(context: WindowContext) -> Evidence:
    """Digests, closure and census of the pack: the seat's own, or a recipe's product."""

    def collect() -> dict[str, JsonValue]:
        found, faults = inspect(context.pack)
        return {
            "header_digest": found.header_digest(),
            "payload_digest": found.payload_digest(),
            "faults": [" ".join(str(fault).split()) for fault in faults],
        }

    return _record(context, collect)


def product(context: WindowContext) -> Evidence:
    """What the recipe's own verification finds on disk, and where every part of the product comes from.

    Raises InputError where the run made no product.
    """
    verify = context.verify
    if verify is None:
        raise InputError("this run made no product", where=context.window.id, expected="an order with a recipe")

    def collect() -> dict[str, JsonValue]:
        return verify().model_dump(mode="json")

    return _record(context, collect)


def claims(context: WindowContext) -> Evidence:
    """Argument ``facts``: the order's standing facts with their probes, which look again."""
    facts = TypeAdapter(tuple[Fact, ...]).validate_python(context.window.arguments["facts"])

    def collect() -> dict[str, JsonValue]:
        seen = {finding.fact: finding for finding in findings(facts)}
        return {"claims": [_claim(fact, seen.get(fact.id)) for fact in facts]}

    return _record(context, collect)


def _claim(fact: Fact, finding: Finding | None) -> dict[str, JsonValue]:
    stated = f"{fact.value} {fact.unit or ''}".strip() if fact.value else fact.statement
    found, agrees = (finding.found, finding.agrees) if finding else ("no probe", None)
    return {"fact": fact.id, "stated": stated, "found": found, "agrees": agrees}


def _record(
    context: WindowContext, collect: Callable[[], dict[str, JsonValue]], calls: tuple[Call, ...] = ()
) -> Evidence:
    opened_at = now()
    opened_ns = time.monotonic_ns()
    facts = collect()
    return Evidence(
        window=context.window.id,
        boot=context.boot.record.id,
        instrument=context.window.instrument,
        variant=context.variant,
        opened_at=opened_at,
        opened_ns=opened_ns,
        closed_ns=time.monotonic_ns(),
        calls=calls,
        facts=facts,
    )
