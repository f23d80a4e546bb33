"""What a person asks of a model of any family, with their answers as reports."""
