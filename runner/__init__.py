"""Work orders in, signed evidence out."""
