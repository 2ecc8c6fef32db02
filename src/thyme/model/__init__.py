"""The nouns of Thyme: identifiers, tags, time frames, metadata, subscriptions, worlds, errors.

Immutable records that check themselves at birth: a value that exists is valid, whether an
application made it or a datagram brought it.
Clauses: M1–M4, M10–M12, M21, M25.
"""
