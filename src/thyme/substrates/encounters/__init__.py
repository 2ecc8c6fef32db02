"""Publish/subscribe by encounters: MobUser, and its rivals MFPS and RAPID.

Devices exchange events with one-hop neighbours only (U1). `node` is the node of all three;
`mobuser`, `mfps` and `rapid` are the ways in which events spread.
"""
