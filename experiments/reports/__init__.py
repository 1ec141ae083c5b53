"""A paper run and reported, and two stores compared."""
