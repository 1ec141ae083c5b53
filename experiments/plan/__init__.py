"""A paper and a profile to cells, and how long these will take."""
