"""Commands for operators of live nodes."""
