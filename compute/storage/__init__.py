"""Points on the integer grid: in memory, in files, on a cluster."""
