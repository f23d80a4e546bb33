"""The transformer behind lexicon and key-token models: how it is opened, what it reads and what it computes."""
