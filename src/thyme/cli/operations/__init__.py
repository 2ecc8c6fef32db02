"""Commands for operators of live nodes, and the gallery."""
