"""How explanations and reports show themselves: terminal, HTML, pictures."""
