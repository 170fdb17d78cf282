"""Signatures: keys, envelopes, statements and who is trusted to make them."""
