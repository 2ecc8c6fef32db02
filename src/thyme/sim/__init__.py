"""The simulated world: a kernel with virtual time, and two ways for nodes to hear each other.

In an `ether` everybody reaches everybody; in a `world` messages travel by `radio`. Both are
carriers of one `driver`. Mobility, faults and energy are described as data; `motion`, `fate` and
`measure` make them happen, and a `recorder` writes a run down.
Clauses: S1–S9, S14, S17.
"""
