"""Live nodes: run protocol nodes on asyncio, UDP sockets and the system clock.

Entry points: `open_node.open_node` finds or creates a world and a node in it, `host.Host` runs the
node, `shared_node.SharedNode` shares it between applications. World discovery, GPS positions, keys
and record signatures are here, too. `thyme.transport` sends messages over one hop; the protocol
nodes are the same as in the simulator.
"""
