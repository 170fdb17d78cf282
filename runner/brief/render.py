"""Renders a brief. Text of the order stands in fences that it cannot close, so it cannot speak as the brief."""

from __future__ import annotations

import re
from pathlib import Path

from jinja2 import StrictUndefined
from jinja2.sandbox import SandboxedEnvironment

from runner.errors import InputError
from runner.gates.registry import gate, parameter_schema
from runner.markdown import cell
from runner.model.order import KernelOrder, load_order
from runner.steps.seats import load_manifest

_TEMPLATE = Path(__file__).parent / "brief.md.j2"


def fenced(text: object) -> str:
    """A code block around ``text`` whose fence is longer than any run of backticks in it."""
    body = str(text).rstrip("\n")
    longest = max((len(run) for run in re.findall(r"`+", body)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{body}\n{fence}"


def brief_of(path: Path, seat: str = "") -> str:
    """The brief of a kernel order, in Markdown. Raises InputError for another kind or an unknown gate."""
    file = load_order(path)
    order = file.order
    if not isinstance(order, KernelOrder):
        raise InputError("only an order for work has a brief", where=str(path), expected="kernel", found=order.kind)
    environment = SandboxedEnvironment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"fenced": fenced, "cell": cell}
    gates = [
        {
            "name": f"{request.name}@{request.version}",
            "what": (gate(request.name, request.version).judge.__doc__ or "").strip().splitlines()[:1],
            "parameters": request.parameters,
            "schema": parameter_schema(gate(request.name, request.version)).get("properties", {}),
        }
        for request in order.gates
    ]
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        order=order, digest=file.digest, gates=gates, manifest=load_manifest(seat or order.target.seat)
    )
