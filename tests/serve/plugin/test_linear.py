"""How much of a linear a rank keeps, by the class that vLLM makes of it."""

from __future__ import annotations

from typing import Any

import pytest
from vllm.model_executor.layers.linear import (
    ColumnParallelLinear,
    MergedColumnParallelLinear,
    QKVParallelLinear,
    ReplicatedLinear,
    RowParallelLinear,
)

from serve.plugin.linear import Exl3LinearMethod
from serve.plugin.shards import Cut

pytestmark = pytest.mark.engine


def layer(kind: type, **facts: Any) -> Any:
    """A linear of eight ranks as its constructor leaves it when weights are made, without a process group."""
    made: Any = object.__new__(kind)
    vars(made).update({"tp_rank": 3, "tp_size": 8, "output_partition_sizes": [4096]} | facts)
    return made


@pytest.mark.parametrize(
    ("kind", "facts", "place", "cut"),
    [
        (ReplicatedLinear, {}, 0, Cut(0, 1, "out")),
        (ColumnParallelLinear, {}, 0, Cut(3, 8, "out")),
        # disable_tp: the constructor says one rank, and both parts are whole
        (MergedColumnParallelLinear, {"tp_rank": 0, "tp_size": 1}, 1, Cut(0, 1, "out")),
        (RowParallelLinear, {}, 0, Cut(3, 8, "in")),
        (QKVParallelLinear, {"num_kv_head_replicas": 4}, 0, Cut(3, 8, "out")),
        (QKVParallelLinear, {"num_kv_head_replicas": 4}, 1, Cut(0, 2, "out")),
    ],
)
def test_FL_45_a_replicated_linear_is_not_narrowed(kind: type, facts: dict[str, Any], place: int, cut: Cut) -> None:
    assert Exl3LinearMethod("m", ["a", "b", "c"])._cut(layer(kind, **facts), place) == cut
