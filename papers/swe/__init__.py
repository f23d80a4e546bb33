"""Static Word Embeddings for Sentence Semantic Representation: what its components and vector lengths say."""
