"""Sweep: plans simulations, runs them as Spark tasks, and resumes after an interruption."""
