"""Simulated venues: base stations with wires between them, and the mobile nodes around each."""
