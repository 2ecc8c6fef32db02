"""Evaluation of the encounter substrates on Spark: the figures of the MobUser paper."""
