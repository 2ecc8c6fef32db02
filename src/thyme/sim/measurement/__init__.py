"""Measurement: counts traffic, energy and stored records while a run proceeds (S9, S14)."""
