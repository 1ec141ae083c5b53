"""The unit of work and its identity."""
