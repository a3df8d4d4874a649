"""Releases for CmdStan and R, and their draws back: exact data, one clear line on anything foreign."""

import csv
import dataclasses
import json
import os
import re
import shutil
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest
import stanli
from test_cli import run

import nadpvi as na
from nadpvi.diagnostics.burn_in import choose_burn_in
from nadpvi.engines.csv_files import read_chains
from nadpvi.engines.programs import inlined_program, program_path
from nadpvi.errors import ArgumentError, FileError, InferenceWarning
from nadpvi.gradient_model import make_gradient_model
from nadpvi.inference.stan_data import make_stan_data
from nadpvi.models import Parameter
from nadpvi.models.parameters import constrain, unconstrained_labels

DATA = Path(__file__).parent / "data" / "cmdstan"
CHAINS = [DATA / "output_1.csv", DATA / "output_2.csv"]
PROPHET = Path(os.environ.get("NADPVI_PROPHET_DIR", "/nonexistent")) / "prophet" / "stan_model"


@pytest.fixture(scope="module")
def release():
    return na.Release.load(DATA / "release.nc")


@pytest.fixture
def export(release, tmp_path):
    """Export the release, or another, and return the files."""

    def make(made=release, **settings):
        return na.export_stan(made, data=tmp_path / "data.json", folder=tmp_path / "program", **settings)

    return make


def quietly(function, *arguments, **settings):
    """Call a function whose few draws give rise to warnings that are not the matter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InferenceWarning)
        return function(*arguments, **settings)


def from_cmdstan(files, release, **settings):
    return quietly(na.Posterior.from_cmdstan, files, release=release, **settings)


# --- what is written ----------------------------------------------------------------------------------


def test_data_keep_every_digit_and_kind(export, release):
    files = export()
    written = json.loads(files.data.read_text(encoding="utf-8"))
    description = release.description
    model = make_gradient_model(release, subsampling_noise=True)
    expected = make_stan_data(model, guide=description.guide, parameters=description.parameters)
    assert list(written) == list(expected)
    for name, value in expected.items():
        assert written[name] == np.asarray(value).tolist(), name  # equal floats: every bit survived
    integers = {name for name, value in written.items() if type(value) is int}
    assert integers == {
        *("D", "num_steps", "use_tau", "K", "scale_is_sd", "num_noise", "num_weights", "num_blocks"),
    }
    assert type(written["sampling_rate"]) is float
    assert (written["K"], written["scale_is_sd"]) == (2, 1)
    assert "NaN" not in files.data.read_text(encoding="utf-8")


def test_one_coordinate_stays_an_array(tmp_path):
    rng = np.random.default_rng(0)
    made = na.Release.from_arrays(
        phi=rng.normal(size=(50, 1)), noisy_gradient=rng.normal(0, 9, (50, 1)), noise_multiplier=2.0,
        clip_norm=2.0, sampling_rate=0.5,
    )  # fmt: skip
    files = na.export_stan(made, data=tmp_path / "d.json", folder=tmp_path / "p", subsampling_noise=False)
    written = json.loads(files.data.read_text())
    assert len(written["phi_bar"]) == 1
    assert written["tau_prior_scale"] == written["support"] == []
    assert (written["K"], written["use_tau"]) == (0, 0)
    fit = stanli.Model(str(files.program), data=written).sample(chains=1, warmup=50, samples=5, refresh=0)
    assert fit["phi_star"].shape == (5, 1)


@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        ({"burn_in": 0.5}, {"num_steps"}),
        ({"phi_star_prior": "model"}, {"phi_star_prior_mean"}),
        ({"curvature_prior": "weak"}, {"v_prior_sd"}),
        ({"subsampling_noise": False}, {"use_tau", "tau_prior_scale"}),
    ],
)
def test_settings_reach_the_data(export, release, settings, changed):
    plain = json.loads(export().data.read_text())
    other = json.loads(export(overwrite=True, **settings).data.read_text())
    assert changed <= {name for name in plain if plain[name] != other[name]}
    tau = settings.get("subsampling_noise", True)
    model = make_gradient_model(release, **({"subsampling_noise": tau} | settings))
    assert other["v_prior_mean"] == model.v_prior_mean.tolist()


@pytest.mark.parametrize("program", ["gradient_model", "gradient_model_trace", "parameter_model"])
def test_exported_program_is_one_text_that_samples_its_data(export, program):
    files = export(program=program)
    text = files.program.read_text(encoding="utf-8")
    assert files.program.name == f"{program}.stan"
    assert "#include" not in text
    assert {path.name for path in files.program.parent.iterdir()} == {files.program.name, "labels.csv"}
    model = stanli.Model(str(files.program), data=json.loads(files.data.read_text()))
    fit = model.sample(chains=1, warmup=100, samples=20, refresh=0, seed=2)
    assert fit["phi_star"].shape == (20, 4)
    assert fit["theta"].shape == (20, 2)
    np.testing.assert_array_equal(fit["theta"], fit["model_parameters"])


def test_a_released_curvature_is_left_out_and_said_to_be(release, tmp_path):
    """A diagonal cannot hold it, and whoever draws from the program would otherwise not know."""
    arrays = {
        "phi": release.phi,
        "noisy_gradient": release.noisy_gradient,
        "noise_multiplier": release.noise_multiplier,
        "clip_norm": release.clip_norm,
        "sampling_rate": release.sampling_rate,
        "preconditioner": release.preconditioner,
        "learning_rate": release.learning_rate,
    }
    matrix = {"curvature": 50.0 * np.eye(release.phi.shape[1]), "curvature_std": 1.0}
    without = na.Release.from_arrays(**arrays)
    plain = na.export_stan(without, data=tmp_path / "a.json", folder=tmp_path / "a")
    with pytest.warns(UserWarning, match=r"curvature is left out.*method=.dense.") as caught:
        files = na.export_stan(
            na.Release.from_arrays(**arrays, **matrix), data=tmp_path / "b.json", folder=tmp_path / "b"
        )
    assert len(caught) == 1
    assert "\n" not in str(caught[0].message)
    assert files.data.read_text() == plain.data.read_text()


def test_burn_in_may_be_chosen_by_the_trace(export, release):
    from nadpvi.diagnostics.burn_in import choose_burn_in

    share = choose_burn_in(release)
    written = json.loads(export(burn_in="auto").data.read_text())
    assert written["num_steps"] == make_gradient_model(release, burn_in=share).sums.num_steps
    with pytest.raises(ArgumentError, match="burn_in must be"):
        export(burn_in="automatic", overwrite=True)


def test_labels_name_every_entry(export, release):
    rows = list(csv.DictReader(export().labels.read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 3 * 4 + 2 * 2
    labels = {row["variable"]: row["label"] for row in rows}
    assert labels["phi_star[1]"] == labels["tau[1]"] == release.phi_labels[0]
    assert labels["theta[2]"] == labels["model_parameters[2]"] == "age"


def test_includes_are_put_in_their_places(tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "a.stan").write_text("  one\n#include parts/b.stan\n")
    (tmp_path / "parts" / "b.stan").write_text("  two\n")
    (tmp_path / "m.stan").write_text('x\n#include parts/a.stan\ny\n  #include "parts/b.stan" // again\n')
    assert inlined_program(tmp_path / "m.stan") == "x\n  one\n  two\ny\n  two\n"
    (tmp_path / "parts" / "b.stan").write_text("#include parts/a.stan\n")
    with pytest.raises(FileError, match=r"m\.stan includes parts/a\.stan within itself"):
        inlined_program(tmp_path / "m.stan")


BLOCKS = (
    Parameter(name="r", dims=["a", "b"], coords=[2, 2]),
    Parameter(name="s", support="positive"),
    Parameter(name="p", support="unit_interval", dims=["c"], coords=[2]),
    Parameter(name="o", support="ordered", dims=["d", "e"], coords=[2, 3]),
    Parameter(name="one", support="ordered", dims=["i"], coords=[1]),
    Parameter(name="x", support="simplex", dims=["f", "g"], coords=[2, 3]),
    Parameter(name="C", support="covariance", dims=["h"], coords=[3]),
)


@pytest.mark.parametrize(
    "guide",
    [na.MeanField(scale="variance"), na.FullRank(), na.LowRank(rank=2)],
    ids=["mean_field", "full_rank", "low_rank"],
)
def test_stan_draws_theta_as_the_guide_does_and_constrains_it(guide):
    size = len(unconstrained_labels(BLOCKS))
    dimension = guide.num_variational(size)
    rng = np.random.default_rng(3)
    made = na.Release.from_arrays(
        phi=rng.normal(0, 0.3, (40, dimension)),
        noisy_gradient=rng.normal(0, 9, (40, dimension)), noise_multiplier=2.0, clip_norm=2.0,
        sampling_rate=0.5,
    )  # fmt: skip
    data = make_stan_data(make_gradient_model(made), guide=guide, parameters=BLOCKS)
    # phi_star is held in place, so that theta is a sample of one known Gaussian
    centre = rng.normal(0, 0.5, dimension)
    data |= {"phi_star_prior_mean": centre, "phi_star_prior_sd": np.full(dimension, 1e-9)}
    plain = {name: np.asarray(value).tolist() for name, value in data.items()}
    fit = stanli.Model(str(program_path("gradient_model")), data=plain).sample(
        chains=1, warmup=50, samples=2000, seed=5, refresh=0
    )
    theta = fit["theta"]
    values = constrain(BLOCKS, theta)
    flat = np.concatenate([values[block.name].reshape(len(theta), -1) for block in BLOCKS], axis=1)
    np.testing.assert_allclose(fit["model_parameters"], flat, rtol=1e-10, atol=1e-12)
    covariance = guide.covariance(centre)
    sd = np.sqrt(np.diag(covariance))
    z = (theta - centre[:size]) / sd
    # 2,000 independent draws; the correlations are 276 at most, 5 standard errors are passed once in 6,000
    assert np.abs(z.mean(axis=0)).max() < 5 / np.sqrt(2000)
    np.testing.assert_allclose(z.T @ z / 2000, covariance / sd / sd[:, None], atol=5 * np.sqrt(2 / 2000))


# --- what is refused ----------------------------------------------------------------------------------


def test_nothing_is_overwritten_unasked(export, tmp_path):
    first = export()
    before = [path.read_bytes() for path in first]
    for missing in (first.data, first.program, first.labels):
        content = missing.read_bytes()
        missing.unlink()
        with pytest.raises(FileError, match=r"exists; .*--force"):
            export(burn_in=0.5)
        assert not missing.exists()  # nothing was written before the refusal
        missing.write_bytes(content)
    assert [path.read_bytes() for path in first] == before
    assert export(burn_in=0.5, overwrite=True) == first
    assert first.data.read_bytes() != before[0]
    assert not list(tmp_path.rglob("*.part"))


def test_data_may_lie_in_the_new_folder(release, tmp_path):
    files = na.export_stan(release, data=tmp_path / "new" / "data.json", folder=tmp_path / "new")
    assert files.data.is_file()
    with pytest.raises(ArgumentError, match="must not have the name"):
        na.export_stan(release, data=tmp_path / "b" / "labels.csv", folder=tmp_path / "b")
    with pytest.raises(FileError, match="does not exist; create it first"):
        na.export_stan(release, data=tmp_path / "d.json", folder=tmp_path / "no" / "b")
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot make the folder"):
        na.export_stan(release, data=tmp_path / "d.json", folder=tmp_path / "file" / "b")


def test_settings_that_no_program_has_are_refused(export):
    for settings, message in (
        ({"program": "gradient_model_dense"}, "program must be one of 'gradient_model', "),
        ({"burn_in": 1.0}, "burn_in must be in"),
        ({"phi_star_prior": "flat"}, "phi_star_prior must be one of"),
        ({"curvature_prior": "flat"}, "curvature_prior must be one of"),
    ):
        with pytest.raises(ArgumentError, match=message):
            export(**settings)


def test_row_by_row_programs_need_the_rows(table, schema, tmp_path):
    made = na.release(
        na.models.LogisticRegression(outcome="y", predictors=["age"]), table, schema=schema,
        privacy=na.PrivacyBudget(epsilon=2, delta=1e-5), insecure_seed=1,
        config=na.DPVIConfig(num_steps=40, keep="sums"),
    )  # fmt: skip
    assert na.export_stan(made, data=tmp_path / "a.json", folder=tmp_path / "a").data.is_file()
    for program in ("gradient_model_trace", "parameter_model"):
        with pytest.raises(ArgumentError, match=r"holds the sums .* use gradient_model"):
            na.export_stan(made, data=tmp_path / "b.json", folder=tmp_path / "b", program=program)
    assert not (tmp_path / "b").exists()


# --- the draws come back ------------------------------------------------------------------------------


def test_draws_come_back_as_infer_gives_them(release):
    back = from_cmdstan(CHAINS, release)
    ours = quietly(na.infer, release, draws=20, warmup=200, chains=2, seed=1, engine="stanli")
    assert set(back.settings) == set(ours.settings)
    assert back.settings["engine"] == "cmdstan 2.35.0"
    assert back.settings["warmup"] == 200
    assert (back.guarantee, back.description) == (ours.guarantee, ours.description)
    assert list(back.groups) == list(ours.groups)
    for name, group in ours.groups.items():
        other = back.groups[name]
        assert list(other.data_vars) == list(group.data_vars)
        for key in group.data_vars:
            same = (other[key].dims, other[key].dtype, other[key].shape)
            assert same == (group[key].dims, group[key].dtype, group[key].shape), key
        for key in group.coords:
            np.testing.assert_array_equal(other[key], group[key])
    assert list(back.summary().index) == list(ours.summary().index) == ["Intercept", "age"]


def test_numbers_are_those_of_the_files(release):
    back = from_cmdstan(CHAINS, release)
    for chain, path in enumerate(CHAINS):
        with path.open(encoding="utf-8") as lines:
            rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
        assert len(rows) == 20
        for draw, row in enumerate(rows):
            at = {"chain": chain, "draw": draw}
            for name, prefix in (("phi_star", "phi_star"), ("curvature", "curvature"), ("tau", "tau")):
                values = back.groups["posterior"][name].isel(at).to_numpy()
                assert values.tolist() == [float(row[f"{prefix}.{i}"]) for i in range(1, 5)]
            theta = back.groups["posterior"]["coefficients"].isel(at).to_numpy()
            assert theta.tolist() == [float(row["theta.1"]), float(row["theta.2"])]
            stats = back.groups["sample_stats"].isel(at)
            assert float(stats["lp"]) == float(row["lp__"])
            assert int(stats["n_steps"]) == int(row["n_leapfrog__"])
            assert bool(stats["diverging"]) == bool(int(row["divergent__"]))


def test_posterior_of_files_saves_predicts_and_warns(release, tmp_path):
    back = from_cmdstan(CHAINS, release)
    again = na.Posterior.load(back.save(tmp_path / "p.nc"))
    np.testing.assert_array_equal(again.groups["posterior"]["tau"], back.groups["posterior"]["tau"])
    assert back.num_divergences == 0
    text = CHAINS[0].read_text()
    rows = text.splitlines(keepends=True)
    first = next(i for i, row in enumerate(rows) if row.startswith("lp__")) + 5
    names, cells = rows[first - 5].split(","), rows[first].split(",")
    cells[names.index("divergent__")] = "1"
    (tmp_path / "a.csv").write_text("".join([*rows[:first], ",".join(cells), *rows[first + 1 :]]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        na.Posterior.from_cmdstan(tmp_path / "a.csv", release=release)
    assert all(issubclass(warning.category, InferenceWarning) for warning in caught)
    assert {warning.filename for warning in caught} == {__file__}
    assert any("1 of 20 NUTS transitions diverged" in str(warning.message) for warning in caught)


def test_files_without_theta_are_mixed_here(release, tmp_path):
    """As from data with K = 0: the guide is drawn from at every phi_star, by the seed."""
    rows = CHAINS[0].read_text().splitlines()
    header = next(i for i, row in enumerate(rows) if row.startswith("lp__"))
    keep = [i for i, name in enumerate(rows[header].split(",")) if not name.startswith(("theta", "model_"))]
    for i in range(header, len(rows)):
        if not rows[i].startswith("#"):
            cells = rows[i].split(",")
            rows[i] = ",".join(cells[k] for k in keep)
    (tmp_path / "a.csv").write_text("\n".join(rows) + "\n")
    runs = [from_cmdstan(tmp_path / "a.csv", release, seed=seed) for seed in (1, 1, 2)]
    values = [made.groups["posterior"]["coefficients"].to_numpy() for made in runs]
    np.testing.assert_array_equal(values[0], values[1])
    assert not np.array_equal(values[0], values[2])
    with pytest.raises(ArgumentError, match="seed must be"):
        from_cmdstan(tmp_path / "a.csv", release, seed=-1)


def test_default_digits_of_cmdstan_pass(release, tmp_path):
    """CmdStan up to 2.36 writes 6 digits unless told otherwise, later 8."""
    for figures, recorded in ((6, "-1 (Default)"), (8, "8 (Default)")):
        rows = CHAINS[0].read_text().splitlines()
        for i, row in enumerate(rows):
            if row.startswith("#   sig_figs"):
                rows[i] = f"#   sig_figs = {recorded}"
            elif not row.startswith(("#", "lp__")):
                rows[i] = ",".join(f"{float(cell):.{figures}g}" for cell in row.split(","))
        (tmp_path / "a.csv").write_text("\n".join(rows) + "\n")
        back = from_cmdstan(tmp_path / "a.csv", release)
        assert back.groups["posterior"].sizes["draw"] == 20


@pytest.mark.parametrize(
    "settings",
    [{"burn_in": 0.3}, {"phi_star_prior": "model"}, {"curvature_prior": "weak"}],
    ids=["burn_in", "phi_star_prior", "curvature_prior"],
)
def test_draws_of_other_settings_are_refused(release, settings):
    with pytest.raises(FileError, match=r"output_1\.csv is not of this release with these settings"):
        from_cmdstan(CHAINS, release, **settings)


def test_draws_of_another_release_are_refused(release, table, schema):
    made = na.release(
        na.models.LogisticRegression(outcome="y", predictors=["age"]), table, schema=schema,
        privacy=na.PrivacyBudget(epsilon=2, delta=1e-5), insecure_seed=2,
        config=na.DPVIConfig(num_steps=60),
    )  # fmt: skip
    with pytest.raises(FileError, match="is not of this release with these settings"):
        from_cmdstan(CHAINS, made)
    wider = na.release(
        na.models.LogisticRegression(outcome="y"), table, schema=schema,
        privacy=na.PrivacyBudget(epsilon=2, delta=1e-5), insecure_seed=2,
        config=na.DPVIConfig(num_steps=60),
    )  # fmt: skip
    with pytest.raises(FileError, match="is not of this release: phi_star has 4 entries, not 12"):
        from_cmdstan(CHAINS, wider)
    with pytest.raises(ArgumentError, match="release must be a Release"):
        from_cmdstan(CHAINS, DATA / "release.nc")


def damaged(kind):
    """Return the text of the first chain's file with one fault."""
    text = CHAINS[0].read_text()
    rows = text.splitlines(keepends=True)
    header = next(i for i, row in enumerate(rows) if row.startswith("lp__"))
    cells = rows[header + 8].split(",")
    with_nan = [*rows]
    with_nan[header + 8] = ",".join("nan" if i == rows[header].split(",").index("v.1") else cell
                                    for i, cell in enumerate(cells))  # fmt: skip
    return {
        "cut in a row": text[: len(text) // 2],
        "cut after a row": "".join(rows[: header + 10]),
        "without its end": "".join(rows[:-6]),
        "one draw fewer": "".join(row for i, row in enumerate(rows) if i != header + 8),
        "empty": "",
        "only settings": "".join(rows[:header]),
        "text for a number": text.replace(cells[0], "abc"),
        "not a number": "".join(with_nan),
        "no sampler columns": text.replace("divergent__", "other"),
        "another program": text.replace("z_delta", "zz"),
        "optimizer": text.replace("method = sample (Default)", "method = optimize"),
        "binary": "\x00\x01\x02" * 50,
    }[kind]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("cut in a row", "bad draw"),
        ("cut after a row", "its end is missing"),
        ("without its end", "its end is missing"),
        ("one draw fewer", "expected 20 draws, found 19"),
        ("empty", "not a whole CSV file of CmdStan"),
        ("only settings", "not a whole CSV file of CmdStan"),
        ("text for a number", "abc"),
        ("not a number", "holds a v that is not a finite number"),
        ("no sampler columns", "divergent__"),
        ("another program", "it lacks z_phi_star"),
        ("optimizer", "optimize"),
        ("binary", "not a whole CSV file of CmdStan"),
    ],
)
def test_damaged_and_foreign_files_are_one_line(release, tmp_path, kind, message):
    bad = tmp_path / "chain (2) é.csv"
    bad.write_text(damaged(kind), encoding="utf-8")
    with pytest.raises(FileError) as error:
        from_cmdstan(bad, release)
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 500
    assert "chain (2) é.csv" in text
    assert message in text
    with pytest.raises(FileError):
        from_cmdstan([CHAINS[1], bad], release)


def cells_changed(text, prefix, change):
    """Return a file's text with every number changed in the columns whose name begins with `prefix`."""
    rows = text.splitlines()
    header = next(i for i, row in enumerate(rows) if row.startswith("lp__"))
    at = [i for i, name in enumerate(rows[header].split(",")) if name.startswith(prefix)]
    for i in range(header + 1, len(rows)):
        if rows[i] and not rows[i].startswith("#"):
            cells = rows[i].split(",")
            for k in at:
                cells[k] = change(cells[k])
            rows[i] = ",".join(cells)
    return "\n".join(rows) + "\n"


def changed_run(folder, prefix, change):
    """Write both chains with some columns changed and return the files."""
    files = [folder / path.name for path in CHAINS]
    for path, file in zip(CHAINS, files, strict=True):
        file.write_text(cells_changed(path.read_text(), prefix, change))
    return files


def with_setting(name, value, folder):
    """Write the second chain with another setting in its header and return the file."""
    text, count = re.subn(rf"(#\s+{name} = )\S+", rf"\g<1>{value}", CHAINS[1].read_text())
    assert count == 1
    file = folder / f"with {name}.csv"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("prefix", "change", "message"),
    [
        ("theta", lambda cell: str(3 * float(cell)), "its theta is not spread about phi_star"),
        ("theta", lambda cell: "1.6", "its theta is not spread about phi_star"),
        ("lp__", lambda cell: "-250", "its lp__ is not the density"),
        ("lp__", lambda cell: str(float(cell) + 0.01), "its lp__ is not the density"),
        ("lp__", lambda cell: "nan", "holds a lp__ that is not a finite number"),
        ("energy__", lambda cell: "nan", "holds a energy__ that is not a finite number"),
        ("divergent__", lambda cell: "0.5", "holds a divergent__ that is neither 0 nor 1"),
        ("divergent__", lambda cell: "nan", "holds a divergent__ that is not a finite number"),
        ("treedepth__", lambda cell: "3.5", "holds a treedepth__ that is no whole number"),
        ("tau", lambda cell: "-1", "holds a tau below 0"),
        ("tau", lambda cell: str(3 * float(cell)), "its variables do not follow from each other"),
        ("z_tau", lambda cell: "0", "its variables do not follow from each other"),
        ("", lambda cell: f"{float(cell):.3g}", "is written with 3 significant digits, too few"),
    ],
)
def test_columns_that_the_run_cannot_have_written_are_refused(release, tmp_path, prefix, change, message):
    with pytest.raises(FileError, match=message) as error:
        from_cmdstan(changed_run(tmp_path, prefix, change), release)
    assert "\n" not in str(error.value)


def test_a_release_with_other_residuals_is_refused(release, monkeypatch):
    """Only lp__ knows s_gg where neither prior is made of it."""
    make = make_gradient_model

    def swollen(*arguments, **settings):
        model = make(*arguments, **settings)
        sums = dataclasses.replace(model.sums, s_gg=1.01 * model.sums.s_gg)
        return dataclasses.replace(model, sums=sums)

    monkeypatch.setattr("nadpvi.inference.from_cmdstan.make_gradient_model", swollen)
    with pytest.raises(FileError, match="its lp__ is not the density"):
        from_cmdstan(CHAINS, release)


def test_digits_are_those_of_the_numbers_whatever_the_header_says(release, tmp_path):
    """A header that claims one digit would let draws of other settings pass."""
    for claimed in ("1", "99999", "x"):
        file = with_setting("sig_figs", claimed, tmp_path)
        assert from_cmdstan(file, release).groups["posterior"].sizes["draw"] == 20
        with pytest.raises(FileError, match="is not of this release with these settings"):
            from_cmdstan(file, release, curvature_prior="weak")


def test_settings_of_the_header_that_are_no_numbers(release, tmp_path):
    with pytest.raises(FileError, match="max_depth = x, which is no number"):
        from_cmdstan(with_setting("max_depth", "x", tmp_path), release)
    with pytest.raises(FileError, match="delta = x, which is no number"):
        from_cmdstan(with_setting("delta", "x", tmp_path), release)


def test_saved_warmup_is_left_out(release, tmp_path):
    """CmdStan writes warm-up draws first, and marks in its header that it did."""
    rows = CHAINS[0].read_text().splitlines()
    header = next(i for i, row in enumerate(rows) if row.startswith("lp__"))
    first = next(i for i in range(header + 1, len(rows)) if not rows[i].startswith("#"))
    cells = rows[first].split(",")
    cells[rows[header].split(",").index("divergent__")] = "1"
    text = "\n".join([*rows[: header + 1], *[",".join(cells)] * 200, *rows[header + 1 :]]) + "\n"
    text = text.replace("save_warmup = false (Default)", "save_warmup = true")
    (tmp_path / "with warmup.csv").write_text(text)
    back, plain = (from_cmdstan(file, release) for file in (tmp_path / "with warmup.csv", CHAINS[0]))
    assert back.num_divergences == 0
    for name in ("posterior", "sample_stats"):
        assert back.groups[name].equals(plain.groups[name])


def test_the_tree_depth_of_the_run_is_the_limit(release, tmp_path):
    limit = str(int(max(read_chains(CHAINS[1:]).draws.sample_stats["tree_depth"].ravel())))
    back = from_cmdstan(with_setting("max_depth", limit, tmp_path), release)
    assert "tree_depth" in {finding.check for finding in back.findings}
    assert "tree_depth" not in {finding.check for finding in from_cmdstan(CHAINS[1], release).findings}


@pytest.mark.parametrize("files", [None, 3, [CHAINS[0], 3], b"output_1.csv", {str(CHAINS[0]): 1}])
def test_files_that_are_no_paths_are_one_line(release, files):
    with pytest.raises(ArgumentError, match="files must be the paths of CmdStan's CSV files"):
        from_cmdstan(files, release)


@pytest.mark.parametrize("seed", [-1, 2**64, True, 1.5, "a"])
def test_seeds_are_those_of_infer(release, seed):
    with pytest.raises(ArgumentError, match="seed must be a whole number from 0 to"):
        from_cmdstan(CHAINS, release, seed=seed)


def test_files_that_are_no_run_together_are_refused(release, tmp_path):
    short = tmp_path / "short.csv"
    rows = CHAINS[1].read_text().splitlines(keepends=True)
    del rows[next(i for i, row in enumerate(rows) if row.startswith("lp__")) + 8]
    short.write_text("".join(rows).replace("num_samples = 20", "num_samples = 19"))
    copied = tmp_path / "copy.csv"
    shutil.copy(CHAINS[0], copied)
    for files, message in (
        ([CHAINS[0], short], r"short\.csv and .* are not chains of one run: num_samples is 19 and 20"),
        ([CHAINS[0], CHAINS[0]], "has the same draws as"),
        ([CHAINS[0], copied], r"copy\.csv has the same draws as .*output_1\.csv"),
        ([], "no CSV files were given"),
        ([tmp_path / "none.csv"], r"none\.csv does not exist"),
        ([DATA / "release.nc"], r"release\.nc must have a name that ends in \.csv"),
        ([CHAINS[0], with_setting("delta", "0.9", tmp_path)], "not chains of one run: delta is 0.9 and 0.8"),
        ([CHAINS[0], with_setting("max_depth", "12", tmp_path)], "of one run: max_depth is 12 and 10"),
    ):
        with pytest.raises(FileError, match=message) as error:
            from_cmdstan(files, release)
        assert "\n" not in str(error.value)


@pytest.mark.skipif(
    not (PROPHET / "prophet_model.bin").is_file(),
    reason="no CmdStan 2.37 executable: set NADPVI_PROPHET_DIR to the --target folder of prophet==1.5.0",
)
@pytest.mark.parametrize("figures", [(), ("sig_figs=17",)])
def test_files_of_genuine_cmdstan_2_37_are_read_and_foreign_ones_refused(release, tmp_path, figures):
    from test_cmdstan_engine import prophet_data

    data = {name: np.asarray(value).tolist() for name, value in prophet_data().items()}
    (tmp_path / "data.json").write_text(json.dumps(data))
    files = [tmp_path / f"output_{chain}.csv" for chain in (1, 2)]
    for chain, path in enumerate(files, start=1):
        command = [PROPHET / "prophet_model.bin", "sample", "num_samples=20", "num_warmup=50", f"id={chain}"]
        place = ["data", "file=data.json", "random", "seed=3", "output", f"file={path.name}", *figures]
        subprocess.run([*command, *place], cwd=tmp_path, check=True, capture_output=True)
    found = read_chains(files)
    assert (found.version, found.settings["num_warmup"]) == ("2.37.0", 50)
    assert found.draws.variables["delta"].shape == (2, 20, 2)
    assert found.draws.sample_stats["diverging"].dtype == bool
    with pytest.raises(FileError, match="is not of a program that nadpvi exported: it lacks phi_star"):
        from_cmdstan(files, release)


# --- the command line ---------------------------------------------------------------------------------


@pytest.mark.smoke
def test_command_line_exports(tmp_path):
    shutil.copy(DATA / "release.nc", tmp_path / "release.nc")
    command = ["export", "release.nc", "--stan-data", "data.json", "--program", "my program (é)"]
    made = run(*command, cwd=tmp_path)
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout.splitlines()[0] == "data: data.json"
    plain = json.loads((tmp_path / "data.json").read_text())
    assert plain["num_steps"] == 48

    chosen = run(*command, "--burn-in", "auto", "--force", cwd=tmp_path)
    assert (chosen.returncode, chosen.stderr) == (0, "")
    share = choose_burn_in(na.Release.load(tmp_path / "release.nc"))
    assert json.loads((tmp_path / "data.json").read_text())["num_steps"] == 60 - int(60 * share)

    again = run(*command, cwd=tmp_path)
    assert again.returncode == 1
    assert again.stderr == (
        "nadpvi: error: data.json exists; choose another name or allow it to be replaced (--force).\n"
    )

    rows = run(
        *command, "--trace", "--burn-in", "0.5", "--no-subsampling-noise", "--phi-star-prior", "model",
        "--force", "--json", cwd=tmp_path,
    )  # fmt: skip
    assert rows.returncode == 0, rows.stderr
    assert json.loads(rows.stdout)["program"].endswith("gradient_model_trace.stan")
    data = json.loads((tmp_path / "data.json").read_text())
    assert np.shape(data["phi"]) == np.shape(data["noisy_gradient"]) == (30, 4)
    assert data["use_tau"] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["missing.nc", "--stan-data", "d.json"], 1, "cannot read missing.nc"),
        (["release.nc", "--stan-data", "release.nc"], 2, "is an input of this command"),
        (["release.nc", "--stan-data", "d.json", "--burn-in", "2"], 2, "--burn-in must be in"),
        (["release.nc", "--stan-data", "no/d.json"], 1, "folder no does not exist"),
    ],
)
def test_command_line_errors_are_one_line(tmp_path, arguments, code, message):
    shutil.copy(DATA / "release.nc", tmp_path / "release.nc")
    failed = run("export", *arguments, "--program", "p", cwd=tmp_path)
    assert failed.returncode == code
    assert failed.stderr.count("\n") == 1
    assert message in failed.stderr
    assert not (tmp_path / "p").exists()


# --- genuine CmdStan, end to end ------------------------------------------------------------------------


@pytest.mark.stan
@pytest.mark.skipif(
    not (Path(os.environ.get("CMDSTAN", "/nonexistent")) / "makefile").is_file(),
    reason="no CmdStan to compile with: set CMDSTAN to its folder",
)
def test_genuine_cmdstan_compiles_samples_and_comes_back(release, tmp_path):
    """The session of docs/stan.md, in a folder with a plain name."""
    na.export_stan(release, data=tmp_path / "data.json", folder=tmp_path / "program")
    executable = tmp_path / "program" / "gradient_model"
    built = subprocess.run(
        ["make", str(executable)], cwd=os.environ["CMDSTAN"], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr[-2000:]
    files = [tmp_path / f"output_{chain}.csv" for chain in range(1, 5)]
    for chain, path in enumerate(files, start=1):
        command = [
            executable,
            "sample",
            "num_samples=1000",
            "num_warmup=1000",
            "save_warmup=1",
            f"id={chain}",
        ]
        place = ["data", "file=data.json", "random", "seed=1", "output", f"file={path.name}", "sig_figs=17"]
        subprocess.run([*command, *place], cwd=tmp_path, check=True, capture_output=True)
    back = from_cmdstan(files, release)
    exact = quietly(na.infer, release, method="exact", draws=20_000, chains=1, seed=2)
    for name in ("phi_star", "curvature", "coefficients"):
        a, b = (made.groups["posterior"][name] for made in (back, exact))
        mean, sd = b.mean(("chain", "draw")), b.std(("chain", "draw"))
        # effective sizes are above 400: 5 standard errors are a quarter of an sd
        assert (np.abs(a.mean(("chain", "draw")) - mean) < 0.25 * sd).all(), name
        assert (np.abs(a.std(("chain", "draw")) / sd - 1) < 0.25).all(), name
