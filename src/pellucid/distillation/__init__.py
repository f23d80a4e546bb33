"""Making a static model from a sentence transformer, in one language or several."""
