"""Do embeddings say the tokens of their texts, and what has their first principal component to do with it?"""
