"""Radio: IEEE 802.11 physical layer, medium access and propagation (S1 to S5)."""
