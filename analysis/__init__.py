"""Stored rows to tables, figures, verdicts on claims and one report."""
