"""The report: figures, the scorecard and the page of an evaluation.

Reads the tables that the pipeline left in a warehouse and needs neither Spark nor the simulator.
`make_report` writes everything; `tables` reads, `figures` draws, `scorecard` judges, `page` shows.
Clauses: P7, C1–C17, C21.
"""
