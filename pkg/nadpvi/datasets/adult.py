"""UCI Adult ("Census Income"): the original train and test files and a hand-written schema.

Source: Becker, B. and Kohavi, R. (1996), https://doi.org/10.24432/C5XW20, CC BY 4.0 (see LICENSE-adult.md).
"""

import gzip
import hashlib
import tomllib
import zlib
from importlib.resources import files
from io import BytesIO
from typing import Literal

import pandas as pd

from nadpvi.errors import ArgumentError, FileError
from nadpvi.schema import Schema

__all__ = ["ADULT_OUTCOME", "ADULT_PREDICTORS", "adult_schema", "load_adult"]

ADULT_OUTCOME = "income"

# The columns of the paper's section 13.6: all but education-num, relationship and native-country.
ADULT_PREDICTORS = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "marital-status",
    "occupation",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
)

_NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
_NAMES = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
)

# File and SHA-256 of its content before compression, as UCI distributes it.
_FILES = {
    "train": ("adult.data.gz", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
    "test": ("adult.test.gz", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
}


def load_adult(part: Literal["train", "test"], *, complete: bool = True) -> pd.DataFrame:
    """Return UCI Adult's train or test records in file order: 15 columns, six of them integers.

    Parameters
    ----------
    part : "train" or "test"
    complete : bool
        Leave out the records with a "?" (30,162 of 32,561 train and 15,060 of 16,281 test records stay); if
        False, "?" is kept as text.

    Raises
    ------
    ArgumentError
        If `part` is neither.
    FileError
        If the installed file is not UCI's, byte for byte.

    Examples
    --------
    >>> load_adult("test").shape
    (15060, 15)
    """
    if part not in _FILES:
        raise ArgumentError(f'part must be "train" or "test" (got {part!r})')
    # The test file starts with a banner, and its labels end in a full stop.
    table = pd.read_csv(
        BytesIO(_content(part)),
        names=list(_NAMES),
        skiprows=1 if part == "test" else 0,
        skipinitialspace=True,
        keep_default_na=False,
        dtype={name: "int64" if name in _NUMBERS else str for name in _NAMES},
    )
    table["income"] = table["income"].str.removesuffix(".")
    if complete:
        table = table[~(table == "?").any(axis=1)].reset_index(drop=True)
    return table


def adult_schema() -> Schema:
    """Return the public schema of UCI Adult's 15 columns, written from the codebook and not from the data."""
    return Schema.from_dict(tomllib.loads(files("nadpvi.datasets").joinpath("adult.toml").read_text("utf-8")))


def _content(part: str) -> bytes:
    """Return the original file's bytes, or raise if they are not the ones that UCI distributes."""
    name, digest = _FILES[part]
    try:
        content = gzip.decompress(files("nadpvi.datasets").joinpath(name).read_bytes())
    except (OSError, EOFError, zlib.error):
        content = b""
    if hashlib.sha256(content).hexdigest() != digest:
        raise FileError(f"the packaged file {name} is absent or damaged; reinstall nadpvi")
    return content
