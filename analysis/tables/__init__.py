"""Stored rows as tables: values by seed and cell, statistics, charges."""
