"""Results: measurements, samples, energy and the summary of a run (S9, S14)."""
