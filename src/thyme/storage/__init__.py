"""Storage: keeps a node's state in memory, or in an SQLite file that survives kill -9.

Entry point: `store.Store`, which substrates use: tables of records, and the objects' bytes. The
driver commits after each input and before it carries out the actions, so that acknowledged data are
stored (M24).
"""
