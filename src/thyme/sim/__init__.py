"""The simulator: runs many nodes in one process, in virtual time, deterministically from a seed.

Entry point: `run`, which takes a `scenario` and returns logs and measurements. `deployment` makes
the nodes, `users` simulates their applications, `progress` reports the progress of a run.

- `engine`: the event kernel and the driver of the nodes.
- `radio`: the 802.11 radio: modes, propagation, medium access, reception.
- `mobility`: the paths along which nodes move.
- `faults`: fault schedules, churn, and the injector that applies them.
- `measurement`: counters of traffic, energy and stored records.
- `playback`: recordings of runs and the page that plays them.
- `networks`: the ideal and the wireless network, which connect the nodes.
- `results`: run summaries, measures, the analytical model, result tables.
- `validation`: comparisons with ns-3 and with formulas.

Clauses: S1–S9, S14, S17.
"""
