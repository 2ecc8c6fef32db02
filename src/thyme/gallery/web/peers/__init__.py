"""Peers of a gallery: the galleries of other nodes in the same world, passes with which guests
change to them, and copies of the photos of other nodes, so that photos outlive their device."""
