"""The kernels run on the host's pool and bring none."""

from __future__ import annotations

import subprocess
import sys

from carve_kernels import parallel

MAPS = """\
7f0000000000-7f0000001000 r-xp 00000000 08:01 11 /usr/lib/libgomp.so.1
7f0000001000-7f0000002000 r--p 00000000 08:01 11 /usr/lib/libgomp.so.1
7f0000002000-7f0000003000 rw-p 00000000 00:00 0
7f0000003000-7f0000004000 r-xp 00000000 08:01 12 /a b/torch/lib/libgomp-1234.so.1
"""


def test_copies_of_libgomp_are_found_once_each() -> None:
    assert parallel.mapped_libgomp(MAPS) == ["/usr/lib/libgomp.so.1", "/a b/torch/lib/libgomp-1234.so.1"]


def test_single_has_no_pool() -> None:
    alone = parallel.single()
    assert (alone.run, alone.thread_id, alone.threads) == (None, None, 1)


ONE_POOL = """
import os, numpy as np, torch
torch.set_num_threads(2)
a = torch.ones(2_000_000)
for _ in range(20): a = a * 1.0 + 0.5
before = set(os.listdir("/proc/self/task"))
from carve_kernels import parallel
from carve_kernels.build import build
from carve_kernels.desk import layers
from carve_kernels.exl3.codebook import Codebook
from carve_kernels.library import Library, Table
path = parallel.libgomp()
assert "torch" in path, path
pool = parallel.host()
assert pool.threads == torch.get_num_threads() == 2, pool.threads
shape = layers.Shape(256, 256, 4, 2)
draw = np.random.default_rng(0)
table = Table(layers.experts(draw, shape, 2, Codebook.MCG))
x, ids = layers.inputs(draw, "gaussian", shape, 4), layers.routes(draw, "unique", shape, 4)
out = np.empty_like(x)
library = Library(build("lna2"))
for _ in range(20):
    assert library.forward(x, ids, np.ones(ids.shape, np.float32), table, out=out, parallel=pool) == ""
    a = a * 1.0 + 0.5
after = set(os.listdir("/proc/self/task"))
assert after == before, (before, after)
print("one pool of", pool.threads)
"""


def test_torch_and_kernels_share_one_pool() -> None:
    result = subprocess.run([sys.executable, "-c", ONE_POOL], capture_output=True, text=True, timeout=300, check=False)
    assert (result.returncode, result.stdout) == (0, "one pool of 2\n"), result.stderr
