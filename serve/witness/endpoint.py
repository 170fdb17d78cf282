"""``POST /carve/call``: the witness over HTTP (entry point ``vllm.endpoint_plugins``, named in ``VLLM_PLUGINS``).

``{"method": M, "arguments": {...}}`` → ``{"results": [one for each rank, rank 0 first]}``; an unknown method or an
argument that does not fit answers 400 ``{"error": ...}`` without reaching the engine.
"""

from __future__ import annotations

from typing import Any, Literal

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from serve.witness.witness import ArgumentError

PATH = "/carve/call"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Nothing(_Strict):
    """No arguments."""


class SwitchArguments(_Strict):
    """``ranks`` null: all ranks."""

    variant: str = Field(pattern=r"^[a-z0-9][a-z0-9.\-]*$", max_length=80)
    ranks: list[int] | None = None


class PerturbArguments(_Strict):
    """``layer`` is a module prefix, ``expert`` a local expert index."""

    rank: int = Field(ge=0)
    layer: str
    expert: int = Field(ge=0)
    projection: Literal["gate", "up", "down"]
    factor: float = Field(allow_inf_nan=False)


class MarkArguments(_Strict):
    """``text``: the line that every rank prints."""

    text: str = Field(pattern=r"^[a-z0-9: ]+$", max_length=80)


class Call(_Strict):
    """The request's body."""

    method: str
    arguments: dict[str, JsonValue] = {}


METHODS: dict[str, type[_Strict]] = {
    "counters": Nothing,
    "identity": Nothing,
    "resolved": Nothing,
    "switch": SwitchArguments,
    "perturb": PerturbArguments,
    "unperturb": Nothing,
    "mark": MarkArguments,
}


def parse(body: bytes) -> tuple[str, dict[str, Any]]:
    """Method and keyword arguments of a request. Raises ValueError with a sentence for the caller."""
    try:
        call = Call.model_validate_json(body)
    except ValidationError as error:
        raise ValueError(_sentence("body", error)) from error
    if call.method not in METHODS:
        raise ValueError(f"method {call.method!r} is unknown; known: {', '.join(sorted(METHODS))}")
    try:
        arguments = METHODS[call.method].model_validate(call.arguments)
    except ValidationError as error:
        raise ValueError(_sentence(f"arguments of {call.method}", error)) from error
    return call.method, arguments.model_dump()


def _sentence(where: str, error: ValidationError) -> str:
    faults = (f"{'.'.join(str(part) for part in fault['loc']) or where}: {fault['msg']}" for fault in error.errors())
    return f"{where}: {'; '.join(faults)}"


class WitnessEndpoint:
    """vLLM's ``EndpointPlugin``."""

    name = "carve_witness"
    required_tasks = ("generate",)

    def __init__(self) -> None:
        self.engine: Any = None

    def attach_router(self, app: FastAPI) -> None:
        """Add the route."""
        app.add_api_route(PATH, self._answer, methods=["POST"], response_model=None)

    async def init_state(self, engine_client: Any, state: Any, args: Any) -> None:
        """Keep the engine's client."""
        self.engine = engine_client

    async def _answer(self, request: Request) -> JSONResponse:
        try:
            method, arguments = parse(await request.body())
        except ValueError as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        try:
            results = await self.engine.collective_rpc(f"carve_{method}", kwargs=arguments)
        except Exception as error:  # noqa: BLE001 (the engine wraps a worker's ValueError in its own types)
            return JSONResponse({"error": f"{method}: {error}"}, status_code=_status(error))
        return JSONResponse({"results": results})


def _status(error: Exception) -> int:
    """400 where a worker found an argument that does not fit, 500 where the engine failed."""
    return 400 if ArgumentError.MARK in str(error) else 500


def register() -> WitnessEndpoint:
    """The ``vllm.endpoint_plugins`` factory."""
    return WitnessEndpoint()
