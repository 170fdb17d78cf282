"""A pack whose head is coded, as exllamav3 writes them, is served: real engine, logits against our own forward."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from recipe import bake
from recipe.agreement import forward_of, logprobs
from recipe.product import Job
from recipe.routing import logits_of
from runner.model.order.bake import Bake, Rate
from serve.adapters.process import ProcessSeat
from tests.serve.engine_boot import PACK, document, forced, request, stop_clean

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def coded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("head")
    recipe = Bake(modules=("lm_head",), rates=(Rate(modules="lm_head", bits=3),))
    return Path(bake.make(Job(recipe, PACK, folder, folder / "product", folder / "work")).folder)


@pytest.mark.parametrize("ranks", [2])
def test_a_coded_head_is_cut_over_the_ranks_and_gives_the_logits_of_its_codes(
    coded: Path, tmp_path: Path, ranks: int
) -> None:
    tokens = document(24)
    wanted = logprobs(logits_of(forward_of(coded), np.array([tokens])), np.array([tokens]))[0]
    plain = logprobs(logits_of(forward_of(PACK), np.array([tokens])), np.array([tokens]))[0]
    assert np.abs(wanted - plain).max() > 0.1, "three bits must be felt"
    asked = dataclasses.replace(request(tmp_path, ranks=ranks, variants=("incumbent",)), pack=coded)
    engine = ProcessSeat().boot(asked)
    try:
        found = forced(engine, tokens)
        assert all(map(math.isfinite, found))
        assert np.abs(np.array(found) - wanted).max() < 2e-3
    finally:
        stop_clean(engine)
