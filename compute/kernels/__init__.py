"""Compiled functions on arrays of points and numbers."""
