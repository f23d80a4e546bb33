"""LENS: the baselines of its paper, its authors' checkpoints, clusters that fire for letters."""
