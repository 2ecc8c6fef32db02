"""Report of the encounter substrates: the figures and claims of the MobUser paper."""
