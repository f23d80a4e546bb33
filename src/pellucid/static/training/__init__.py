"""How a static model is made: distilled from a teacher, in one language or several, and its vocabulary changed."""
