"""ArviZ, 0.23 and 1.x: the same numbers, containers that it takes, files that it opens, and no need for it.

`make test` runs this against the ArviZ that pip chose, `make test-arviz1` against 1.x.
"""

import ast
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from scipy import stats

import nadpvi as na
from nadpvi.arviz_bridge import arviz_version, as_draws, convergence

pytestmark = pytest.mark.arviz


def import_arviz():
    """Both majors warn of things to come when they are imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import arviz
    return arviz


@pytest.fixture(scope="module")
def posterior():
    """Three named coefficients, a positive scale, and sampler statistics as NUTS leaves them."""
    rng = np.random.default_rng(7)
    labels = np.array(["Intercept", "C(x)[T.a/b]", "größe %"], dtype=object)
    coords = {"chain": np.arange(2), "draw": np.arange(250)}
    chains = xr.Dataset(
        {
            "phi_star": (("chain", "draw", "phi"), rng.standard_normal((2, 250, 3))),
            "curvature": (("chain", "draw", "phi"), rng.gamma(4.0, size=(2, 250, 3))),
        },
        coords={**coords, "phi": labels},
    )
    diverging = xr.Dataset({"diverging": (("chain", "draw"), rng.random((2, 250)) < 0.02)}, coords=coords)
    return na.Posterior(groups={"posterior": chains, "sample_stats": diverging}, settings={"method": "nuts"})


def test_the_environment_is_the_one_that_was_asked_for():
    asked = os.environ.get("NADPVI_TEST_ARVIZ_MAJOR")
    assert arviz_version() == tuple(map(int, import_arviz().__version__.split(".")[:2]))
    assert asked is None or arviz_version()[0] == int(asked)


def arviz_imports(path):
    """Lines at which a file imports ArviZ, and whether that is outside functions."""
    tree = ast.parse(path.read_text())
    inside = {id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for n in ast.walk(f)}
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        if any(name.split(".")[0].startswith("arviz") for name in names):
            yield node.lineno, id(node) not in inside


def test_every_difference_stays_in_one_module():
    """No other module imports it; nowhere does it come with an import of ours."""
    package = Path(na.__file__).parent
    for path in package.rglob("*.py"):
        found = list(arviz_imports(path))
        assert not found or path.name == "arviz_bridge.py", path
        assert not any(at_import for _, at_import in found), path
    checkout = Path(__file__).parents[1]
    for path in [*checkout.glob("tests/*.py"), *checkout.glob("benchmarks/*.py")]:
        assert not any(at_import for _, at_import in arviz_imports(path)), path


def reference_r_hat(values):
    """Rank-normalised split R-hat, bulk and folded (Vehtari et al. 2021), of chains (chain, draw)."""
    half = values.shape[1] // 2
    split = np.concatenate([values[:, :half], values[:, -half:]])

    def plain(x):
        z = stats.norm.ppf((stats.rankdata(x).reshape(x.shape) - 0.375) / (x.size + 0.25))
        within, between = z.var(axis=1, ddof=1).mean(), z.mean(axis=1).var(ddof=1)
        return np.sqrt((half - 1) / half + between / within)

    return max(plain(split), plain(np.abs(split - np.median(split))))


def test_r_hat_is_the_published_formula():
    rng = np.random.default_rng(1)
    values = rng.standard_normal((4, 300, 5))
    values[0, :, 1] += 1.0
    values[1, :, 2] *= 3.0
    values[:, :, 3] = np.exp(3 * values[:, :, 3])
    values[:, :, 4] += np.linspace(0, 2, 300)
    found = convergence(as_draws({"a": values}))["r_hat"]["a"].to_numpy()
    np.testing.assert_allclose(found, [reference_r_hat(values[:, :, i]) for i in range(5)], rtol=1e-10)


@pytest.mark.parametrize("correlation", [0.0, 0.6, -0.4])
def test_ess_of_an_autoregression(correlation):
    """n (1 - rho) / (1 + rho) for the mean; 4 chains of 5,000 give it to some percent."""
    rng = np.random.default_rng(2)
    values = np.zeros((4, 5000))
    values[:, 0] = rng.standard_normal(4)
    for t in range(1, 5000):
        values[:, t] = correlation * values[:, t - 1] + np.sqrt(1 - correlation**2) * rng.standard_normal(4)
    found = convergence(as_draws({"a": values}))
    expected = values.size * (1 - correlation) / (1 + correlation)
    assert found["ess_bulk"]["a"].item() == pytest.approx(expected, rel=0.15)
    assert 0 < found["ess_tail"]["a"].item() < 1.5 * values.size


def test_every_variable_keeps_its_own_dims():
    rng = np.random.default_rng(3)
    found = convergence(
        as_draws({"a": rng.standard_normal((2, 50)), "b": rng.standard_normal((2, 50, 3, 2))})
    )
    for name in ("ess_bulk", "ess_tail", "r_hat"):
        assert found[name]["a"].dims == ()
        assert found[name]["b"].shape == (3, 2)
        assert np.isfinite(found[name]["b"]).all()


@pytest.mark.parametrize(("shape", "has_ess"), [((1, 50, 2), True), ((2, 3, 2), False), ((1, 1, 2), False)])
def test_what_cannot_be_told_is_nan(shape, has_ess):
    values = np.random.default_rng(4).standard_normal(shape)
    found = convergence(as_draws({"a": values}))
    assert np.isnan(found["r_hat"]["a"]).all()
    assert np.isfinite(found["ess_bulk"]["a"]).all() == has_ess


def test_a_column_that_never_moves_is_quiet():
    values = np.random.default_rng(5).standard_normal((2, 50, 2))
    values[..., 0] = 1.0
    found = convergence(as_draws({"a": values}))["r_hat"]["a"]
    assert np.isnan(found[0])
    assert np.isfinite(found[1])


def test_arviz_works_on_a_posterior(posterior):
    """Its own summary, R-hat and figures, by label, on what `to_arviz` gives."""
    arviz, data = import_arviz(), posterior.to_arviz()
    import matplotlib

    matplotlib.use("Agg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = arviz.summary(data, var_names=["phi_star"], round_to="none")
        arviz.plot_forest(data, var_names=["phi_star"])
        (arviz.plot_trace if arviz_version()[0] < 1 else arviz.plot_trace_dist)(data, var_names=["phi_star"])
        import matplotlib.pyplot as plt

        plt.close("all")
    assert list(table.index) == [f"phi_star[{label}]" for label in ("Intercept", "C(x)[T.a/b]", "größe %")]
    ours = posterior.summary()
    np.testing.assert_allclose(table["mean"].astype(float), ours["mean"], rtol=1e-10)
    np.testing.assert_allclose(table["ess_bulk"].astype(float), ours["ess_bulk"], rtol=1e-10)
    assert int(data["sample_stats"]["diverging"].sum()) == posterior.num_divergences


def test_arviz_opens_a_saved_posterior(posterior, tmp_path):
    path = posterior.save(tmp_path / "posterior.nc")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arviz = import_arviz()
        # 1.x asks its settings for an engine, and looks for netCDF4 first.
        options = {} if arviz_version()[0] < 1 else {"engine": "h5netcdf"}
        data = arviz.from_netcdf(path, **options)
        found = data["posterior"]["phi_star"]
        np.testing.assert_array_equal(found, posterior.groups["posterior"]["phi_star"])
        assert found.dims == ("chain", "draw", "phi")
        assert list(found["phi"].to_numpy()) == ["Intercept", "C(x)[T.a/b]", "größe %"]
        data.close()


def test_our_table_does_not_depend_on_arviz(posterior):
    """Its defaults differ between majors (94 % highest density, 89 % equal-tailed); ours are our own."""
    table = posterior.summary()
    assert list(table.columns) == ["mean", "sd", "5%", "95%", "ess_bulk", "ess_tail", "r_hat"]
    values = posterior.groups["posterior"]["phi_star"].to_numpy().reshape(-1, 3)
    np.testing.assert_allclose(table["5%"], np.quantile(values, 0.05, axis=0))
    np.testing.assert_allclose(table["95%"], np.quantile(values, 0.95, axis=0))


CONVERGENCE = """
import numpy as np, xarray as xr
from nadpvi.arviz_bridge import convergence
data = xr.Dataset({"a": (("chain", "draw"), np.random.default_rng(0).standard_normal((2, 50)))})
print(float(convergence(data)["r_hat"]["a"]) < 1.2)
"""


@pytest.mark.parametrize("place", ["fresh", "impossible"])
def test_the_import_is_silent_wherever_its_cache_can_be(tmp_path, place):
    """0.23 keeps the day of its last notice in a cache folder, and cannot be imported without one."""
    home = tmp_path / "home"
    home.mkdir()
    folder = "/proc/none" if place == "impossible" else str(home)
    kept = {"MPLCONFIGDIR": str(tmp_path / "matplotlib")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", CONVERGENCE],
        env={**os.environ, "HOME": folder, "XDG_CACHE_HOME": folder, **kept},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
