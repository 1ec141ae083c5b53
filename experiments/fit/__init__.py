"""One cell to its rows: load, fit, evaluate, make rows."""
