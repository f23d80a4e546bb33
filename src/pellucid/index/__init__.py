"""Search with reasons on one machine: texts in, hits out, and for every hit the terms that its score is made of."""
