"""Claims: one function for each claim of the papers, which compares it with our results."""
