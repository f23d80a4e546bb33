"""Anchor embeddings (LDIR): a coordinate is the cosine to a known sentence; how such sentences are chosen."""
