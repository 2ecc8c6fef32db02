"""Commands of the pipeline on Spark: posts, trace, oracle, evaluate, report."""
