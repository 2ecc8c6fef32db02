"""The simulated world: a kernel with virtual time, and two ways for nodes to hear each other.

In an `ether` everybody reaches everybody; in a `world` messages travel by `radio`. Both are
carriers of one `driver`. Mobility, faults and energy are described here as data.
Clauses: S1–S9.
"""
