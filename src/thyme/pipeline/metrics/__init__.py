"""Metrics: Spark aggregations over the results of a sweep (P6)."""
