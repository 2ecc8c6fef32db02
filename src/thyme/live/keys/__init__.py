"""Keys of a live node: its identity, signatures, and keys that it shares with other nodes."""
