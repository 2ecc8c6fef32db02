"""Tables of positions and sends are read, or refused with file, line and column."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thyme.model.errors import InputError
from thyme.model.rng import derive_rng
from thyme.model.worlds import Area
from thyme.sim.mobility.models import random_positions
from thyme.sim.radio.phy import PAYLOAD_BYTES_MAX
from thyme.sim.validation.csv_files import read_positions, read_sends
from thyme.sim.validation.raw_replay import RawSend
from thyme.traces.files import InputFileError

POSITIONS = "node,x,y\n0,53.746,169.487\n1,305.510,51.014\n"
SENDS = "id,t,src,dst,size\n0,1.038245,0,-1,300\n1,1.059581,1,0,28\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "table.csv"


def refusal(error: InputFileError) -> tuple[int | None, int | None]:
    """The position that an error names, once its message is checked."""
    where = "".join(f":{n}" for n in (error.line, error.column) if n is not None)
    assert str(error) == f"{error.path}{where}: {error.problem}"
    return error.line, error.column


def test_s3_positions_are_read(file: Path) -> None:
    file.write_text(POSITIONS)
    assert read_positions(file) == [(53.746, 169.487), (305.51, 51.014)]
    assert read_positions(str(file)) == read_positions(file)


def test_s3_sends_are_read_in_microseconds(file: Path) -> None:
    file.write_text(SENDS)
    assert read_sends(file, 2) == [
        RawSend(0, 1_038_245, 0, -1, 300),
        RawSend(1, 1_059_581, 1, 0, 28),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "node,x,y\n1,3,4\n0,1,2\n",
        "y,node,x\n4,1,3\n2,0,1\n",
        "node,x,y,colour\n0,1,2,red\n1,3,4,\n",
        "\ufeffnode,x,y\r\n0,1,2\r\n\r\n1,3,4",
        '"node","x","y"\n"0", 1 ,2.\n1,+3e0,.4e1\n\n\n',
    ],
    ids=["any order", "columns in any order", "other columns", "as Windows writes it", "quoted"],
)
def test_s3_tables_may_be_written_in_several_ways(file: Path, text: str) -> None:
    file.write_bytes(text.encode())
    assert read_positions(file) == [(1.0, 2.0), (3.0, 4.0)]


def test_s3_a_compressed_table_is_read(tmp_path: Path) -> None:
    path = tmp_path / "positions.csv.gz"
    path.write_bytes(gzip.compress(POSITIONS.encode()))
    assert len(read_positions(path)) == 2


@pytest.mark.parametrize(
    ("text", "line", "column", "problem"),
    [
        ("", None, None, "empty"),
        (" \n\n", None, None, "empty"),
        ("node,x,y\n", 2, None, "no rows"),
        ("node,x\n0,1\n", 1, 1, "lacks y: expected node,x,y, found 'node,x'"),
        ("node;x;y\n0;1;2\n", 1, 1, "lacks node, x, y"),
        ("0,1,2\n1,3,4\n", 1, 1, "lacks node, x, y"),
        ("node,x,y,x\n0,1,2,3\n", 1, 10, "names x twice"),
        ("node,x,y\n0,1\n", 2, 3, "has 2 columns, but the header has 3"),
        ("node,x,y\n0,1,2\n1,3,4,5\n", 3, 7, "has 4 columns, but the header has 3"),
        ("node,x,y\n0,one,2\n", 2, 3, "x is a number, not 'one'"),
        ("node,x,y\n0,1,\n", 2, 5, "y is a number, not ''"),
        ("node,x,y\n0, 1_0,2\n", 2, 4, "x is a number, not '1_0'"),
        ("node,x,y\n0,1,NaN\n", 2, 5, "y is a finite number, not 'NaN'"),
        ("node,x,y\n0,-inf,1\n", 2, 3, "x is a finite number, not '-inf'"),
        ("node,x,y\n0,1e999,1\n", 2, 3, "x is a finite number, not '1e999'"),
        ("node,x,y\n0,2e7,1\n", 2, 3, "x is at most 10000000 m"),
        ("node,x,y\n0.5,1,1\n", 2, 1, "node is a whole number, not '0.5'"),
        ("node,x,y\n-1,1,1\n", 2, 1, "numbered from 0"),
        ("node,x,y\n0,1,2\n0,3,4\n", 3, 1, "node 0 was already placed in line 2"),
        ("node,x,y\n0,1,2\n\n1,1.0,2.00\n", 4, 3, "nodes 0 and 1 have the same position"),
        ("node,x,y\n0,0.0,2\n1,-0.0,2\n", 3, 3, "nodes 0 and 1 have the same position"),
        ("node,x,y\n0,1,2\n3,3,4\n", 3, 1, "there is a node 3 but no node 1"),
    ],
)
def test_s3_positions_that_cannot_be_used_are_refused(
    file: Path, text: str, line: int | None, column: int | None, problem: str
) -> None:
    file.write_text(text)
    with pytest.raises(InputFileError) as caught:
        read_positions(file)
    assert refusal(caught.value) == (line, column)
    assert problem in caught.value.problem
    assert caught.value.path == str(file)


@pytest.mark.parametrize(
    ("row", "column", "problem"),
    [
        ("7,-1,0,1,300", 3, "t is 0 s or later, not -1"),
        ("7,nan,0,1,300", 3, "t is a finite number"),
        ("7,2e9,0,1,300", 3, "t is at most 1000000000 s"),
        ("7,1,2,1,300", 5, "src is unknown: 2; nodes are numbered 0 to 1"),
        ("7,1,-1,1,300", 5, "src is unknown: -1"),
        ("7,1,0,2,300", 7, "dst is unknown: 2"),
        ("7,1,0,-2,300", 7, "dst is unknown: -2"),
        ("7,1,1,1,300", 7, "node 1 sends to itself"),
        ("7,1,0,1,0", 9, "size must be 1 to 2268 bytes, not 0"),
        ("7,1,0,1,-5", 9, "size must be 1 to 2268 bytes, not -5"),
        ("7,1,0,1,2269", 9, "size must be 1 to 2268 bytes, not 2269"),
        ("7,1,0,1,3e2", 9, "size is a whole number, not '3e2'"),
        ("0,1,0,1,300", 1, "id 0 was already used in line 2"),
        (f"{'9' * 5000},1,0,1,300", 1, "id is a whole number"),
        ("7,1,0,1", 7, "has 4 columns, but the header has 5"),
    ],
)
def test_s3_sends_that_cannot_be_are_refused(
    file: Path, row: str, column: int, problem: str
) -> None:
    file.write_text(f"id,t,src,dst,size\n0,0,0,-1,{PAYLOAD_BYTES_MAX}\n{row}\n")
    with pytest.raises(InputFileError) as caught:
        read_sends(file, 2)
    assert refusal(caught.value) == (3, column)
    assert problem in caught.value.problem
    assert len(str(caught.value)) < 1000


def test_s3_an_empty_table_of_sends_is_refused(file: Path) -> None:
    for text, line in (("", None), ("id,t,src,dst,size\n", 2)):
        file.write_text(text)
        with pytest.raises(InputFileError) as caught:
            read_sends(file, 2)
        assert caught.value.line == line


def test_a_file_that_is_not_there_or_not_text_is_refused(file: Path, tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="cannot be read: No such file"):
        read_positions(file)
    with pytest.raises(InputFileError, match="cannot be read: Is a directory"):
        read_positions(tmp_path)
    file.write_bytes(b"node,x,y\n0,1,\xff\n")
    with pytest.raises(InputFileError, match="not UTF-8") as caught:
        read_positions(file)
    assert refusal(caught.value) == (2, 5)
    broken = tmp_path / "table.csv.gz"
    for data in (b"node", gzip.compress(POSITIONS.encode())[:-9]):
        broken.write_bytes(data)
        with pytest.raises(InputFileError, match="cannot be read"):
            read_positions(broken)


def test_an_error_of_a_file_is_an_input_error_and_travels_between_processes() -> None:
    error = InputFileError("a.csv", "no", 3, 4)
    assert isinstance(error, InputError)
    twin = pickle.loads(pickle.dumps(error))
    assert (twin.path, twin.problem, twin.line, twin.column) == ("a.csv", "no", 3, 4)
    assert str(twin) == str(error) == "a.csv:3:4: no"


@given(seed=st.integers(0, 2**32), nodes=st.integers(1, 30))
def test_s3_places_survive_a_file(
    tmp_path_factory: pytest.TempPathFactory, seed: int, nodes: int
) -> None:
    places = random_positions(derive_rng(seed, "places"), nodes, Area(50.0, 20.0))
    file = tmp_path_factory.getbasetemp() / "places.csv"
    rows = [f"{node},{x:.3f},{y:.3f}" for node, (x, y) in enumerate(places)]
    file.write_text("\n".join(["node,x,y", *reversed(rows)]))
    assert read_positions(file) == places


@given(text=st.text('0123456789,.-+eEnaif\n "xy', max_size=60))
def test_s3_whatever_a_table_holds_it_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    file = tmp_path_factory.getbasetemp() / "fuzz.csv"
    for header, read in (("node,x,y", read_positions), ("id,t,src,dst,size", _read_three)):
        file.write_text(f"{header}\n{text}")
        try:
            assert read(file)
        except InputFileError as error:
            refusal(error)


def _read_three(path: Path) -> list[RawSend]:
    return read_sends(path, 3)
