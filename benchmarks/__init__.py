"""Timings and search beside named peers, each printed by one script."""
