"""Traces: the operations of users in a run, and the notifications of a perfect execution.

A trace is a table of timed operations (`operations`, `trace`), read and written by `trace_files`.
`posts_to_trace` makes a trace from posts, real ones or those of the `synthetic` match;
`synthetic.lecture_trace` draws the workload of the thesis. `oracle` computes the expected
notifications.
Clauses: S10, S13, S15, P1, P3, C21.
"""
