"""Live analytics: Structured Streaming turns the events of nodes into windowed tables.

`follow` runs the stream, `batch` one batch of it; `task`, with `decode`, `measures` and `facts`, is
the work of Spark's tasks; `batch_log` makes it exactly once, `merging` keeps its files few;
`recall` finds lost notifications, `tables` derives what is shown, `page` shows it. The events are
declared in `thyme.events`; docs/pipeline.md describes the tables.
Clause: P9.
"""
