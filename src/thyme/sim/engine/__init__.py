"""Engine: virtual time, the driver of simulated nodes, and bit sets of node numbers."""
