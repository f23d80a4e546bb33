"""LDIR: anchors chosen as the published code chooses them."""
