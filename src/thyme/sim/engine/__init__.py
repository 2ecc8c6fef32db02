"""Engine: virtual time, driven nodes, and the networks that connect them."""
