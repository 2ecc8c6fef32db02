"""Chunks of large objects: which a node keeps, serves and fetches (M37)."""
