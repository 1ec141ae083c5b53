"""Queries, and the views of private points that some are put to."""
