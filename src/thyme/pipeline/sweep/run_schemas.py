"""Run schemas: the columns of the results of runs, as Arrow schemas.

They are apart from `thyme.pipeline.schemas` because simulation processes do not import Spark.
Clauses: P5, P10, S14–S16.
"""

from __future__ import annotations

import pyarrow as pa


def _struct(**fields: pa.DataType) -> pa.StructType:
    """A struct of required fields."""
    return pa.struct([pa.field(name, kind, nullable=False) for name, kind in fields.items()])


def _optional(struct: pa.StructType, *names: str) -> pa.StructType:
    """The struct with some fields optional."""
    return pa.struct([field.with_nullable(field.name in names) for field in struct])


_TEXT, _INT, _LONG, _REAL, _TRUTH = (
    pa.string(), pa.int32(), pa.int64(), pa.float64(), pa.bool_(),
)  # fmt: skip
RUN_FACTS = _struct(
    series=_TEXT,
    substrate=_TEXT,
    profile=_TEXT,
    nodes=_INT,
    parameter=_REAL,
    topology=_LONG,
    repetition=_LONG,
    origin_us=_LONG,
    end_us=_LONG,
    events=_LONG,
    estimated_s=_REAL,
    wall_s=_REAL,
    cpu_s=_REAL,
    compiled=_TRUTH,
    phy_frames=_LONG,
    phy_bytes=_LONG,
    mac_retransmissions=_LONG,
    forwarded_bytes=_LONG,
    control_bytes=_LONG,
)
"""A run: its parameters, costs and traffic; `estimated_s` is the cost that was estimated.
`compiled`: by machine code (decision 12)."""
RUN_LOGS = {
    "operations": _optional(
        _struct(
            kind=_TEXT, user=_INT, name=_TEXT, issued_us=_LONG, ended_us=_LONG, code=_TEXT,
            life_us=_LONG,
        ),
        "ended_us",
        "life_us",
    ),
    "notifications": _struct(
        user=_INT, sid=_TEXT, oid=_TEXT, published_us=_LONG, told_us=_LONG, right=_TRUTH
    ),
    "expected": _struct(at_us=_LONG, user=_INT, sid=_TEXT, oid=_TEXT),
    "downtimes": _optional(_struct(user=_INT, since_us=_LONG, until_us=_LONG), "until_us"),
    "loads": _struct(
        node=_INT, type=_TEXT, sent=_LONG, sent_bytes=_LONG, heard=_LONG, heard_bytes=_LONG,
        forwarded=_LONG, forwarded_bytes=_LONG,
    ),
    "devices": _struct(
        node=_INT, server=_TRUTH, cell=_INT, frames=_LONG, frame_bytes=_LONG,
        retransmissions=_LONG, joules=_REAL, battery_share=_REAL, objects=_LONG,
        object_bytes=_LONG, metadata=_LONG, subscriptions=_LONG,
    ),
    "drops": _struct(cause=_TEXT, messages=_LONG),
    "model": _optional(_struct(part=_TEXT, formula=_REAL, simulated=_REAL), "formula"),
    "measures": _struct(measure=_TEXT, value=_REAL),
}  # fmt: skip
"""The logs of a run. Instants are simulated time; those of `expected` count from `origin_us`."""
RUN_TABLES = {
    name: pa.schema([pa.field("run_id", _TEXT, nullable=False), *columns])
    for name, columns in {"runs": RUN_FACTS, **RUN_LOGS}.items()
}
"""The tables of the stage `runs`: one of facts, one of each log; each row names its run."""
RUN_PART = pa.schema(
    [
        pa.field("state", _TEXT, nullable=False),
        pa.field("run_id", _TEXT, nullable=False),
        pa.field("error", _TEXT),
        pa.field("trace_back", _TEXT),
        *(field.with_nullable(True) for field in RUN_FACTS),
        *(pa.field(name, pa.list_(rows)) for name, rows in RUN_LOGS.items()),
    ]
)
"""A run that has just ended, as a task writes it: one row with the logs as lists. A failed run has
an error instead of facts and logs."""
