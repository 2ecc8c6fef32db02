"""Lab: runs many live nodes on one machine, connected by a virtual radio (`thyme lab`).

Entry points: `lab.up`, `lab.read_status`, `lab.down`. Each node is a `thyme node` process.
Clauses: D2.
"""
