"""The map: what the nodes of a network do, live or recorded, and the page that draws it.

`recording` has the records that both sources share, `node_observer` makes them from a live node,
`stream_merger` joins those of several nodes, `hub` passes them to open pages, `routes` serves the
page. Simulations write the same records (`thyme.sim.playback`).
"""
