"""History index: finds the most recent stored objects that match a query (M17)."""
