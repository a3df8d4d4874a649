"""A model is tried on made-up records: what would void the guarantee is refused, what is sound passes."""

from typing import ClassVar

import autograd.numpy as anp
import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq

import nadpvi as na
from nadpvi.description import ModelDescription
from nadpvi.guides import MeanField
from nadpvi.models import BernoulliBeta, LogisticRegression
from nadpvi.private.batches import block_rows
from nadpvi.private.dry_run import check_model
from nadpvi.private.gradients import autograd_route


@pytest.fixture
def general_route(monkeypatch):
    """Gradients come from autodiff, as for a model without a score."""
    monkeypatch.setattr("nadpvi.private.gradients._route_of", lambda kind: autograd_route)


def description(likelihood, schema, **extra):
    """A logistic regression whose likelihood is replaced."""

    class Custom(LogisticRegression):
        pass

    Custom.log_likelihood = likelihood
    for name, value in extra.items():
        setattr(Custom, name, value)
    return ModelDescription(model=Custom(outcome="y"), schema=schema, guide=MeanField())


def sound(self, theta, batch):
    eta = anp.sum(batch.x * theta, axis=-1)
    return batch.y * eta - anp.logaddexp(0.0, eta)


def test_a_likelihood_that_contradicts_its_score_is_refused(schema):
    def other(self, theta, batch):
        return 2.0 * sound(self, theta, batch)

    with pytest.raises(na.ModelError, match="different gradients"):
        check_model(description(other, schema), num_draws=10)


@pytest.mark.usefixtures("general_route")
def test_a_sound_model_passes_with_and_without_simulate(schema):
    check_model(description(sound, schema), num_draws=10)
    check_model(description(sound, schema, simulate=None), num_draws=10)
    check_model(
        ModelDescription(model=LogisticRegression(outcome="y"), schema=schema, guide=MeanField()),
        num_draws=10,
    )


@pytest.mark.usefixtures("general_route")
@pytest.mark.parametrize(
    "figure",
    [
        lambda batch: batch.y.mean(),
        lambda batch: batch.y.max(),
        lambda batch: batch.y.min(),
        lambda batch: batch.x[:, 1].min(),
        lambda batch: batch.y[-1],
        lambda batch: batch.x[:, 1].max(),
        lambda batch: batch.x.std(axis=0).sum(),
        lambda batch: np.median(batch.x[:, 1]),
        lambda batch: float(np.unique(batch.x[:, 1]).size),
    ],
    ids=[
        "mean of y",
        "max of y",
        "min of y",
        "min of x",
        "last y",
        "max of x",
        "sd of x",
        "median of x",
        "distinct x",
    ],
)
def test_a_figure_of_the_batch_is_found(figure, schema):
    def leaky(self, theta, batch):
        return sound(self, theta, batch) * (1.0 + 0.1 * figure(batch))

    with pytest.raises(na.PrivacyError, match="influence each other"):
        check_model(description(leaky, schema), num_draws=10)


@pytest.mark.usefixtures("general_route")
def test_division_by_the_number_of_records_is_found(schema):
    def averaged(self, theta, batch):
        return sound(self, theta, batch) / len(batch.y)

    with pytest.raises(na.PrivacyError, match="number of records"):
        check_model(description(averaged, schema), num_draws=10)


@pytest.mark.usefixtures("general_route")
def test_a_likelihood_without_theta_is_refused_without_a_warning(schema):
    def constant(self, theta, batch):
        return anp.zeros((*theta.shape[:-2], len(batch.y))) - 0.5

    with pytest.raises(na.ModelError, match="does not depend on theta"):
        check_model(description(constant, schema), num_draws=10)


@pytest.mark.usefixtures("general_route")
def test_a_gradient_that_is_not_finite_is_refused(schema):
    def root(self, theta, batch):
        eta = anp.sum(batch.x * theta, axis=-1)
        # Finite everywhere, with an infinite slope at every point.
        return -anp.sqrt(anp.abs(eta - eta)) - 0.5 * eta

    with pytest.raises(na.ModelError, match="gradient that is not finite"):
        check_model(description(root, schema), num_draws=10)


@pytest.mark.usefixtures("general_route")
def test_a_gradient_that_is_not_finite_for_padding_alone_is_sound(schema):
    # autograd's derivative of a norm at zero is NaN, and padding is all zeros.
    def penalised(self, theta, batch):
        return sound(self, theta, batch) - 0.1 * anp.sqrt(anp.sum((batch.x * theta) ** 2, axis=-1))

    check_model(description(penalised, schema), num_draws=10)


@pytest.mark.usefixtures("general_route")
def test_one_number_a_record_is_asked_for_with_the_shape_found(schema):
    def wide(self, theta, batch):
        return sound(self, theta, batch)[..., None]

    with pytest.raises(na.ModelError, match=r"got \(3, 7, 1\)"):
        check_model(description(wide, schema), num_draws=10)


@pytest.mark.usefixtures("general_route")
def test_a_wide_prior_is_tried_at_its_own_width(schema):
    # Finite at theta of order one, infinite where this prior puts its mass.
    def narrow(self, theta, batch):
        eta = anp.sum(batch.x * theta, axis=-1)
        return -anp.exp(eta**2)

    class Wide(LogisticRegression):
        log_likelihood = narrow

    wide = ModelDescription(model=Wide(outcome="y", prior_sd=1000.0), schema=schema, guide=MeanField())
    with pytest.raises(na.ModelError, match="not finite"):
        check_model(wide, num_draws=10)


class TestScoresThatSeeTheBlock:
    """A model's own `score` that passes at seven records, or at the first place, and not in a run."""

    @staticmethod
    def attempt(alter, schema, tmp_path):
        class Sly(na.models.LogisticRegression):
            calls: ClassVar[list[float]] = []

            def score(self, predictors, y):
                out = np.array(super().score(predictors, y))
                alter(out[0], predictors[0], self.calls)
                return out

        with pytest.raises(na.PrivacyError, match="influence each other"):
            na.release(
                Sly(outcome="y"),
                tmp_path / "none.csv",
                schema=schema,
                privacy=na.PrivacyBudget(epsilon=1, delta=1e-5),
            )

    def test_the_record_before(self, schema, tmp_path):
        def alter(out, eta, calls):
            out[1:] -= 0.1 * out[:-1].copy()

        self.attempt(alter, schema, tmp_path)

    def test_the_mean_of_a_long_block(self, schema, tmp_path):
        def alter(out, eta, calls):
            if len(out) > 16:
                out -= out.mean(axis=0)

        self.attempt(alter, schema, tmp_path)

    def test_places_far_down(self, schema, tmp_path):
        def alter(out, eta, calls):
            out[8:] -= eta[8:].sum(axis=0)

        self.attempt(alter, schema, tmp_path)

    def test_what_came_before(self, schema, tmp_path):
        def alter(out, eta, calls):
            if len(out) > 16:
                calls.append(float(out.sum()))
                out += 1e-3 * sum(calls)

        self.attempt(alter, schema, tmp_path)


@pytest.mark.usefixtures("general_route")
@pytest.mark.parametrize(
    "weight",
    [
        lambda batch: 2.0 if (batch.x[:, 1] >= 1.0).any() else 1.0,
        lambda batch: 2.0 if (batch.x[:, 1] <= 0.0).any() else 1.0,
    ],
)
def test_figures_that_only_matter_at_the_public_bounds_are_refused(schema, weight):
    """Real cells are held to their bounds; made-up ones lie between them."""

    def peeking(self, theta, batch):
        return weight(batch) * sound(self, theta, batch)

    with pytest.raises(na.PrivacyError, match="influence each other"):
        check_model(description(peeking, schema), num_draws=10)


@pytest.mark.usefixtures("general_route")
def test_a_figure_of_long_batches_only_is_refused(schema):
    """As long as those of a private score, longer than any of a run."""

    def averaging(self, theta, batch):
        value = sound(self, theta, batch)
        return value * (1.0 + batch.y.mean()) if len(batch.y) > 700 else value

    with pytest.raises(na.PrivacyError, match="among 1024 records"):
        check_model(description(averaging, schema), num_draws=10)


@pytest.mark.usefixtures("general_route")
def test_blocks_of_a_run_with_few_draws_are_tried_at_their_length(schema):
    def averaging(self, theta, batch):
        value = sound(self, theta, batch)
        return value * (1.0 + batch.x.mean()) if len(batch.y) == block_rows(3000) else value

    params = ModelDescription(model=LogisticRegression(outcome="y"), schema=schema, guide=MeanField())
    draws = 3000 // len(params.names)
    assert block_rows(draws * len(params.names)) == block_rows(3000) != block_rows(10 * len(params.names))
    check_model(description(averaging, schema), num_draws=10)
    with pytest.raises(na.PrivacyError, match="influence each other"):
        check_model(description(averaging, schema), num_draws=draws)


def test_a_prior_that_contradicts_its_gradient_is_refused(schema):
    def narrow(self, theta, design):
        return -50.0 * anp.sum(theta**2, axis=-1)

    with pytest.raises(na.ModelError, match="log_prior and the model's own gradient of it differ"):
        check_model(description(sound, schema, log_prior=narrow), num_draws=10)


def test_a_run_obeys_a_subclass_s_own_prior():
    """Of a conjugate model, too, whose own prior has a form that a step could have used instead."""

    class Tight(BernoulliBeta):
        def log_prior(self, theta, design):
            return -0.5 * anp.sum((theta / 0.1) ** 2, axis=-1)

        def log_prior_gradient(self, theta, design):
            return -theta / 0.1**2

    coin = na.Schema.from_dict({"columns": {"y": {"kind": "binary", "levels": ["0", "1"]}}})
    config = na.DPVIConfig(num_steps=400, sampling_rate=1.0, learning_rate=2e-3, clip_norm=5.0)
    run = na.release(
        Tight(outcome="y", prior_alpha=1.0, prior_beta=1.0),
        pd.DataFrame({"y": ["1"] * 50}),
        schema=coin,
        privacy=na.NonPrivate(),
        config=config,
        insecure_seed=1,
    )
    # 50 sigmoid(-theta) = theta / 0.01 at the mode.
    mode = brentq(lambda theta: 50.0 / (1.0 + np.exp(theta)) - 100.0 * theta, 0.0, 1.0)
    assert abs(run.final_phi[0] - mode) < 0.02


@pytest.mark.usefixtures("general_route")
def test_a_model_that_fails_at_a_public_bound_is_warned_of(schema):
    """Cells beyond the bounds are held there, so that real records may well be."""

    def brittle(self, theta, batch):
        return sound(self, theta, batch) + theta[..., 0] * anp.log(batch.x[:, 1])

    with pytest.warns(UserWarning, match="not finite for a record at the public bounds"):
        check_model(description(brittle, schema), num_draws=10)


@pytest.mark.usefixtures("general_route")
def test_a_likelihood_with_a_memory_is_refused_as_such(schema):
    calls = []

    def remembering(self, theta, batch):
        calls.append(1)
        return sound(self, theta, batch) * (1.0 + 1e-3 * len(calls))

    with pytest.raises(na.ModelError, match="another value when it is called again"):
        check_model(description(remembering, schema), num_draws=10)
