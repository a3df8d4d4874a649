"""Transforms to constrained scales: against closed forms, and against Stan's own."""

import json
import re
import subprocess
import sys
from pathlib import Path

import autograd.numpy as anp
import numpy as np
import pytest
import stan_oracle
import stanli
from autograd import grad, jacobian
from scipy import stats

import nadpvi as na
from nadpvi.models.parameters import (
    Parameter,
    check_parameters,
    constrain,
    log_jacobian,
    unconstrain,
    unconstrained_labels,
)
from nadpvi.supports import SUPPORTS

CASES = [
    ("real", ()),
    ("real", (2, 3)),
    ("positive", ()),
    ("positive", (3,)),
    ("unit_interval", (2,)),
    ("ordered", (4,)),
    ("ordered", (1,)),
    ("ordered", (2, 3)),
    ("simplex", (4,)),
    ("simplex", (2, 3)),
    ("simplex", (1,)),
    ("covariance", (1, 1)),
    ("covariance", (3, 3)),
]
IDS = [f"{name}{shape}" for name, shape in CASES]
PROGRAM = Path(__file__).parent / "supports.stan"
STAN_BLOCKS = (
    Parameter(name="number"),
    Parameter(name="scale", support="positive"),
    Parameter(name="shares", support="unit_interval", dims=["share"], coords=[2]),
    Parameter(name="cuts", support="ordered", dims=["cut"], coords=[3]),
    Parameter(name="weights", support="simplex", dims=["component"], coords=[4]),
    Parameter(name="rows", support="simplex", dims=["row", "entry"], coords=[2, 3]),
    Parameter(name="spread", support="covariance", dims=["axis"], coords=[3]),
)


def points(name, shape, *, scale=1.5, lead=(5, 2)):
    num = SUPPORTS[name].num_unconstrained(shape)
    return scale * np.random.default_rng(7).standard_normal((*lead, num))


def free_entries(name, value):
    """The entries that fix the others: of a simplex all but the last, of a covariance the lower triangle."""
    if name == "simplex":
        return anp.reshape(value[..., :-1], (-1,))
    if name == "covariance":
        return value[np.tril_indices(len(value))]
    return anp.reshape(value, (-1,))


@pytest.mark.parametrize(("name", "shape"), CASES, ids=IDS)
class TestClosedForms:
    def test_shapes_broadcast_over_leading_axes(self, name, shape):
        support, z = SUPPORTS[name], points(name, shape)
        value, log_det = support.constrain(z, shape), support.log_jacobian(z, shape)
        assert value.shape == (5, 2, *shape)
        assert log_det.shape == (5, 2)
        for row in np.ndindex(5, 2):
            np.testing.assert_allclose(support.constrain(z[row], shape), value[row], rtol=1e-13)
            np.testing.assert_allclose(support.log_jacobian(z[row], shape), log_det[row], atol=1e-12)

    def test_values_lie_in_the_support_and_come_back(self, name, shape):
        support, z = SUPPORTS[name], points(name, shape)
        value = support.constrain(z, shape)
        assert support.contains(value)
        np.testing.assert_allclose(support.unconstrain(value, shape), z, atol=1e-9)

    def test_log_jacobian_is_the_log_determinant_by_autodiff(self, name, shape):
        support = SUPPORTS[name]
        for z in points(name, shape, lead=(4,)):
            if not len(z):
                assert support.log_jacobian(z, shape) == 0.0
                continue
            matrix = jacobian(lambda z: free_entries(name, support.constrain(z, shape)))(z)
            sign, expected = np.linalg.slogdet(matrix)
            assert abs(sign) == 1.0
            np.testing.assert_allclose(support.log_jacobian(z, shape), expected, atol=1e-9)

    @pytest.mark.parametrize("size", [-900.0, -400.0, 400.0, 900.0])
    def test_values_and_gradients_stay_finite_far_out(self, name, shape, size):
        support = SUPPORTS[name]
        z = np.full((2, support.num_unconstrained(shape)), size)
        z[1] *= np.where(np.arange(z.shape[1]) % 2, 1.0, -1.0)

        def total(z):
            # Scaled, for the gradient of an entry of exp(700) is as large as it.
            return anp.sum(support.constrain(z, shape) * 1e-300) + anp.sum(support.log_jacobian(z, shape))

        with np.errstate(over="raise", invalid="raise", divide="raise"):
            assert np.isfinite(support.constrain(z, shape)).all()
            assert np.isfinite(support.log_jacobian(z, shape)).all()
            assert np.isfinite(support.unconstrain(support.constrain(z, shape), shape)).all()
            if z.size:
                assert np.isfinite(grad(total)(z)).all()


@pytest.mark.parametrize(
    ("name", "shape", "density", "moment"),
    [
        ("positive", (), stats.gamma(3.0).logpdf, 3.0),
        ("unit_interval", (), stats.beta(2.0, 3.0).logpdf, 0.4),
    ],
)
def test_a_density_on_the_constrained_scale_keeps_its_integral(name, shape, density, moment):
    """With the Jacobian, a density of the value integrates to 1 over z, and has the value's mean."""
    support = SUPPORTS[name]
    z = np.linspace(-40, 8 if name == "positive" else 40, 20_001)[:, None]
    value = support.constrain(z, shape)
    weight = np.exp(density(value) + support.log_jacobian(z, shape)) * (z[1, 0] - z[0, 0])
    assert weight.sum() == pytest.approx(1.0, abs=1e-9)
    assert (weight * value).sum() == pytest.approx(moment, abs=1e-9)


def test_a_matrix_that_rounding_makes_singular_comes_back_to_rounding():
    support, shape = SUPPORTS["covariance"], (4, 4)
    z = points("covariance", shape, scale=8.0, lead=(200,))
    value = support.constrain(z, shape)
    # Dozens are beyond a plain Cholesky factorisation.
    assert sum(not support.contains(matrix) for matrix in value) > 20
    again = support.constrain(support.unconstrain(value, shape), shape)
    sd = np.sqrt(np.diagonal(value, axis1=-2, axis2=-1))
    np.testing.assert_allclose((again - value) / (sd[:, :, None] * sd[:, None, :]), 0.0, atol=1e-6)


def test_zero_is_the_middle_of_the_simplex():
    np.testing.assert_allclose(SUPPORTS["simplex"].constrain(np.zeros(4), (5,)), 0.2, rtol=1e-14)


def stan_points(count=6):
    num = len(unconstrained_labels(STAN_BLOCKS))
    return np.random.default_rng(11).normal(scale=1.3, size=(count, num))


def assert_is_stan(answer, point, *, blocks=STAN_BLOCKS):
    """Stan's log density of a flat target and its gradient are our log-Jacobian."""
    log_prob, gradient = answer
    np.testing.assert_allclose(log_prob, log_jacobian(blocks, point), rtol=0, atol=1e-10)
    ours = grad(lambda z: log_jacobian(blocks, z))(point)
    np.testing.assert_allclose(gradient, ours, rtol=0, atol=1e-10)


def main():
    """Answer with compiled Stan's log densities, gradients and constrained values; see `stan_oracle`."""
    import contextlib

    job = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        import stan

        model = stan.build(job["code"], data={})
        answers = [
            {
                "log_prob": model.log_prob(point),
                "gradient": list(model.grad_log_prob(point)),
                "constrained": list(model.constrain_pars(point)),
            }
            for point in job["points"]
        ]
    Path(job["answer"]).write_text(json.dumps(answers))


@pytest.mark.stan
@pytest.mark.skipif(
    stan_oracle.missing_part() is not None, reason=f"compiled Stan: {stan_oracle.missing_part()}"
)
def test_all_transforms_are_compiled_stans(tmp_path):
    """httpstan 4.13 is Stan 2.35, the last with the stick-breaking simplex."""
    job = {"code": PROGRAM.read_text(), "points": stan_points().tolist(), "answer": str(tmp_path / "answer")}
    run = subprocess.run(
        [sys.executable, __file__], input=json.dumps(job), capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-3000:]
    answers = json.loads((tmp_path / "answer").read_text())
    assert len(answers) == 6
    for answer, point in zip(answers, stan_points(), strict=True):
        assert_is_stan((answer["log_prob"], answer["gradient"]), point)
        values = constrain(STAN_BLOCKS, point)
        # Stan lists matrices and arrays with the first index fastest.
        flat = np.concatenate([np.ravel(values[block.name], order="F") for block in STAN_BLOCKS])
        np.testing.assert_allclose(answer["constrained"], flat, rtol=1e-10, atol=1e-12)


def test_all_but_the_simplex_are_interpreted_stans():
    """The interpreter has the simplex of Stan 2.37 and later."""
    code = re.sub(r"^.*simplex.*$", "", PROGRAM.read_text(), flags=re.MULTILINE)
    blocks = [block for block in STAN_BLOCKS if block.support != "simplex"]
    model = stanli.Model(stan_code=code, data={})
    for point in np.random.default_rng(12).normal(size=(6, len(unconstrained_labels(blocks)))):
        assert_is_stan(model.log_prob_grad(point), point, blocks=blocks)
        values = {
            name: np.ravel(value, order="F").tolist() if np.ndim(value) else float(value)
            for name, value in constrain(blocks, point).items()
        }
        np.testing.assert_allclose(model.unconstrain(values), point, rtol=0, atol=1e-10)


class TestParameters:
    def test_labels(self):
        labels = {block.name: block.labels for block in STAN_BLOCKS}
        assert labels["number"] == ("number",)
        assert labels["shares"] == ("shares[0]", "shares[1]")
        assert labels["weights"] == ("weights[0]", "weights[1]", "weights[2]")
        assert labels["rows"] == ("rows[0, 0]", "rows[0, 1]", "rows[1, 0]", "rows[1, 1]")
        assert labels["spread"][:3] == ("spread[0, 0]", "spread[1, 0]", "spread[1, 1]")
        vector = Parameter(name="coefficients", dims=["coefficient"], coords=[["Intercept", "age"]])
        assert vector.labels == vector.entry_labels == ("Intercept", "age")
        entries = {block.name: block.entry_labels for block in STAN_BLOCKS}
        assert entries["weights"][-1] == "weights[3]"
        assert entries["spread"][1] == "spread[0, 1]"
        for block in STAN_BLOCKS:
            assert len(block.labels) == block.num_unconstrained
            assert len(block.entry_labels) == np.prod(block.shape)

    def test_one_dim_names_both_axes_of_a_matrix(self):
        block = Parameter(name="spread", support="covariance", dims=["axis"], coords=[["x", "y"]])
        assert block.dims == ("axis", "axis_2")
        assert block.shape == (2, 2)
        two = Parameter(name="s", support="covariance", dims=["a", "b"], coords=[["x", "y"], ["u", "v"]])
        assert two.labels == ("s[x, u]", "s[y, u]", "s[y, v]")

    @pytest.mark.parametrize("block", STAN_BLOCKS, ids=lambda block: block.name)
    def test_round_trips(self, block):
        assert Parameter.from_dict(json.loads(json.dumps(block.to_dict()))) == block

    def test_constrain_and_back(self):
        theta = stan_points()[:, None, :]
        values = constrain(STAN_BLOCKS, theta)
        assert values["rows"].shape == (6, 1, 2, 3)
        np.testing.assert_allclose(unconstrain(STAN_BLOCKS, values), theta, atol=1e-9)

    def test_values_outside_are_named_with_their_rule(self):
        good = constrain(STAN_BLOCKS, stan_points()[0])
        for name, value, message in [
            ("scale", -1.0, "scale must be above 0"),
            ("shares", [0.5, 1.0], "shares must be between 0 and 1"),
            ("cuts", [1.0, 1.0, 2.0], "cuts must be increasing"),
            ("weights", [0.5, 0.2, 0.1, 0.1], "weights must be positive with sum 1"),
            ("spread", np.ones((3, 3)), "spread must be a symmetric positive-definite matrix"),
            ("spread", np.triu(np.ones((3, 3))), "spread must be a symmetric positive-definite matrix"),
            ("number", np.nan, "number must be finite"),
            ("cuts", [1.0, 2.0], r"cuts must have shape \(3,\)"),
        ]:
            with pytest.raises(na.ArgumentError, match=message):
                unconstrain(STAN_BLOCKS, {**good, name: value})
        with pytest.raises(na.ArgumentError, match="no value for parameter cuts"):
            unconstrain(STAN_BLOCKS, {name: value for name, value in good.items() if name != "cuts"})

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"name": ""}, "name must be a text"),
            ({"name": "a/b"}, "without '/'"),
            ({"name": "tau"}, "none of"),
            ({"name": "chain"}, "none of"),
            ({"name": "a", "support": "interval"}, "support must be one of"),
            ({"name": "a", "dims": ["d"]}, "every dimension needs its coords"),
            ({"name": "a", "dims": "d", "coords": [2]}, "dims must be a list"),
            ({"name": "a", "dims": ["d"], "coords": [["x", "x"]]}, "unique texts"),
            ({"name": "a", "dims": ["d"], "coords": [[]]}, "unique texts"),
            ({"name": "a", "dims": ["d"], "coords": [0]}, "unique texts"),
            ({"name": "a", "dims": ["d"], "coords": ["xy"]}, "unique texts"),
            ({"name": "a", "dims": ["draw"], "coords": [2]}, "a dimension's name"),
            ({"name": "a", "dims": ["a"], "coords": [2]}, "dims must differ"),
            ({"name": "a", "dims": ["d", "d"], "coords": [2, 2]}, "dims must differ"),
            ({"name": "a", "support": "simplex"}, "is for vectors"),
            ({"name": "a", "support": "ordered"}, "is for vectors"),
            ({"name": "a", "support": "covariance"}, "one square matrix"),
            ({"name": "a", "support": "covariance", "dims": ["d", "e"], "coords": [2, 3]}, "square"),
        ],
    )
    def test_what_cannot_be_shown_is_refused(self, settings, message):
        with pytest.raises(na.ArgumentError, match=message):
            Parameter(**settings)

    @pytest.mark.parametrize(
        ("blocks", "message"),
        [
            ([], "at least one"),
            (["a"], "at least one"),
            ([Parameter(name="a"), Parameter(name="a", support="positive")], "are called a"),
            ([Parameter(name="d"), Parameter(name="a", dims=["d"], coords=[2])], "are called d"),
            (
                [Parameter(name="a", dims=["d"], coords=[2]), Parameter(name="b", dims=["d"], coords=[3])],
                "two sets of labels",
            ),
            (
                [Parameter(name="age"), Parameter(name="b", dims=["d"], coords=[["age"]])],
                "two coordinates would be called age",
            ),
            ([Parameter(name="a", support="simplex", dims=["d"], coords=[1])], "can vary"),
        ],
    )
    def test_blocks_that_do_not_fit_together_are_refused(self, blocks, message):
        with pytest.raises(na.ArgumentError, match=message):
            check_parameters(blocks)


if __name__ == "__main__":
    main()
