"""The real world: nodes on sockets, with real clocks.

The protocol is that of the simulator, unchanged; here are the datagrams that carry its messages
between devices in reach, and the host that brings inputs to a node and carries out its actions.
"""
