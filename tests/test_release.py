"""The container that crosses the wall: shape, file, and what is not in it."""

import json
import os
import subprocess
import sys

import h5netcdf
import numpy as np
import pytest
import xarray as xr

import nadpvi as na
from nadpvi.containers.checksum import with_checksum
from nadpvi.containers.storage import HEADER

MODEL = na.models.LogisticRegression(outcome="y")
BUDGET = na.PrivacyBudget(epsilon=1.0, delta=1e-5)
CONFIG = na.DPVIConfig(num_steps=30, sampling_rate=0.2)


@pytest.fixture
def made(table, schema):
    return na.release(MODEL, table, schema=schema, privacy=BUDGET, config=CONFIG)


def test_shapes_labels_and_guarantee(made):
    assert made.phi.shape == made.noisy_gradient.shape == (30, 12)
    assert made.phi_labels[:2] == ("mu[Intercept]", "mu[age]")
    assert made.phi_labels[6] == "u[Intercept]"
    assert made.is_private
    assert made.guarantee.epsilon <= 1.0
    assert made.guarantee.noise_multiplier == made.noise_multiplier
    assert made.guarantee.num_steps == 30
    assert made.clip_norm == pytest.approx(2.0)  # intercept, age, gain, job: sqrt(4)


def test_iterates_follow_the_update_rule(made):
    np.testing.assert_allclose(
        made.phi[1:], made.phi[:-1] - made.learning_rate * made.noisy_gradient[:-1], rtol=1e-14
    )
    np.testing.assert_allclose(
        made.final_phi, made.phi[-1] - made.learning_rate * made.noisy_gradient[-1], rtol=1e-14
    )


def test_round_trip_through_a_file(made, tmp_path):
    path = made.save(tmp_path / "release.nc")
    back = na.Release.load(path)
    for name in ("phi", "noisy_gradient", "preconditioner", "learning_rate", "model_prior_sd"):
        np.testing.assert_array_equal(getattr(back, name), getattr(made, name))
    assert back.guarantee == made.guarantee
    assert back.description == made.description
    assert back.config == made.config
    assert back.phi_labels == made.phi_labels
    assert back.versions == made.versions
    assert (back.noise_multiplier, back.clip_norm) == (made.noise_multiplier, made.clip_norm)


def test_header_states_the_public_facts(made, tmp_path):
    path = made.save(tmp_path / "release.nc")
    header = json.loads(xr.load_dataset(path, engine="h5netcdf").attrs[HEADER])
    assert header["guarantee"]["neighbouring_relation"] == "add_or_remove_one"
    assert header["guarantee"]["unit"] == "one record"
    assert header["guarantee"]["sampler"] == "poisson"
    assert header["config"]["num_steps"] == 30
    assert header["description"]["model"]["outcome"] == "y"
    assert header["versions"]["nadpvi"]


def test_nothing_private_is_in_the_file(schema, table, tmp_path):
    # A planted value, the number of rows and the seed: none of them can be read off the file.
    table = table.copy()
    table.loc[3, "age"] = 77.123456789
    seed = 987654321987
    made = na.release(MODEL, table, schema=schema, privacy=BUDGET, config=CONFIG, insecure_seed=seed)
    path = made.save(tmp_path / "release.nc")
    raw = path.read_bytes()
    encoded = 77.123456789 / 100
    for secret in (77.123456789, encoded, float(len(table))):
        assert np.float64(secret).tobytes() not in raw
    for secret in (b"77.123456", b"0.77123456", str(seed).encode(), b'"seed"'):
        assert secret not in raw
    assert json.loads(xr.load_dataset(path, engine="h5netcdf").attrs[HEADER])["config"]["num_records"] is None
    for whole in (200, seed):
        for kind in (np.int32, np.int64):
            if whole <= np.iinfo(kind).max:
                with h5netcdf.File(path) as file:
                    for variable in file.variables.values():
                        assert (
                            not (np.asarray(variable[...]) == whole).any()
                            if variable.dtype.kind in "if"
                            else True
                        )


def test_seeded_release_is_reproducible_and_stamped(schema, table):
    first = na.release(MODEL, table, schema=schema, privacy=BUDGET, config=CONFIG, insecure_seed=4)
    second = na.release(MODEL, table, schema=schema, privacy=BUDGET, config=CONFIG, insecure_seed=4)
    np.testing.assert_array_equal(first.noisy_gradient, second.noisy_gradient)
    assert not first.is_private
    assert first.guarantee.sentence().startswith("NOT PRIVATE")
    assert "NOT PRIVATE" in repr(first)


def test_real_releases_differ(made, schema, table):
    other = na.release(MODEL, table, schema=schema, privacy=BUDGET, config=CONFIG)
    assert (other.noisy_gradient != made.noisy_gradient).all()


def test_arrays_cannot_be_changed(made):
    with pytest.raises(ValueError, match="read-only"):
        made.phi[0, 0] = 1.0


def test_an_existing_file_is_kept(made, tmp_path):
    path = made.save(tmp_path / "release.nc")
    before = path.read_bytes()
    with pytest.raises(na.FileError, match=r"release\.nc exists"):
        made.save(path)
    assert path.read_bytes() == before
    made.save(path, overwrite=True)


def test_bad_places_are_refused(made, tmp_path):
    with pytest.raises(na.FileError, match="does not exist"):
        made.save(tmp_path / "missing" / "release.nc")
    with pytest.raises(na.FileError, match="not a regular file"):
        made.save(tmp_path)
    with pytest.raises(na.FileError, match="not a regular file"):
        made.save("/dev/full", overwrite=True)


def test_a_failed_write_leaves_nothing(made, tmp_path, monkeypatch):
    def fail(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fail)
        with pytest.raises(na.FileError, match="No space left"):
            made.save(tmp_path / "release.nc")
    assert list(tmp_path.iterdir()) == []
    made.save(tmp_path / "release.nc")
    assert na.Release.load(tmp_path / "release.nc").num_steps == 30


def test_a_file_limit_is_one_line_and_no_crash(tmp_path):
    """A real limit in a real process: HDF5 itself would end in a segmentation fault here."""
    code = (
        "import numpy as np, nadpvi as na\n"
        "r = na.Release.from_arrays(phi=np.random.rand(4000, 4), noisy_gradient=np.random.rand(4000, 4),"
        " noise_multiplier=0.1, clip_norm=1.0, sampling_rate=0.5)\n"
        "try: r.save('r.nc')\n"
        "except na.FileError as error: print(error)"
    )
    command = f"ulimit -f 8; trap '' XFSZ; exec {sys.executable} -c \"$CODE\""
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "CODE": code},
    )
    assert done.returncode == 0, done.stderr
    assert "cannot write r.nc: File too large" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_name_too_long_is_one_line(made, tmp_path):
    for length in (250, 300):
        name = "a" * (length - 3) + ".nc"
        if length <= 255:
            assert made.save(tmp_path / name).exists()
        else:
            with pytest.raises(na.FileError, match="File name too long"):
                made.save(tmp_path / name)


def test_a_file_made_meanwhile_is_kept(made, tmp_path, monkeypatch):
    """Two runs that write to one name: the second finds it taken, and neither trace is lost."""
    path = tmp_path / "release.nc"
    original = os.fsync

    def other_process(descriptor):
        path.write_text("the other run's release")
        original(descriptor)

    monkeypatch.setattr("os.fsync", other_process)
    with pytest.raises(na.FileError, match="another process"):
        made.save(path)
    assert path.read_text() == "the other run's release"
    assert [item.name for item in tmp_path.iterdir()] == ["release.nc"]


@pytest.mark.parametrize(
    "change",
    [
        {"noise_multiplier": True},
        {"noise_multiplier": "1.0"},
        {"noise_multiplier": 1.0},
        {"clip_norm": None},
        {"versions": None},
        {"versions": [1]},
        {"guarantee": 3},
        {"guarantee": {"is_private": True}},
        {"description": {"model": {"kind": "logistic_regression"}}},
        {"description": []},
        {"config": {"num_steps": "x"}},
        {"config": {"guide": 7}},
    ],
)
def test_forged_headers_are_one_line(made, tmp_path, change):
    data = made.to_dataset()
    header = json.loads(data.attrs[HEADER])
    for key in (*change, None):
        forged = {name: value for name, value in header.items() if name != key} if key else header | change
        data.attrs[HEADER] = json.dumps(forged)
        # With a checksum, so that what is behind it is reached.
        (tmp_path / "forged.nc").write_bytes(with_checksum(data).to_netcdf(engine="h5netcdf"))
        if key in ("guarantee", "description", "config"):
            continue  # may be absent
        with pytest.raises(na.FileError, match=r"forged\.nc is damaged or edited: ") as error:
            na.Release.load(tmp_path / "forged.nc")
        assert "\n" not in str(error.value)
        assert "checksum" not in str(error.value)


@pytest.mark.parametrize("text", ["", "[]", "{", '"x"', "[" * 100_000])
def test_headers_that_are_no_object(made, tmp_path, text):
    data = made.to_dataset()
    data.attrs[HEADER] = text
    (tmp_path / "forged.nc").write_bytes(data.to_netcdf(engine="h5netcdf"))
    with pytest.raises(na.FileError, match="no nadpvi header"):
        na.Release.load(tmp_path / "forged.nc")


def test_truncated_files_are_one_line(made, tmp_path):
    whole = made.save(tmp_path / "release.nc").read_bytes()
    for size in (0, 1, 100, 1000, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.nc").write_bytes(whole[:size])
        with pytest.raises(na.FileError, match=r"cut\.nc is"):
            na.Release.load(tmp_path / "cut.nc")


def test_foreign_files_are_one_clear_line(tmp_path):
    with pytest.raises(na.FileError, match="No such file"):
        na.Release.load(tmp_path / "nothing.nc")
    (tmp_path / "text.nc").write_text("hello")
    with pytest.raises(na.FileError, match="not a file that nadpvi wrote"):
        na.Release.load(tmp_path / "text.nc")
    xr.Dataset({"a": 1}).to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    with pytest.raises(na.FileError, match="no nadpvi header"):
        na.Release.load(tmp_path / "other.nc")


def test_a_newer_format_is_refused(made, tmp_path):
    data = made.to_dataset()
    header = json.loads(data.attrs[HEADER]) | {"format_version": 99}
    data.attrs[HEADER] = json.dumps(header)
    data.to_netcdf(tmp_path / "new.nc", engine="h5netcdf")
    with pytest.raises(na.FileError, match="newer nadpvi"):
        na.Release.load(tmp_path / "new.nc")


def test_a_file_name_with_blanks_and_accents(made, tmp_path):
    folder = tmp_path / "results ö (v2)+é"
    folder.mkdir()
    assert na.Release.load(made.save(folder / "out 1.nc")).dimension == 12


class TestFromArrays:
    def arguments(self, **changes):
        rng = np.random.default_rng(0)
        base = {
            "phi": rng.normal(size=(9, 2)),
            "noisy_gradient": rng.normal(size=(9, 2)),
            "noise_multiplier": 2.0,
            "clip_norm": 1.0,
            "sampling_rate": 0.5,
        }
        return base | changes

    def test_defaults_and_round_trip(self, tmp_path):
        made = na.Release.from_arrays(**self.arguments())
        assert made.phi_labels == ("phi[0]", "phi[1]")
        np.testing.assert_array_equal(made.noise_std, [2.0, 2.0])
        assert not made.is_private
        back = na.Release.load(made.save(tmp_path / "r.nc"))
        assert back.guarantee is None
        assert back.description is None

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"phi": np.zeros(3)}, "shape"),
            ({"noisy_gradient": np.zeros((9, 3))}, "shape"),
            ({"noise_multiplier": -1.0}, "noise_multiplier"),
            ({"noise_multiplier": float("nan")}, "noise_multiplier"),
            ({"clip_norm": 0.0}, "clip_norm"),
            ({"sampling_rate": 1.5}, "sampling_rate"),
            ({"preconditioner": 0.0}, "preconditioner"),
            ({"preconditioner": np.ones(3)}, "preconditioner"),
            ({"phi_labels": ("a", "a")}, "phi_labels"),
            ({"phi": np.full((9, 2), np.nan)}, "step 0"),
        ],
    )
    def test_refusals(self, changes, message):
        with pytest.raises(na.ArgumentError, match=message):
            na.Release.from_arrays(**self.arguments(**changes))

    def test_a_misspelt_setting_fails(self):
        with pytest.raises(TypeError, match="clipnorm"):
            na.Release.from_arrays(**self.arguments(), clipnorm=1.0)
