"""The desk: kernels judged and timed in a process of their own, without an engine. Graders, never candidates."""

import os

# numpy's own threads would spin against the kernels under test; this must be said before numpy starts them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
