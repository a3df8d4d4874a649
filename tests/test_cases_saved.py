"""Part G of the case list: what is saved, with which versions, and under which names."""

import dataclasses
import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import nadpvi as na
from nadpvi.containers import storage

RECORDS = 300


def make_table():
    rng = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "age": rng.uniform(0, 100, RECORDS),
            "sex": rng.choice(["f", "m"], RECORDS),
            "y": rng.choice(["no", "yes"], RECORDS),
        }
    )


COLUMNS = {
    "age": {"kind": "real", "lower": 0, "upper": 100},
    "sex": {"kind": "categorical", "levels": ["f", "m"]},
    "y": {"kind": "binary", "levels": ["no", "yes"]},
}
SCHEMA = na.Schema.from_dict({"columns": COLUMNS})
MODEL = na.models.LogisticRegression(outcome="y")
BUDGET = na.PrivacyBudget(epsilon=2.0, delta=1e-6, neighbouring_relation="replace_one")
CONFIG = na.DPVIConfig(num_steps=40, sampling_rate=0.2)


def make_release(privacy=BUDGET, config=CONFIG, **extra):
    return na.release(MODEL, make_table(), schema=SCHEMA, privacy=privacy, config=config, **extra)


@pytest.fixture(scope="module")
def made():
    return make_release(insecure_seed=1)


@pytest.fixture(scope="module")
def posterior(made):
    with pytest.warns(na.InferenceWarning):  # 40 steps are a short window
        return na.infer(made, method="exact", draws=100, chains=2, seed=2)


class TestVersions:
    """G1: the core needs no ArviZ, and says so where something is missing."""

    ABSENT = """
import sys, warnings
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
MISSING = set(sys.argv[1].split(","))
sys.meta_path.insert(0, Absent())
import numpy as np
import nadpvi as na
rng = np.random.default_rng(0)
phi = rng.normal(size=(100, 2))
release = na.Release.from_arrays(
    phi=phi, noisy_gradient=50 * phi + 10 * rng.normal(size=(100, 2)), noise_multiplier=10.0, clip_norm=1.0,
    sampling_rate=0.5,
)
"""

    def run(self, missing, code, folder):
        return subprocess.run(
            [sys.executable, "-c", self.ABSENT + code, missing],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )

    def test_import_brings_in_neither_arviz_nor_matplotlib(self, tmp_path):
        code = "print({'arviz', 'arviz_base', 'matplotlib', 'stanli'} & set(sys.modules))"
        done = self.run("nothing", code, tmp_path)
        assert (done.stdout, done.stderr) == ("set()\n", "")

    @pytest.mark.parametrize("method", ["exact", "laplace", "nuts"])
    def test_every_fit_works_without_arviz(self, tmp_path, method):
        code = f"""
release.save("r.nc")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    made = na.infer(na.Release.load("r.nc"), method={method!r}, draws=50, chains=2, warmup=100, seed=1)
    made.save("p.nc")
    table = na.Posterior.load("p.nc").summary()
print(bool(np.isfinite(table[["mean", "sd"]]).all().all()), bool(table["r_hat"].isna().all()))
print(sum("ArviZ is not installed" in str(item.message) for item in caught))
try:
    made.to_arviz()
except ImportError as error:
    print(error.name or error)
"""
        done = self.run("arviz,arviz_base,arviz_stats,arviz_plots", code, tmp_path)
        assert done.returncode == 0, done.stderr
        # One note of the table, and one more of the chains where there are any.
        notes = 2 if method == "nuts" else 1
        assert done.stdout.splitlines()[:2] == ["True True", str(notes)]

    def test_a_missing_netcdf_library_is_reported_before_the_fit(self, tmp_path):
        code = """
class Untouched:
    def __getattr__(self, name):
        raise SystemExit("the table was opened")
schema = na.Schema.from_dict({"columns": {"y": {"kind": "binary", "levels": ["0", "1"]}}})
model = na.models.BernoulliBeta(outcome="y")
for act in (
    lambda: na.release(model, Untouched(), schema=schema, privacy=na.PrivacyBudget(epsilon=1, delta=1e-5)),
    lambda: na.Release.load("r.nc"),
    lambda: release.save("s.nc"),
):
    try:
        act()
    except na.FileError as error:
        print(error)
"""
        (tmp_path / "r.nc").write_bytes(b"whatever is in it")
        for missing in ("h5netcdf", "h5py"):
            done = self.run(missing, code, tmp_path)
            assert done.returncode == 0, done.stderr
            line = (
                f"netCDF files cannot be read or written: No module named {missing!r}; pip install --upgrade"
            )
            assert [text.startswith(line) for text in done.stdout.splitlines()] == [True] * 3, done.stdout
        assert [path.name for path in tmp_path.iterdir()] == ["r.nc"]

    @pytest.mark.arviz
    @pytest.mark.parametrize("probability", [0.89])
    def test_interval_kind_and_width_are_in_the_output(self, posterior, tmp_path, probability):
        """Whatever this ArviZ's own defaults are (0.94 HDI, 0.89 ETI)."""
        path = posterior.save(tmp_path / "p.nc")
        command = [sys.executable, "-m", "nadpvi", "summary", str(path), "--probability", str(probability)]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert f"{100 * probability:g} % equal-tailed interval" in " ".join(shown.split())
        printed = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout
        result = json.loads(printed)
        assert result["interval"] == {"kind": "equal-tailed", "probability": probability}
        low = f"{100 * (1 - probability) / 2:g}%"
        assert low in result["parameters"][0]
        found = {row["parameter"]: row[low] for row in result["parameters"]}
        draws = posterior.groups["posterior"]["coefficients"].to_numpy().reshape(200, -1)
        expected = np.quantile(draws, (1 - probability) / 2, axis=0)
        np.testing.assert_allclose(
            [found[name] for name in ("Intercept", "age", "sex[f]", "sex[m]")], expected
        )


class TestAttributes:
    """G2: everything that is no array survives the file; what cannot be saved leaves nothing behind."""

    @pytest.mark.parametrize("kind", ["private", "simulation", "no noise", "no guarantee"])
    def test_budget_and_settings_survive(self, kind, tmp_path):
        if kind == "no guarantee":
            rng = np.random.default_rng(0)
            made = na.Release.from_arrays(
                phi=rng.normal(size=(20, 1)),
                noisy_gradient=rng.normal(size=(20, 1)),
                noise_multiplier=0.5,
                clip_norm=1.5,
                sampling_rate=1,
            )
        elif kind == "no noise":
            quiet = dataclasses.replace(CONFIG, learning_rate=1e-3)
            made = make_release(privacy=na.NonPrivate(), config=quiet, insecure_seed=1)
        else:
            made = make_release(insecure_seed=1 if kind == "simulation" else None)
        back = na.Release.load(made.save(tmp_path / "r.nc"))
        for name in ("noise_multiplier", "clip_norm", "sampling_rate", "num_steps", "versions", "is_private"):
            assert getattr(back, name) == getattr(made, name), name
        assert (back.guarantee, back.config, back.description) == (
            made.guarantee,
            made.config,
            made.description,
        )
        assert back.is_private == (kind == "private")
        if kind == "no guarantee":
            assert back.guarantee is None
        else:
            assert back.guarantee.neighbouring_relation == (
                "replace_one" if kind != "no noise" else "add_or_remove_one"
            )
            assert (back.guarantee.epsilon == np.inf) == (kind == "no noise")
        header = json.loads(xr.load_dataset(tmp_path / "r.nc", engine="h5netcdf").attrs[storage.HEADER])
        assert "Infinity" not in json.dumps(header)

    def test_a_posterior_keeps_its_release_s_budget_and_settings(self, posterior, made, tmp_path):
        back = na.Posterior.load(posterior.save(tmp_path / "p.nc"))
        assert back.guarantee == made.guarantee
        assert back.settings == posterior.settings
        assert back.settings["subsampling_noise"] is True
        assert back.settings["release_versions"] == made.versions
        # None, true and nested settings come back as themselves.
        odd = na.Posterior(
            groups=posterior.groups, settings={"a": None, "b": True, "c": {"d": [1, [2.5, "x"]]}}
        )
        assert na.Posterior.load(odd.save(tmp_path / "odd.nc")).settings == odd.settings
        assert na.Posterior.load(tmp_path / "odd.nc").guarantee is None

    def test_long_and_foreign_texts_survive(self, posterior, tmp_path):
        """3,000 characters, quotes and line ends among them, as a label, a setting and a coordinate."""
        odd = '"quoted" größe\n\t{x: null} \\ ' + "x" * 3000
        rng = np.random.default_rng(0)
        made = na.Release.from_arrays(
            phi=rng.normal(size=(20, 2)),
            noisy_gradient=rng.normal(size=(20, 2)),
            noise_multiplier=0.5,
            clip_norm=1.5,
            sampling_rate=1,
            phi_labels=("Intercept", odd),
        )
        assert na.Release.load(made.save(tmp_path / "r.nc")).phi_labels == ("Intercept", odd)
        draws = xr.Dataset({"a": (("chain", "draw", "k"), np.zeros((1, 2, 1)))}, coords={"k": [odd]})
        fitted = na.Posterior(groups={"posterior": draws}, settings={"formula": odd})
        back = na.Posterior.load(fitted.save(tmp_path / "p.nc"))
        assert back.settings == {"formula": odd}
        assert list(back.groups["posterior"]["k"].to_numpy()) == [odd]

    @pytest.mark.parametrize("what", ["release", "posterior"])
    def test_a_failed_save_leaves_no_lock_and_no_half_file(
        self, what, made, posterior, tmp_path, monkeypatch
    ):
        """Whichever part fails, the next save under the same name works, and an old file stays whole."""
        container = made if what == "release" else posterior
        path = tmp_path / "out.nc"

        def fail(*arguments, **options):
            raise OSError(28, "No space left on device")

        def unwritable(*arguments, **options):
            raise TypeError("Invalid value for attr 'x'")

        for target, error in (("os.fsync", fail), ("os.link", fail), ("os.replace", fail)):
            with monkeypatch.context() as patch:
                patch.setattr(target, error)
                if target == "os.replace":
                    before = container.save(path).read_bytes()
                with pytest.raises(na.FileError, match="No space left"):
                    container.save(path, overwrite=target == "os.replace")
            assert [item.name for item in tmp_path.iterdir()] == (["out.nc"] if path.exists() else [])
        assert path.read_bytes() == before
        # The writer itself fails: no file was begun.
        with monkeypatch.context() as patch:
            patch.setattr(xr.Dataset if what == "release" else xr.DataTree, "to_netcdf", unwritable)
            with pytest.raises(TypeError, match="Invalid value"):
                container.save(path, overwrite=True)
        assert path.read_bytes() == before
        container.save(path, overwrite=True)
        assert [item.name for item in tmp_path.iterdir()] == ["out.nc"]

    def test_an_attribute_that_no_file_can_hold(self, posterior, tmp_path):
        """HDF5 leaves its file open after this; here nothing is opened, and the next save works."""
        with pytest.raises(na.ArgumentError, match="settings must be JSON types"):
            na.Posterior(groups=posterior.groups, settings={"a": object()}).save(tmp_path / "p.nc")
        assert list(tmp_path.iterdir()) == []
        posterior.save(tmp_path / "p.nc")
        assert na.Posterior.load(tmp_path / "p.nc").settings == posterior.settings

    def test_a_posterior_meets_a_full_disk(self, tmp_path, posterior):
        """A real limit in a real process, as `ulimit` sets it."""
        path = posterior.save(tmp_path / "p.nc")
        code = (
            "import nadpvi as na\n"
            "p = na.Posterior.load('p.nc')\n"
            "try: p.save('q.nc')\n"
            "except na.FileError as error: print(error)"
        )
        command = f"ulimit -f 4; trap '' XFSZ; exec {sys.executable} -B -c \"$CODE\""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**os.environ, "CODE": code},
            check=False,
        )
        assert done.stdout.startswith("cannot write q.nc: File too large"), done.stderr
        assert [item.name for item in tmp_path.iterdir()] == [path.name]


class TestNames:
    """G3: chains, draws and coefficients stay apart, and names are unique."""

    def test_a_two_category_model_keeps_its_axis(self, posterior):
        draws = posterior.groups["posterior"]["coefficients"]
        assert draws.dims == ("chain", "draw", "coefficient")
        assert draws.shape == (2, 100, 4)
        assert list(draws["coefficient"].to_numpy()) == ["Intercept", "age", "sex[f]", "sex[m]"]

    @pytest.mark.filterwarnings("ignore::nadpvi.InferenceWarning")
    @pytest.mark.parametrize(
        ("model", "name", "dims", "shape"),
        [
            (na.models.CategoricalDirichlet(outcome="sex"), "probabilities", ("sex",), (2,)),
            (na.models.BernoulliBeta(outcome="y"), "probability", (), ()),
            (
                na.models.LogisticRegression(outcome="y", predictors=()),
                "coefficients",
                ("coefficient",),
                (1,),
            ),
        ],
        ids=["two categories", "one probability", "intercept only"],
    )
    def test_the_smallest_models(self, model, name, dims, shape, tmp_path):
        made = na.release(model, make_table(), schema=SCHEMA, privacy=BUDGET, config=CONFIG, insecure_seed=1)
        fitted = na.infer(made, method="exact", draws=7, chains=1, seed=1)
        back = na.Posterior.load(fitted.save(tmp_path / "p.nc"))
        variable = back.groups["posterior"][name]
        assert variable.shape == (1, 7, *shape)
        assert variable.dims[:2] == ("chain", "draw")
        assert len(back.summary()) == max(1, int(np.prod(shape)))
        assert back.groups["posterior"]["phi_star"].dims == ("chain", "draw", "phi")

    @pytest.mark.parametrize(
        "columns",
        [
            COLUMNS | {"sex[f]": {"kind": "real", "lower": 0, "upper": 1}},
            COLUMNS | {"Intercept": {"kind": "real", "lower": 0, "upper": 1}},
        ],
        ids=["level and column", "intercept"],
    )
    def test_two_terms_with_one_label_are_refused_before_the_table(self, columns):
        class Untouched:
            def __getattr__(self, name):
                raise AssertionError("the table was opened")

        with pytest.raises((na.SchemaError, na.ArgumentError)) as error:
            na.release(
                MODEL,
                Untouched(),
                schema=na.Schema.from_dict({"columns": columns}),
                privacy=BUDGET,
                config=CONFIG,
                insecure_seed=1,
            )
        assert "\n" not in str(error.value)
        label = "sex[f]" if "sex[f]" in columns else "Intercept"
        assert label in str(error.value)

    def test_columns_called_chain_and_draw(self, tmp_path):
        columns = {
            "chain": {"kind": "real", "lower": 0, "upper": 1},
            "draw": {"kind": "categorical", "levels": ["a/b", "C(x)"]},
            "phi": {"kind": "binary", "levels": ["no", "yes"]},
        }
        rng = np.random.default_rng(1)
        table = pd.DataFrame(
            {
                "chain": rng.random(200),
                "draw": rng.choice(["a/b", "C(x)"], 200),
                "phi": rng.choice(["no", "yes"], 200),
            }
        )
        made = na.release(
            na.models.LogisticRegression(outcome="phi"),
            table,
            schema=na.Schema.from_dict({"columns": columns}),
            privacy=BUDGET,
            config=CONFIG,
            insecure_seed=1,
        )
        with pytest.warns(na.InferenceWarning):  # 40 steps are a short window
            fitted = na.infer(made, method="exact", draws=5, chains=2, seed=1)
        back = na.Posterior.load(fitted.save(tmp_path / "p.nc"))
        assert list(back.summary().index) == ["Intercept", "chain", "draw[a/b]", "draw[C(x)]"]
        assert back.groups["posterior"]["coefficients"].shape == (2, 5, 4)

    @pytest.mark.arviz
    @pytest.mark.parametrize("method", ["exact", "nuts"])
    def test_one_chain_of_three_draws(self, made, method, tmp_path):
        with pytest.warns(na.InferenceWarning) as caught:
            fitted = na.infer(made, method=method, draws=3, chains=1, warmup=50, seed=1)
        notes = [str(item.message) for item in caught if "chain(s)" in str(item.message)]
        assert len(notes) == (1 if method == "nuts" else 0)
        back = na.Posterior.load(fitted.save(tmp_path / "p.nc"))
        assert back.groups["posterior"]["coefficients"].shape == (1, 3, 4)
        table = back.summary()
        assert list(table.index) == ["Intercept", "age", "sex[f]", "sex[m]"]
        assert np.isfinite(table[["mean", "sd", "5%", "95%"]]).all().all()
        assert table["r_hat"].isna().all()
        assert back.to_arviz()["posterior"]["coefficients"].shape == (1, 3, 4)

    @pytest.mark.arviz
    def test_thinned_draws(self, posterior, tmp_path):
        groups = {
            name: group.isel(draw=slice(None, None, 10)) if "draw" in group.dims else group
            for name, group in posterior.groups.items()
        }
        thinned = na.Posterior(
            groups=groups,
            settings=posterior.settings,
            guarantee=posterior.guarantee,
            description=posterior.description,
        )
        back = na.Posterior.load(thinned.save(tmp_path / "p.nc"))
        assert back.groups["posterior"]["coefficients"].shape == (2, 10, 4)
        np.testing.assert_array_equal(back.groups["posterior"]["draw"], np.arange(0, 100, 10))
        np.testing.assert_allclose(
            back.summary()["mean"],
            posterior.groups["posterior"]["coefficients"][:, ::10].mean(("chain", "draw")),
        )

    def test_draws_without_chains_are_refused(self):
        """A (400, 3) array would elsewhere become 400 chains of 3 draws."""
        bare = xr.Dataset({"b": (("draw", "coefficient"), np.zeros((400, 3)))})
        with pytest.raises(na.ArgumentError, match=r"b must have dims \(chain, draw"):
            na.Posterior(groups={"posterior": bare})


@pytest.mark.parametrize("is_there", [False, True])
def test_a_view_of_a_file_in_memory_is_released_whether_or_not_it_was_written(made, tmp_path, is_there):
    """Python 3.13 says "Exception ignored" where a buffer and its view are collected together."""
    path = tmp_path / "release.nc"
    if is_there:
        path.write_bytes(b"mine")
    content = storage.to_netcdf(made.to_dataset())
    whole = bytes(content)
    if is_there:
        with pytest.raises(na.FileError, match="exists"):
            storage.write_bytes(content, path)
    else:
        storage.write_bytes(content, path)
    assert path.read_bytes() == (b"mine" if is_there else whole)
    if isinstance(content, memoryview):  # older xarrays return bytes
        with pytest.raises(ValueError, match="released"):
            len(content)
