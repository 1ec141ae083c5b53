"""Claims of the papers, and how stored rows decide them."""
