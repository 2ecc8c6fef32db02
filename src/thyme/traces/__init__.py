"""Traces: what users do in a run, where it comes from, and what a perfect execution of it tells.

A trace is a table of timed operations (`operations`, `trace`), read and written by `table`. It is
made from posts by the rules of `rules`, whose posts may be those of the synthetic match (`match`),
or drawn as in `lecture`. `oracle` says which notifications it is owed.
Clauses: S10, S13, S15, P1, P3, C21.
"""
