"""Mobility: positions, paths and movement of simulated devices (S6)."""
