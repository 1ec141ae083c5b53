"""Finished cells in files, and the tables that are read from them."""
