"""HTML pages: reports of papers, their index, the audit."""
