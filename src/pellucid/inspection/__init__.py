"""What is inside a static model: its components, the lengths of its vectors, its languages."""
