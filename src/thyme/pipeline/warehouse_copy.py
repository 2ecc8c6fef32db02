"""Warehouse copy: small stages of a warehouse on another file system, in a folder of this machine.

Entry point: `local_copy`. The report is drawn without Spark, from plain files.
Clauses: P7, P11.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from thyme.model.errors import OptionError
from thyme.pipeline.storage import read_file
from thyme.pipeline.warehouse import MANIFESTS, Warehouse

DEFAULT_FOLDER = Path("thyme-report")


def local_copy(
    warehouse: Warehouse, tables: Mapping[str, Sequence[str]], folder: Path | None
) -> Path:
    """The folder of a warehouse, if it is one of this machine; otherwise a folder with a copy of
    some tables, by stage. Each of their files fits into memory."""
    if warehouse.is_local:
        if folder is not None:
            raise OptionError(f"--report is for other warehouses: {warehouse.uri} is a folder here")
        return warehouse.path
    folder = folder or DEFAULT_FOLDER
    for name, wanted in tables.items():
        stage = warehouse.open_stage(name)
        for table in wanted:
            for file in stage.manifest.tables[table].files:
                place = folder / name / file.path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(read_file(f"{stage.folder}/{file.path}"))
        manifests = folder / name / MANIFESTS
        manifests.mkdir(parents=True, exist_ok=True)
        (manifests / "000001.json").write_bytes(msgspec.json.encode(stage.manifest))
    return folder
