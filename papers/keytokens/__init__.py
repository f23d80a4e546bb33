"""A Text is Worth Several Tokens: alignment rates, principal components, the embedders of its tables, its search."""
