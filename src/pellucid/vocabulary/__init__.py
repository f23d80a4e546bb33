"""Work on the words of a static model that exists: words added, pruned, retrained, merged."""
