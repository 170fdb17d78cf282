"""What the tests of craftspeople share."""

from importlib.util import find_spec

from tests.runner.craft.bench_kit import kit, walls

collect_ignore = [] if find_spec("vllm") else ["test_loop_engine.py"]

__all__ = ["kit", "walls"]
