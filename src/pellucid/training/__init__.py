"""Training a lexicon model on pairs, hard negatives and a teacher's scores."""
