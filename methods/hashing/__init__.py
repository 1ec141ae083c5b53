"""Methods that find candidates by hashing or by random projection."""
