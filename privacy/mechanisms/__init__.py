"""Mechanisms, and the noise that they draw."""
