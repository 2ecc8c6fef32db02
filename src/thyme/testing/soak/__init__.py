"""Soak: random workload and faults from a seed, with invariants checked throughout (B12)."""
