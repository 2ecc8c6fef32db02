"""The data pipeline on Spark: posts, traces, expected notifications, sweeps and metrics.

Each stage is a pure function from DataFrames to DataFrames with its own schema (`schemas`).
`session` creates the Spark session, `jobs` runs the stages, and `warehouse` stores their results so
that no stage runs twice. `posts` imports or generates posts, `traces` turns them into operations,
and `oracle` computes the expected notifications. `sweep` runs simulations, `metrics` measures their
results, and `evaluate` does both. The rules for traces are in `thyme.traces`.
Clauses: P1–P10.
"""
