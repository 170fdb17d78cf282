"""How much of a linear a rank keeps, by the class that vLLM makes of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from runner.paths import source_root

pytestmark = pytest.mark.engine

CUTS = """
import json
from vllm.model_executor.layers import linear
from serve.plugin.linear import Exl3LinearMethod

def cut(kind, place=0, **facts):
    # As the constructor leaves a linear of rank 3 of 8 when weights are made.
    made = kind.__new__(kind)
    vars(made).update({"tp_rank": 3, "tp_size": 8, "output_partition_sizes": [4096]} | facts)
    found = Exl3LinearMethod("m", ["a", "b", "c"])._cut(made, place)
    return [found.rank, found.ranks, found.along]

print("\\n" + json.dumps({
    "replicated": cut(linear.ReplicatedLinear),
    "column": cut(linear.ColumnParallelLinear),
    "disable_tp": cut(linear.MergedColumnParallelLinear, 1, tp_rank=0, tp_size=1),
    "row": cut(linear.RowParallelLinear),
    "query": cut(linear.QKVParallelLinear, num_kv_head_replicas=4),
    "key": cut(linear.QKVParallelLinear, 1, num_kv_head_replicas=4),
}))
"""


def test_FL_45_a_replicated_linear_is_not_narrowed() -> None:
    """Nor one without tensor parallelism; several ranks hold the same key heads."""
    environment = os.environ | {"PYTHONPATH": f"{source_root()}:{source_root() / 'kernels'}"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", CUTS], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "replicated": [0, 1, "out"],
        "column": [3, 8, "out"],
        "disable_tp": [0, 1, "out"],
        "row": [3, 8, "in"],
        "query": [3, 8, "out"],
        "key": [0, 2, "out"],
    }
