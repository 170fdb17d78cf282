"""Graph sets: every pattern has its own, captured once, and the engine's wrappers hold what the switch gave them."""

from __future__ import annotations

import inspect
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from vllm.compilation.cuda_graph import CUDAGraphWrapper

from serve.witness.graphs import GraphSets, Pattern, vllm_wrappers

PATTERNS = [("incumbent", "incumbent"), ("lna2", "lna2"), ("lna2", "incumbent"), ("lna2-watermark", "lna2")]


class Engine:
    """Wrappers that capture, when they are told to, what is switched on."""

    def __init__(self) -> None:
        self.on: Pattern = PATTERNS[0]
        self.wrappers: list[Any] = [type("Wrapper", (), {"concrete_cudagraph_entries": {}})() for _ in range(3)]
        self.captured: list[Pattern] = []
        self.capture()

    def capture(self) -> None:
        self.captured.append(self.on)
        for wrapper in self.wrappers:
            for rows in (1, 2, 4):
                assert rows not in wrapper.concrete_cudagraph_entries
                wrapper.concrete_cudagraph_entries[rows] = self.on

    def replayed(self) -> set[Pattern]:
        return {entry for wrapper in self.wrappers for entry in wrapper.concrete_cudagraph_entries.values()}


@given(st.lists(st.sampled_from(PATTERNS), max_size=30))
def test_what_is_replayed_is_what_is_switched_on(switches: list[Pattern]) -> None:
    engine = Engine()
    sets = GraphSets(engine.on)
    for pattern in switches:
        engine.on = pattern
        known = pattern in engine.captured
        assert sets.follow(pattern, engine.wrappers, engine.capture) is not known
        assert engine.replayed() == {pattern}
        assert all(len(wrapper.concrete_cudagraph_entries) == 3 for wrapper in engine.wrappers)
    assert len(engine.captured) == len(set(engine.captured))


def test_vllm_keeps_its_graphs_where_the_switch_looks_for_them() -> None:
    assert vllm_wrappers() == ()
    assert hasattr(CUDAGraphWrapper, "_all_instances")
    assert "self.concrete_cudagraph_entries" in inspect.getsource(CUDAGraphWrapper.__call__)
