"""Results: summary, measures and tables of a run, and the analytical model (S14, S15, S18)."""
