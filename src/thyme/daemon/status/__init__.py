"""Status: what a node tells about itself, read from its components."""
