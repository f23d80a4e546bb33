"""Static word embeddings in use: a text is the mean of its words' vectors."""
