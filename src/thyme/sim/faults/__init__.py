"""Faults: schedules of crashes, churn and network faults, and their injection into a run."""
