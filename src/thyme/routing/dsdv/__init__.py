"""DSDV: destination-sequenced distance-vector routing (R1)."""
