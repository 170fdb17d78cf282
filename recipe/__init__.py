"""How a pack is made: readers, overlays, bakes, patches and the small packs of this repository."""
