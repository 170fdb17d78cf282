"""The witness route's own validation, over a real ASGI application and an engine that only records."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st

from serve.witness.endpoint import METHODS, PATH, WitnessEndpoint, parse, register
from serve.witness.witness import ArgumentError

PERTURB = {"rank": 0, "layer": "l", "expert": 0, "projection": "up", "factor": 2.0}


class Engine:
    """Records what reaches the engine."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.fault = fault

    async def collective_rpc(self, method: str, kwargs: dict[str, Any]) -> list[Any]:
        self.calls.append((method, kwargs))
        if self.fault:
            raise self.fault
        return [{"rank": 0}, {"rank": 1}]


async def post(engine: Engine, body: bytes) -> httpx.Response:
    """One request."""
    endpoint: WitnessEndpoint = register()
    application = FastAPI()
    endpoint.attach_router(application)
    await endpoint.init_state(engine, None, None)
    transport = httpx.ASGITransport(app=application)
    async with httpx.AsyncClient(transport=transport, base_url="http://seat") as client:
        return await client.post(PATH, content=body)


@pytest.mark.anyio
async def test_a_call_reaches_every_rank() -> None:
    engine = Engine()
    answer = await post(engine, json.dumps({"method": "switch", "arguments": {"variant": "lna2"}}).encode())
    assert (answer.status_code, answer.json()) == (200, {"results": [{"rank": 0}, {"rank": 1}]})
    assert engine.calls == [("carve_switch", {"variant": "lna2", "ranks": None})]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"method": "exec"}',
        b'{"method": "counters", "arguments": {"x": 1}}',
        b'{"method": "counters", "arguments": {}, "more": 1}',
        b'{"method": "switch", "arguments": {}}',
        b'{"method": "switch", "arguments": {"variant": "../x"}}',
        b'{"method": "switch", "arguments": {"variant": "lna2", "ranks": ["0"]}}',
        json.dumps({"method": "mark", "arguments": {"text": "two\nlines"}}).encode(),
        json.dumps({"method": "perturb", "arguments": PERTURB | {"projection": "all"}}).encode(),
        json.dumps({"method": "perturb", "arguments": PERTURB | {"factor": "2"}}).encode(),
        json.dumps({"method": "perturb", "arguments": PERTURB | {"rank": -1}}).encode(),
    ],
)
async def test_what_does_not_fit_never_reaches_the_engine(body: bytes) -> None:
    engine = Engine()
    answer = await post(engine, body)
    assert answer.status_code == 400
    assert set(answer.json()) == {"error"}
    assert engine.calls == []


@pytest.mark.anyio
@pytest.mark.parametrize(("fault", "status"), [(ArgumentError("no such layer"), 400), (RuntimeError("died"), 500)])
async def test_an_engines_fault_is_told_apart_from_a_wrong_argument(fault: Exception, status: int) -> None:
    assert (await post(Engine(fault), b'{"method": "unperturb"}')).status_code == status


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_json_is_parsed_or_refused_with_a_sentence(value: Any) -> None:
    for body in (value, {"method": value}, *({"method": method, "arguments": value} for method in METHODS)):
        try:
            method, arguments = parse(json.dumps(body).encode())
        except ValueError as error:
            assert str(error)
        else:
            assert method in METHODS
            assert isinstance(arguments, dict)
