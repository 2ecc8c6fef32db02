"""Runs: the kinds of runs of a sweep, what each costs, and how each is simulated."""
