"""Daemon: runs a live node as a process and serves its HTTP API on loopback.

`daemon` runs the node, `server` the API: JSON and server-sent events for any language, a WebSocket
for `thyme.connect`, and metrics for Prometheus. The client side of the WebSocket is
`thyme.api.remote`.
Clauses: M13–M21, M24, M25, E5.
"""
