"""Methods that cluster a private summary of the data."""
