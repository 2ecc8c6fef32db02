"""Domain types: identifiers, tags, time frames, metadata, subscriptions, worlds, errors.

All records are immutable and validate themselves on construction, whether an application or a
received datagram supplied the values.
Clauses: M1–M4, M10–M12, M21, M25.
"""
