"""Where a node's state is kept: in memory, or in an SQLite file that survives kill -9.

Substrates see a `Store`: shelves of records and a place for the objects' bytes. The driver commits
after each input and before it carries out the actions, so what is acknowledged is kept (M24).
"""
