"""UCI Adult as packaged: the genuine files, and a schema that fits them without having seen them."""

import gzip
import hashlib
import math
from importlib.resources import files

import numpy as np
import pytest

from nadpvi.datasets import ADULT_OUTCOME, ADULT_PREDICTORS, adult, adult_schema, load_adult
from nadpvi.encoding import encode_features, make_design
from nadpvi.errors import ArgumentError, FileError
from nadpvi.private.records import make_records

# From UCI's description and files: records, complete ones, positive ones among the complete.
COUNTS = {"train": (32_561, 30_162, 7_508), "test": (16_281, 15_060, 3_700)}
POSITIVE = {"train": 7_841, "test": 3_846}
CHECKSUMS = {
    "adult.data.gz": (3_974_305, "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
    "adult.test.gz": (2_003_153, "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
}


@pytest.mark.parametrize("name", CHECKSUMS)
def test_packaged_files_are_the_genuine_ones(name: str):
    packed = files("nadpvi.datasets").joinpath(name).read_bytes()
    content = gzip.decompress(packed)
    assert len(packed) < 2 * 1024**2
    assert (len(content), hashlib.sha256(content).hexdigest()) == CHECKSUMS[name]


def test_attribution_comes_with_the_data():
    text = files("nadpvi.datasets").joinpath("LICENSE-adult.md").read_text("utf-8")
    for part in ("Becker", "Kohavi", "10.24432/C5XW20", "licenses/by/4.0", "unchanged, compressed"):
        assert part in text


@pytest.mark.parametrize("part", COUNTS)
def test_counts(part: str):
    everyone, complete = load_adult(part, complete=False), load_adult(part)
    assert (len(everyone), len(complete), int((complete["income"] == ">50K").sum())) == COUNTS[part]
    assert int((everyone["income"] == ">50K").sum()) == POSITIVE[part]
    assert set(everyone["income"]) == {"<=50K", ">50K"}
    assert list(complete.columns) == list(adult_schema().names)
    assert complete["hours-per-week"].dtype == np.int64
    assert not (complete == "?").any(axis=None)
    assert int((everyone["workclass"] == "?").sum()) == {"train": 1_836, "test": 963}[part]


@pytest.mark.parametrize("part", COUNTS)
def test_schema_fits_every_column(part: str):
    """Encoding all fifteen columns refuses unlisted levels, so the codebook's lists must be complete."""
    design = make_design(adult_schema(), outcome=ADULT_OUTCOME)
    encoded = encode_features(design, load_adult(part, complete=False))
    assert int(encoded.is_complete.sum()) == COUNTS[part][1]


def test_design_of_the_paper():
    design = make_design(adult_schema(), outcome=ADULT_OUTCOME, predictors=ADULT_PREDICTORS)
    # 1 constant, 5 numbers, 1 binary, and 8 + 16 + 7 + 14 + 5 levels.
    assert design.num_features == 57
    assert design.feature_norm_bound == pytest.approx(math.sqrt(12))
    records = make_records(load_adult("train"), design)
    assert records.x.shape == (30_162, 57)
    assert records.y.sum() == 7_508
    norms = np.linalg.norm(records.x, axis=1)
    assert norms.max() <= design.feature_norm_bound
    # One level of each of the five categorical predictors, and the constant.
    assert norms.min() >= math.sqrt(6)


def test_missing_cells_only_matter_in_used_columns():
    table = load_adult("test", complete=False)
    design = make_design(adult_schema(), outcome=ADULT_OUTCOME, predictors=ADULT_PREDICTORS)
    used = (table[["workclass", "occupation"]] != "?").all(axis=1)
    assert encode_features(design, table).is_complete.tolist() == used.tolist()
    assert used.sum() > COUNTS["test"][1]


def test_unknown_part_is_refused():
    with pytest.raises(ArgumentError, match='"train" or "test"'):
        load_adult("validation")


@pytest.mark.parametrize("content", [b"", b"not gzip", gzip.compress(b"39, State-gov\n", mtime=0), None])
def test_damaged_file_is_refused(content: bytes | None, monkeypatch: pytest.MonkeyPatch, tmp_path):
    if content is not None:
        (tmp_path / "adult.data.gz").write_bytes(content)
    monkeypatch.setattr(adult, "files", lambda package: tmp_path)
    with pytest.raises(FileError, match=r"adult\.data\.gz is absent or damaged"):
        load_adult("train")
