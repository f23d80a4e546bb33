"""Key tokens: a coordinate is a token that a language model's embedding is aligned with; search with them."""
