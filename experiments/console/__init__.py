"""Consoles, parsers of command lines, and errors in one line."""
