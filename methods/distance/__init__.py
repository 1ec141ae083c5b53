"""Methods under rho-bounded adjacency."""
