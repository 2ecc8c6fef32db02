"""Queries and the two indexes under every broker.

`query` turns formulas into conjunctions; `standing` finds the subscriptions that a new object
matches; `history` finds the stored objects that a new subscription matches.
Clauses: M5–M11, M15, M17, M31.
"""
