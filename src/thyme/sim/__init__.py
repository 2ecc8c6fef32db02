"""The simulated world. For now its simplest form, the ether: nodes that all hear each other."""
