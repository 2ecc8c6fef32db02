"""The report: figures, the scorecard and the page of an evaluation.

Reads the tables that the pipeline stored in a warehouse; needs neither Spark nor the simulator.
Entry point: `report.make_report`. `tables` reads the tables, `figures` draws the figures,
`scorecard` checks the claims of the papers (`claims`), and `page` renders the HTML page.
Clauses: P7, C1–C17, C21.
"""
