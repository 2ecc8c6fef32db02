"""Events: what nodes, stations and the simulator export about their work, as append-only files.

`event` declares the record, `segments` writes the files, `background` writes them for a live node,
`recorder` makes the events, `popular_tags` reads what the analytics give back.
The analytics are `thyme.pipeline.analytics`; docs/events.md describes the format.
Clause: P9.
"""
