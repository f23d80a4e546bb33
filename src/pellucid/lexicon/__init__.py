"""Lexicon embeddings (LENS): a coordinate is a cluster of words; how the clusters are made, and the baselines."""
