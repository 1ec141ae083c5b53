"""Hydra applications: their keys, composition, errors and sweeps."""
