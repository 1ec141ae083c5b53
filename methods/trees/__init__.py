"""Methods that partition the domain by grids and trees."""
