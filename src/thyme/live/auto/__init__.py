"""Nodes that choose their substrate, and change it with the situation (B7)."""
