"""Testing: seeded soak runs that benchmarks and tests share."""
