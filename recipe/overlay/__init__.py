"""Overlays: routed experts of named layers replaced by a donor's, everything else byte for byte as it was."""

from recipe.overlay.estimate import estimate
from recipe.overlay.make import make
from recipe.overlay.verify import verify

__all__ = ["estimate", "make", "verify"]
