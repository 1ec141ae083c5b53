"""A paper and a profile to cells, and what they will take."""
