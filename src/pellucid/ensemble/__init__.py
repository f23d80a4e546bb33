"""Several models side by side: a score is the weighted mean of theirs, and still adds up."""
