"""Stored results as runs of MLflow."""
