"""Federated clustering with exact removals."""
