"""The front door: what an application holds in its hands.

`join` opens a world; `World` is the interface with async and await, `Handlers` the same with plain
callbacks. Both speak to a node through a `Port`, whatever drives it.
Clauses: M13–M20, M26–M33.
"""
