"""One cell to its rows: load, fit, evaluate, lay out."""
