"""Doctor: checks whether a live node can work on this machine and network, and says what to do.

`findings` is the record of a check; `machine` checks clock, disk, permissions and ports, `network`
checks interface, multicast, firewall and other devices, `running_node` asks the node that runs.
`examine` runs all of them.
"""
