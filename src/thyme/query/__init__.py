"""Queries, and the two indexes of every broker.

`query` turns formulas into conjunctions; `subscription_index` finds the active subscriptions that a
new object matches; `history_index` finds the stored objects that a new subscription matches.
Clauses: M5–M11, M15, M17, M31.
"""
