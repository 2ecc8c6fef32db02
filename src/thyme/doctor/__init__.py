"""Doctor: checks whether a live node can work on this machine and network, and says what to do.

`check_results` has the record of a check; `machine` checks clock, disk, permissions and ports,
`network` checks interface, multicast, firewall and other devices, `running_node` the running node.
`examine` runs all of them.
"""
