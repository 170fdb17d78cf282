"""Container images for seats: rendered from an order, pinned by digest, read back before the engine starts."""
