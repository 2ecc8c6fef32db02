"""Transport: sends messages over one hop, on datagrams that may be lost; no sockets, no clock.

Entry point: `link.Link`. `datagrams` is the format, `send_window` and `reassembly` are the two ends
of a reliable transfer, `encryption` protects closed worlds, `rate_limit` limits each sender.
`thyme.live` drives the link with sockets and the system clock.
Clauses: M21, M25, D4, D10, B5.
"""
