"""One real vLLM boot over two ranks: the same text as one rank, each rank counted and perturbed on its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from serve.adapters.booted import BootedEngine
from serve.witness.mark import STREAMS
from tests.serve.engine_boot import LAYERS, assert_predicted, boot, document, forced, stop_clean, worst

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BootedEngine]:
    running = boot(tmp_path_factory.mktemp("boot") / "two", ranks=2)
    try:
        yield running
    finally:
        stop_clean(running)


def test_both_ranks_answer_with_their_own_shards(engine: BootedEngine) -> None:
    ranks = engine.record.ranks
    assert [rank.rank for rank in ranks] == [0, 1]
    assert ranks[0].weights != ranks[1].weights
    assert ranks[0].libraries == ranks[1].libraries
    assert engine.record.canary


def test_what_every_process_printed_has_arrived(engine: BootedEngine) -> None:
    log = engine.logs()
    assert log.count("carve mark") % (2 * STREAMS) == 0, "each rank, each stream"
    assert log.index("carve: plugin ready on rank 1 ") < log.index("carve mark")


def test_both_ranks_hold_what_was_predicted(engine: BootedEngine) -> None:
    assert_predicted(engine, "cpu-mini-tp2")


def test_a_variant_can_run_on_one_rank_alone(engine: BootedEngine) -> None:
    engine.switch("incumbent")
    engine.switch("lna2", (1,))
    assert [answer["variant"] for answer in engine.call("switch", {"variant": "lna2", "ranks": []})] == [
        "incumbent",
        "lna2",
    ]
    before = engine.counters()
    forced(engine, document(9))
    after = engine.counters()
    for rank, variant in enumerate(("incumbent", "lna2")):
        for layer in LAYERS:
            counts = [
                sum(row.launches for row in counters[rank].witness if (row.layer, row.variant) == (layer, variant))
                for counters in (before, after)
            ]
            assert counts[1] - counts[0] == 8, (rank, layer)
    engine.switch("incumbent")


@pytest.mark.parametrize("rank", [0, 1])
def test_each_rank_moves_the_output(engine: BootedEngine, rank: int) -> None:
    ids = document(33)
    right = forced(engine, ids)
    change = {"rank": rank, "layer": LAYERS[0], "expert": 1, "projection": "up", "factor": 1.5}
    assert [answer["perturbed"] for answer in engine.call("perturb", change)] == [rank == 0, rank == 1]
    try:
        assert worst(right, forced(engine, ids)) > 1e-2
    finally:
        engine.call("unperturb")
    assert worst(right, forced(engine, ids)) == 0.0
