"""The figures show the numbers they are about, without pyplot and without touching its state."""

import io

import matplotlib.image
import numpy as np
import pytest
from report_cases import NASTY, foreign_release, people, posterior_of, release_of

import nadpvi as na
from nadpvi.baselines import last_iterate_posterior
from nadpvi.canvas import to_svg
from nadpvi.errors import ArgumentError
from nadpvi.figures import choose_coordinates, gradient_fit
from nadpvi.gradient_model.sums import window_start

pytestmark = pytest.mark.filterwarnings("ignore::nadpvi.InferenceWarning")


def test_the_forest_has_every_interval_and_share():
    posterior = posterior_of("logistic")
    figure = posterior.plot_forest(probability=0.8)
    intervals, bars = figure.axes
    table = posterior.summary(probability=0.8)
    segments = np.array(intervals.collections[0].get_segments())
    assert segments[:, 0, 0] == pytest.approx(table["10%"].to_numpy())
    assert segments[:, 1, 0] == pytest.approx(table["90%"].to_numpy())
    assert intervals.lines[0].get_xdata() == pytest.approx(table["mean"].to_numpy())
    shares = posterior.uncertainty_shares()
    widths = [bar.get_width() for bar in bars.patches]
    assert widths == pytest.approx([*shares["share_data"], *shares["share_privacy"]])


def test_a_notebook_gets_a_picture_without_pyplot():
    # IPython asks an object for its PNG by this name; for plain figures it answers only once pyplot is there.
    figure = posterior_of("logistic").plot_forest()
    width, height = figure.get_size_inches() * figure.dpi
    picture = matplotlib.image.imread(io.BytesIO(figure._repr_png_()))
    assert picture.shape[:2] == pytest.approx((height, width), abs=1)
    assert np.ptp(picture[..., :3]) > 0.5


def test_a_forest_has_a_panel_for_each_parameter():
    # Levels of a simplex: one entry more than there are unconstrained coordinates, which has no bar.
    figure = posterior_of("dirichlet").plot_forest()
    assert [len(axes.patches) for axes in figure.axes] == [0, 4]
    linear = posterior_of("linear")
    assert len(linear.plot_forest().axes) == 2 * len(linear.description.parameters)


def test_a_forest_without_shares_has_no_bars():
    figure = last_iterate_posterior(release_of("logistic"), draws=50, seed=1).plot_forest()
    assert len(figure.axes) == 1


def test_the_trace_shades_the_window():
    posterior, release = posterior_of("logistic"), release_of("logistic")
    figure = posterior.plot_trace(release, coordinates=["mu[age]"])
    (axes,) = figure.axes
    first = window_start(release.num_steps, burn_in=posterior.settings["burn_in"])
    window = axes.patches[0].get_extents().transformed(axes.transData.inverted())
    assert (window.x0, window.x1) == pytest.approx((first, release.num_steps - 1))
    line = next(line for line in axes.lines if line.get_label() == "iterate")
    place = release.phi_labels.index("mu[age]")
    assert line.get_ydata() == pytest.approx(release.phi[:, place])


@pytest.mark.parametrize("method", ["exact", "dense"])
def test_the_fitted_line_leaves_the_noise(method):
    posterior, release = posterior_of("logistic", method=method), release_of("logistic")
    draws = posterior.groups["posterior"]
    for label in ("mu[age]", "u[age]"):
        fit = gradient_fit(release, draws, label=label, burn_in=0.2, is_diagonal=method == "exact")
        residual = fit.noisy_gradient - fit.offset - fit.slope * (fit.phi - fit.phi_star)
        assert fit.is_partial == (method == "dense" and label == "mu[age]")
        assert 0.7 < np.sqrt(np.square(residual).mean()) / fit.spread < 1.3
        assert fit.offset == 0.0


def test_without_its_matrix_a_line_takes_the_height_of_its_points():
    posterior, release = posterior_of("logistic", method="dense"), release_of("logistic")
    draws = posterior.groups["posterior"].drop_vars("hessian")
    fit = gradient_fit(release, draws, label="mu[age]", burn_in=0.2, is_diagonal=False)
    residual = fit.noisy_gradient - fit.offset - fit.slope * (fit.phi - fit.phi_star)
    assert fit.offset != 0.0
    assert residual.mean() == pytest.approx(0.0, abs=1e-9 * fit.spread)
    assert gradient_fit(release, draws, label="u[age]", burn_in=0.2, is_diagonal=False).offset == 0.0


def test_figures_leave_pyplot_alone():
    import matplotlib.pyplot as plt

    posterior, release = posterior_of("logistic"), release_of("logistic")
    before = plt.get_fignums()
    figures = [
        posterior.plot_forest(),
        posterior.plot_prior(),
        posterior.plot_trace(release),
        posterior.plot_gradients(release),
        posterior.plot_calibration(people()),
    ]
    assert plt.get_fignums() == before
    assert all(len(to_svg(figure, prefix="a-")) > 1000 for figure in figures)


def test_calibration_is_drawn_in_bins_never_rows():
    figure = posterior_of("linear").plot_calibration(people())
    points = next(line for line in figure.axes[0].lines if line.get_marker() == "o")
    assert len(points.get_xdata()) == 10
    with pytest.raises(ArgumentError, match="categorical"):
        posterior_of("multinomial").plot_calibration(people())


def test_what_cannot_be_drawn_is_refused():
    posterior = na.infer(foreign_release(), method="exact", draws=20, seed=1)
    with pytest.raises(ArgumentError, match="no model"):
        posterior.plot_prior()
    with pytest.raises(ArgumentError, match="no coordinate 'c'"):
        posterior.plot_trace(foreign_release(), coordinates=["c"])
    with pytest.raises(ArgumentError, match="at least one"):
        posterior.plot_gradients(foreign_release(), coordinates=[])
    with pytest.raises(ArgumentError, match="not the release"):
        posterior.plot_gradients(release_of("logistic"))


def test_coordinates_that_a_check_named_come_first():
    labels = [f"mu[{k}]" for k in range(50)] + [f"u[{k}]" for k in range(50)]
    chosen = choose_coordinates(labels, first=["u[7]", "mu[3]", "no such"], num_locations=50)
    assert chosen[:2] == ("u[7]", "mu[3]")
    assert len(chosen) == len(set(chosen)) == 6
    assert choose_coordinates(["a"]) == ("a",)
    assert choose_coordinates(["a", "b"], num_locations=1) == ("a", "b")


def test_svg_stands_alone_in_a_page():
    posterior = posterior_of("logistic")
    svg = to_svg(posterior.plot_forest(), prefix="one-")
    assert svg == to_svg(posterior.plot_forest(), prefix="one-")
    assert svg.startswith("<svg")
    assert "width=" not in svg[: svg.index(">")]
    assert "metadata" not in svg
    assert NASTY not in svg
    assert "&lt;script&gt;" in svg
    assert 'id="one-' in svg
    assert 'id="figure' not in svg
