"""Reading tables: exact text, and one clear line for each way a file can be wrong."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nadpvi.errors import ArgumentError, DataError, FileError, NadpviError
from nadpvi.table_files import file_parts
from nadpvi.tables import read_table, require_columns, to_table

SECRET = "s3cret-cell"


def write(tmp_path: Path, content: str | bytes, name: str = "table.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_cells_stay_text(tmp_path: Path):
    path = write(
        tmp_path, '\ufeffcode,n,note\r\nNA,007,"a, ""b"""\r\nNone,,\r\n" x",1e3,nan\r\n\r\n', "ö (v2).csv"
    )
    table = read_table(path)
    assert table.to_dict("list") == {
        "code": ["NA", "None", " x"],
        "n": ["007", "", "1e3"],
        "note": ['a, "b"', "", "nan"],
    }


def test_chunks_join_in_order(tmp_path: Path):
    path = write(tmp_path, "i,parity\n" + "".join(f"{i},{i % 2}\n" for i in range(20_003)))
    table = read_table(path)
    assert table["i"].tolist() == [str(i) for i in range(20_003)]
    assert table["parity"].tolist()[-3:] == ["0", "1", "0"]


def test_a_blank_line_is_a_cell_where_there_is_one_column(tmp_path: Path):
    """CASES E1: a prediction for every row must not be short of the rows that are empty."""
    path = write(tmp_path, "\nage\n20\n\n\n60\n\n")
    assert read_table(path)["age"].tolist() == ["20", "", "", "60"]
    parts = list(file_parts(path, ["age"], num_rows=2))
    assert [cell for part in parts for cell in part["age"]] == ["20", "", "", "60"]
    assert len(read_table(write(tmp_path, "age,sex\n20,f\n\n60,m\n"))) == 2


def test_header_only_is_a_table_of_no_rows(tmp_path: Path):
    table = read_table(write(tmp_path, "age,sex\n"))
    assert list(table.columns) == ["age", "sex"]
    assert len(table) == 0


@pytest.mark.parametrize(
    "name", ["Sprout Length", "class", "1B", "%male", "a/b", "größe", "chain", "Intercept"]
)
def test_awkward_names_come_back_unchanged(tmp_path: Path, name: str):
    assert list(read_table(write(tmp_path, f"{name},y\n1,2\n")).columns) == [name, "y"]


WRONG_FILES = {
    "empty": (b"", "is empty"),
    "blank lines only": (b"\n\n", "is empty"),
    "byte-order mark only": (b"\xef\xbb\xbf", "is empty"),
    "duplicate names": (
        b"x,y,z,y\n1,2,3,4\n",
        "columns 2 and 4 of the header have the same name",
    ),
    "no header, repeated value": (
        f"39,{SECRET},{SECRET}\n40,x,y\n".encode(),
        "columns 2 and 3 of the header have the same name",
    ),
    "no header, empty value": (f"39,{SECRET},\n40,x,y\n".encode(), "column 3 has an empty name"),
    "empty name": (f"x,,y\n{SECRET},1,2\n".encode(), "column 2 has an empty name"),
    "short line": (f"x,y\n1,2\n{SECRET}\n".encode(), "line 3: 1 fields where the header has 2"),
    "long line": (f"x,y\n1,2\n1,{SECRET},3\n".encode(), "line 3: 3 fields where the header has 2"),
    "latin-1": (f"x,y\n{SECRET},\xe9\n".encode("latin-1"), "UTF-8"),
    "open quote": (f'x,y\n1,"{SECRET}\n'.encode(), "not valid CSV"),
    "text after a quote": (f'x,y\n1,"{SECRET}"z\n'.encode(), "line 2: not valid CSV"),
}


@pytest.mark.parametrize(("content", "rule"), WRONG_FILES.values(), ids=WRONG_FILES.keys())
def test_wrong_file_is_one_line_without_a_cell(tmp_path: Path, content: bytes, rule: str):
    path = write(tmp_path, content)
    with pytest.raises(NadpviError) as caught:
        read_table(path)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert str(path) in message
    assert rule in message
    assert SECRET not in message


@pytest.mark.parametrize("name", ["absent.csv", "absent.parquet", ""], ids=["csv", "parquet", "folder"])
def test_unreadable_path_is_named(tmp_path: Path, name: str):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow", reason="the parquet extra is not installed")
    with pytest.raises(FileError) as caught:
        read_table(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ArgumentError, match=r"nadpvi\[parquet\]"):
        read_table(write(tmp_path, "", "table.parquet"))


def test_damaged_parquet_is_one_line(tmp_path: Path):
    pytest.importorskip("pyarrow", reason="the parquet extra is not installed")
    path = write(tmp_path, "x,y\n1,2\n", "table.parquet")
    with pytest.raises(FileError, match="cannot be read as Parquet"):
        read_table(path)


def test_frames_pass_through_and_mappings_match_by_position():
    frame = pd.DataFrame({"a": [1, 2]}, index=[7, 3])
    assert to_table(frame) is frame
    table = to_table({"a": pd.Series([1, 2], index=[1, 0]), "b": np.array([3, 4]), "c": ("x", "y")})
    assert table.to_dict("list") == {"a": [1, 2], "b": [3, 4], "c": ["x", "y"]}


@pytest.mark.parametrize(
    ("source", "error", "rule"),
    [
        (3, ArgumentError, "DataFrame"),
        (np.zeros((2, 2)), ArgumentError, "got ndarray"),
        ({"a": [1], "b": [1], SECRET: [1, 2]}, DataError, "columns 1 and 3 of the table differ in length"),
        ({"a": [1], SECRET: SECRET}, DataError, "column 2 of the table must be one-dimensional"),
        ({SECRET: np.zeros((2, 2))}, DataError, "column 1 of the table must be one-dimensional"),
        ({1: [SECRET]}, DataError, "names must be text"),
        ({SECRET: np.zeros(2, dtype=[("a", int)])}, DataError, "column 1 of the table has fields of its own"),
        (pd.DataFrame([[1, 2]], columns=[SECRET, SECRET]), DataError, "columns 1 and 2 of the header"),
        (pd.DataFrame([[1, 2]], columns=["x", " "]), DataError, "column 2 has an empty name"),
        (pd.DataFrame([[1]], columns=[["a"], ["b"]]), DataError, "several levels"),
    ],
)
def test_wrong_source_is_one_line(source: object, error: type[Exception], rule: str):
    with pytest.raises(error) as caught:
        to_table(source)
    assert rule in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("header", "hint"),
    [
        ([f"y;age;{SECRET}"], "the delimiter is a semicolon"),
        ([f"y\tage\t{SECRET}"], "the delimiter is a tab"),
        ([f"y|age|{SECRET}"], "the delimiter is a vertical bar"),
        ([" age", "y", SECRET], "remove the blanks around the names"),
        (["sex", SECRET, "y"], 'among its 3 columns are "sex", "y": names are compared exactly'),
        # Half of the known names make a header; fewer may be a record that holds one of them by chance.
        (["y", SECRET, "x"], "(it has 3 columns); the first line must hold the column names"),
        ([SECRET], "(it has 1 column); the first line must hold the column names"),
        ([f"39;{SECRET}"], "(it has 1 column); the first line must hold the column names, with commas"),
        ([], "(it has 0 columns)"),
    ],
)
def test_missing_column_quotes_known_names_only(header: list[str], hint: str):
    with pytest.raises(DataError) as caught:
        require_columns(
            pd.DataFrame([[0] * len(header)], columns=header), ("age",), known=("age", "sex", "y")
        )
    message = str(caught.value)
    assert 'no column "age"' in message
    assert hint in message
    assert len(message.splitlines()) == 1
    assert SECRET not in message


def test_half_of_the_known_names_is_enough():
    table = pd.DataFrame([[0, 0]], columns=["y", SECRET])
    with pytest.raises(DataError, match='among its 2 columns are "y"') as caught:
        require_columns(table, ("age",), known=("age", "y"))
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("content", [f"39,{SECRET}\n40,x\n", f"job,{SECRET}\n40,x\n", f"39;{SECRET}\n40;x\n"])
def test_a_file_without_header_does_not_show_its_first_record(tmp_path: Path, content: str):
    table = read_table(write(tmp_path, content))
    with pytest.raises(DataError, match=r'no column "age".*') as caught:
        require_columns(table, ("age", "job"), known=("age", "job"))
    assert SECRET not in str(caught.value)


def test_long_lists_of_names_are_cut():
    names = tuple(f"c{i}" for i in range(500))
    table = pd.DataFrame({name: [0] for name in names})
    with pytest.raises(DataError, match="and 480 more") as caught:
        require_columns(table, ("age",), known=(*names, "age"))
    assert len(str(caught.value)) < 400
