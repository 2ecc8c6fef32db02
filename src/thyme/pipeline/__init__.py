"""The data pipeline on Spark: posts to traces, to what a perfect execution notifies, to a report.

Each stage is a pure function from DataFrames to DataFrames with a schema of its own (`schemas`);
`session` makes the one Spark session, `jobs` runs the stages, and `warehouse` keeps what they made,
so that none is run twice. Posts come from `sources` or `synth`, become operations in `traces`, and
`oracle` says which notifications those are owed. The rules themselves are those of `thyme.traces`.
Clauses: P1–P10.
"""
