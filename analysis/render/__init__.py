"""Drawing of figures from their tables: panels, axes, legends and one module a kind."""
