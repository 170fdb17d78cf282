"""From a brief to a frozen candidate: craftspeople at work in clones of their own."""
