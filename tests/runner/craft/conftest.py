"""What the tests of craftspeople share."""

from tests.runner.craft.bench_kit import kit, walls

__all__ = ["kit", "walls"]
