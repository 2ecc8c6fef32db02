"""Clocks: the time of a live node, its timers, and corrections of the wall clock."""
