"""Control: a node as a process of its own, and the HTTP by which applications use it.

`daemon` runs a live node; `server` offers it on loopback: JSON and server-sent events for any
language, one WebSocket for `thyme.join(node=…)`, metrics for whoever watches.
Clauses: M13–M21, M24, M25, E5.
"""
