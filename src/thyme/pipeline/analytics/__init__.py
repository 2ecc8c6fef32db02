"""Live analytics: Structured Streaming turns the events of nodes into windowed tables.

`follow` runs the stream; `parse`, `measures` and `recall` are its pure stages; `batch_log` makes it
exactly once; `tables` derives what is shown; `page` and `server` show it. The events are declared
in `thyme.events`; docs/pipeline.md describes the tables.
Clause: P9.
"""
