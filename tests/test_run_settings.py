"""Start, step-size schedule, box, what is kept of a trace, and callbacks."""

import json

import numpy as np
import pytest

import nadpvi as na
from nadpvi.containers.storage import HEADER
from nadpvi.description import ModelDescription
from nadpvi.gradient_model import make_gradient_model, make_trace_sums
from nadpvi.private.keeping import Keeper, Trace
from nadpvi.settings import make_settings

MODEL = na.models.LogisticRegression(outcome="y")
BUDGET = na.PrivacyBudget(epsilon=1.0, delta=1e-5)


@pytest.fixture(scope="module")
def schema():
    return na.Schema.from_dict(
        {
            "columns": {
                "a": {"kind": "real", "lower": 0, "upper": 1},
                "b": {"kind": "binary", "levels": ["no", "yes"]},
                "y": {"kind": "binary", "levels": ["0", "1"]},
            }
        }
    )


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(5)
    a, b = rng.random(300), rng.integers(2, size=300)
    y = (rng.random(300) < 1 / (1 + np.exp(1 - 2 * a))).astype(int)
    return {"a": a, "b": np.array(["no", "yes"], dtype=object)[b], "y": y.astype(str)}


def run(schema, table, *, callback=None, ledger=None, seed=3, model=MODEL, **settings):
    config = na.DPVIConfig(**{"num_steps": 40, "sampling_rate": 0.2, **settings})
    return na.release(
        model,
        table,
        schema=schema,
        privacy=BUDGET,
        config=config,
        insecure_seed=seed,
        callback=callback,
        ledger=ledger,
    )


def settings_for(schema, **settings):
    config = na.DPVIConfig(num_steps=40, **settings)
    description = ModelDescription(model=MODEL, schema=schema, guide=config.guide)
    return make_settings(description, config, noise_multiplier=2.0)


class TestStart:
    def test_the_default_is_the_priors_mean(self, schema, table):
        model = na.models.LogisticRegression(outcome="y", prior_mean={"a": 0.5, "Intercept": -2.0})
        made = run(schema, table, model=model)
        assert made.phi[0].tolist() == [-2.0, 0.5, 0.0, -3.0, -3.0, -3.0]

    def test_a_number_or_numbers_by_label_replace_it(self, schema, table):
        assert run(schema, table, initial_mu=0.25).phi[0, :3].tolist() == [0.25] * 3
        assert run(schema, table, initial_mu={"a": 1.5}).phi[0, :3].tolist() == [0.0, 1.5, 0.0]

    @pytest.mark.parametrize("start", [{"A": 1.0}, {"mu[a]": 1.0}])
    def test_an_unknown_label_is_named_with_the_known(self, schema, table, start):
        with pytest.raises(na.ArgumentError, match=r'initial_mu names .*"Intercept", "a", "b'):
            run(schema, table, initial_mu=start)

    def test_scales_start_where_they_are_told_to(self, schema, table):
        made = run(schema, table, initial_u={"a": -5.0})
        np.testing.assert_array_equal(made.phi[0, 3:], [-3.0, -5.0, -3.0])
        with pytest.raises(na.ArgumentError, match='initial_u names "z"'):
            run(schema, table, initial_u={"z": -5.0})
        with pytest.raises(na.ArgumentError, match=r"initial_u must lie in box_u .*got -5"):
            na.DPVIConfig(initial_u={"a": -3.0, "b": -5.0}, box_u=(-4.0, 0.0))
        with pytest.raises(na.ArgumentError, match=r"box_u must hold the start -3 of Intercept"):
            run(schema, table, initial_u={"a": -1.0, "b[yes]": -1.0}, box_u=(-2.0, 0.0))
        for start in (None, "0", {"a": 31.0}, True, {"a": None}):
            with pytest.raises(na.ArgumentError, match="initial_u"):
                na.DPVIConfig(initial_u=start)

    @pytest.mark.parametrize("start", [float("nan"), "0", {"a": float("inf")}, {"a": 1e9}, True])
    def test_a_start_that_is_no_number_is_refused(self, start):
        with pytest.raises(na.ArgumentError, match="initial_mu"):
            na.DPVIConfig(initial_mu=start)


class TestStepSizes:
    def test_early_steps_are_larger_and_the_others_are_not(self, schema, table):
        plain = run(schema, table)
        made = run(schema, table, early_steps=10, early_factor=4.0)
        moves = -np.diff(made.phi, axis=0) / made.noisy_gradient[:-1]
        np.testing.assert_allclose(moves[:10], np.tile(4 * made.learning_rate, (10, 1)), rtol=1e-9)
        np.testing.assert_allclose(moves[10:], np.tile(made.learning_rate, (29, 1)), rtol=1e-9)
        np.testing.assert_array_equal(made.learning_rate, plain.learning_rate)

    def test_early_factors_hold_single_coordinates_back(self, schema, table):
        made = run(schema, table, early_steps=10, early_factor=4.0, early_factors={"mu[a]": 0.01})
        moves = -np.diff(made.phi, axis=0) / made.noisy_gradient[:-1]
        early = made.learning_rate * [4.0, 0.01, 4.0, 4.0, 4.0, 4.0]
        np.testing.assert_allclose(moves[:10], np.tile(early, (10, 1)), rtol=1e-9)
        np.testing.assert_allclose(moves[10:], np.tile(made.learning_rate, (29, 1)), rtol=1e-9)
        alone = run(schema, table, early_steps=10, early_factors={"mu[a]": 0.01})
        moves = -np.diff(alone.phi, axis=0) / alone.noisy_gradient[:-1]
        np.testing.assert_allclose(moves[0], alone.learning_rate * [1, 0.01, 1, 1, 1, 1], rtol=1e-9)

    def test_factors_are_of_single_coordinates(self, schema, table):
        plain = run(schema, table)
        made = run(schema, table, learning_rate_factors={"mu[a]": 0.25, "u[b[yes]]": 3.0})
        np.testing.assert_allclose(made.learning_rate / plain.learning_rate, [1, 0.25, 1, 1, 1, 3])

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"early_steps": 5}, "belong together"),
            ({"early_factor": 3.0}, "belong together"),
            ({"early_steps": 40, "early_factor": 2.0}, "fewer than num_steps"),
            ({"early_steps": 5, "early_factor": 0.5}, "early_factor must be between 1"),
            ({"early_steps": -1, "early_factor": 2.0}, "early_steps"),
            ({"early_steps": True, "early_factor": 2.0}, "early_steps"),
            ({"learning_rate_factors": {"mu[a]": 0.0}}, "learning_rate_factors of mu"),
            ({"learning_rate_factors": 2.0}, "must map labels"),
            ({"early_factors": {"mu[a]": 0.5}}, "belong together"),
            ({"early_steps": 5, "early_factors": {"mu[a]": 0.0}}, "early_factors of mu"),
            ({"early_steps": 5, "early_factors": 2.0}, "early_factors must map labels"),
        ],
    )
    def test_bad_schedules_are_refused(self, settings, message):
        with pytest.raises(na.ArgumentError, match=message):
            na.DPVIConfig(num_steps=40, **settings)

    def test_a_factor_that_must_diverge_names_the_coordinate(self, schema, table):
        with pytest.raises(na.ArgumentError, match=r"mu\[a\] must diverge"):
            run(schema, table, learning_rate_factors={"mu[a]": 1e9})
        with pytest.raises(na.ArgumentError, match="must diverge"):
            run(schema, table, early_steps=3, early_factor=1e6, learning_rate=1.0)


class TestBox:
    def test_iterates_stay_in_it_and_the_last_too(self, schema, table):
        free = run(schema, table, learning_rate=0.02)
        assert np.abs(free.phi[:, :3]).max() > 0.3
        made = run(schema, table, learning_rate=0.02, box_mu=(-0.3, 0.1), box_u=(-3.5, -2.5))
        everywhere = np.vstack([made.phi, made.final_phi])
        assert everywhere[:, :3].min() >= -0.3
        assert everywhere[:, :3].max() <= 0.1
        assert everywhere[:, 3:].min() >= -3.5
        assert everywhere[:, 3:].max() <= -2.5
        assert (made.phi[:, :3] == -0.3).any() or (made.phi[:, :3] == 0.1).any()

    def test_a_step_without_the_box_is_what_it_was(self, schema, table):
        np.testing.assert_array_equal(
            run(schema, table).phi, run(schema, table, box_mu=(-1e3, 1e3), box_u=(-30.0, 30.0)).phi
        )

    def test_a_run_that_would_explode_does_not(self, schema, table, monkeypatch):
        # A step size that is refused, so that the box has something to do.
        monkeypatch.setattr("nadpvi.settings._check_stability", lambda *args, **kwargs: None)
        wild = {"num_steps": 1500, "learning_rate": 100.0}
        with pytest.raises(na.NadpviError, match="set box_mu and box_u"):
            run(schema, table, **wild)
        made = run(schema, table, **wild, box_mu=(-5.0, 5.0), box_u=(-10.0, 10.0))
        assert np.isfinite(made.phi).all()
        assert np.abs(made.phi[:, :3]).max() == 5.0

    @pytest.mark.parametrize("box", [(1.0, 1.0), (2.0, 1.0), (0.0,), "ab", (float("nan"), 1.0), 3.0])
    def test_bad_boxes_are_refused(self, box):
        with pytest.raises(na.ArgumentError, match="box_mu"):
            na.DPVIConfig(box_mu=box)

    def test_a_start_outside_is_refused(self, schema):
        with pytest.raises(na.ArgumentError, match="initial_u must lie in box_u"):
            na.DPVIConfig(box_u=(0.0, 1.0))
        for start in (None, 2.0, {"Intercept": 2.0, "a": 0.7}):
            with pytest.raises(na.ArgumentError, match=r"box_mu must hold the start (0|2) of (Intercept|a)"):
                settings_for(schema, box_mu=(0.5, 1.0), initial_mu=start)
        assert settings_for(schema, box_mu=(0.5, 1.0), initial_mu=0.5).initial_phi[:3].tolist() == [0.5] * 3


class TestKept:
    def test_thinning_keeps_each_kth_step_from_the_last_back(self, schema, table):
        whole = run(schema, table)
        for thin in (2, 3, 7, 13):
            made = run(schema, table, thin=thin)
            rows = np.arange(39, -1, -thin)[::-1]
            np.testing.assert_array_equal(made.phi, whole.phi[rows])
            np.testing.assert_array_equal(made.noisy_gradient, whole.noisy_gradient[rows])
            np.testing.assert_array_equal(made.final_phi, whole.final_phi)
            assert made.guarantee.num_steps == 40

    @pytest.mark.parametrize("thin", [14, 40, 100])
    def test_thinning_that_leaves_too_little_is_refused(self, thin):
        with pytest.raises(na.ArgumentError, match=f"thin={thin} leaves"):
            na.DPVIConfig(num_steps=40, thin=thin)

    def test_early_steps_within_a_fixed_window_are_refused(self):
        early = {"num_steps": 40, "early_factor": 5.0, "keep": "sums"}
        assert na.DPVIConfig(**early, early_steps=8).early_steps == 8
        with pytest.raises(na.ArgumentError, match=r"starts at step 8 \(got 9\): raise burn_in"):
            na.DPVIConfig(**early, early_steps=9)

    def test_sums_are_those_of_the_trace(self, schema, table):
        whole = run(schema, table)
        made = run(schema, table, keep="sums", burn_in=0.25)
        expected = make_trace_sums(whole.phi, whole.noisy_gradient, burn_in=0.25)
        assert made.sums.num_steps == expected.num_steps == 30
        for name in ("phi_bar", "g_bar", "s_pp", "s_gp", "s_gg"):
            np.testing.assert_allclose(getattr(made.sums, name), getattr(expected, name), rtol=1e-9)
        assert made.phi.shape == (1, 6)
        np.testing.assert_array_equal(made.phi[0], whole.phi[-1])
        np.testing.assert_array_equal(made.final_phi, whole.final_phi)

    def test_the_posterior_is_that_of_the_trace(self, schema, table, tmp_path):
        whole = na.infer(run(schema, table), method="exact", burn_in=0.25, draws=50, seed=1)
        made = run(schema, table, keep="sums", burn_in=0.25)
        loaded = na.Release.load(made.save(tmp_path / "sums.nc"))
        for release in (made, loaded):
            posterior = na.infer(release, method="exact", draws=50, seed=1)
            assert posterior.settings["burn_in"] == 0.25
            for name in ("phi_star", "coefficients"):
                np.testing.assert_allclose(
                    posterior.groups["posterior"][name],
                    whole.groups["posterior"][name],
                    rtol=1e-5,
                    atol=1e-7,
                )
        with pytest.raises(na.ArgumentError, match="burn_in was fixed"):
            na.infer(made, method="exact", burn_in=0.25)

    def test_sums_far_from_zero_do_not_cancel(self):
        rng = np.random.default_rng(0)
        phi = 1e6 + 1e-3 * rng.normal(size=(200, 3))
        gradient = -1e7 + rng.normal(size=(200, 3))
        from nadpvi.gradient_model.running import no_sums

        sums = no_sums(3)
        for row in zip(phi, gradient, strict=True):
            sums = sums.added(*row)
        expected = make_trace_sums(phi, gradient, burn_in=0.0)
        for name in ("s_pp", "s_gg"):
            np.testing.assert_allclose(getattr(sums.result(), name), getattr(expected, name), rtol=1e-5)

    def test_a_step_is_kept_as_a_whole_or_not_at_all(self, schema, monkeypatch):
        """An interrupt inside `add`, wherever it strikes, leaves no row without its count."""
        settings = settings_for(schema)
        keeper = Keeper(settings)
        keeper.add(np.ones(6), np.ones(6))

        class Torn(np.ndarray):
            def __setitem__(self, *args):
                raise KeyboardInterrupt

        torn = Trace(keeper._trace.phi, keeper._trace.noisy_gradient.view(Torn))
        monkeypatch.setattr(keeper, "_trace", torn)
        with pytest.raises(KeyboardInterrupt):
            keeper.add(np.full(6, 2.0), np.full(6, 2.0))
        assert keeper.num_done == 1
        assert len(keeper.trace().phi) == 1
        np.testing.assert_array_equal(keeper.result().trace.phi, np.ones((1, 6)))

    def test_a_short_window_is_refused_before_anything(self):
        with pytest.raises(na.ArgumentError, match="leaves 2 of 10 steps"):
            na.DPVIConfig(num_steps=10, keep="sums", burn_in=0.8)

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"keep": "everything"}, "keep must be"),
            ({"keep": "sums", "thin": 2}, "thin is for"),
            ({"thin": 0}, "thin"),
            ({"burn_in": 0.5}, "infer takes its own"),
            ({"keep": "sums", "burn_in": 1.0}, "burn_in must be in"),
        ],
    )
    def test_bad_choices_are_refused(self, settings, message):
        with pytest.raises(na.ArgumentError, match=message):
            na.DPVIConfig(**settings)

    @pytest.mark.parametrize("settings", [{"keep": "sums"}, {"thin": 2}])
    def test_a_checkpoint_needs_the_whole_trace(self, schema, table, tmp_path, settings):
        with pytest.raises(na.ArgumentError, match="checkpoint needs the whole trace"):
            na.release(
                MODEL,
                table,
                schema=schema,
                privacy=BUDGET,
                config=na.DPVIConfig(num_steps=40, **settings),
                checkpoint=tmp_path / "c.nc",
            )

    def test_the_settings_travel_with_the_release(self, schema, table, tmp_path):
        made = run(
            schema,
            table,
            early_steps=3,
            early_factor=2.0,
            box_mu=[-9, 9],
            initial_mu={"a": 0.1},
            learning_rate_factors={"mu[a]": 0.5},
            thin=4,
        )
        loaded = na.Release.load(made.save(tmp_path / "r.nc"))
        assert loaded.config == made.config
        np.testing.assert_array_equal(loaded.final_phi, made.final_phi)
        assert json.loads(json.dumps(made.config.to_dict()))["box_mu"] == [-9.0, 9.0]

    def test_a_file_of_the_first_format_is_still_read(self, schema, table, tmp_path, monkeypatch):
        made = run(schema, table)
        header = json.loads(made.to_dataset().attrs[HEADER])
        header["format_version"] = 1
        del header["window_steps"]
        for name in ("keep", "thin", "early_steps", "early_factor", "box_mu", "box_u", "burn_in"):
            del header["config"][name]
        data = made.to_dataset().drop_vars("final_phi")
        data.attrs[HEADER] = json.dumps(header)
        monkeypatch.setattr(na.Release, "to_dataset", lambda self: data)
        loaded = na.Release.load(made.save(tmp_path / "old.nc"))
        np.testing.assert_array_equal(loaded.final_phi, made.final_phi)
        assert loaded.config == made.config


class TestCallbacks:
    def test_it_sees_the_released_steps_and_no_more(self, schema, table):
        seen = []
        made = run(schema, table, callback=seen.append)
        assert [step.num_done for step in seen] == list(range(1, 41))
        assert {step.num_steps for step in seen} == {40}
        np.testing.assert_array_equal([step.phi for step in seen], made.phi)
        np.testing.assert_array_equal([step.noisy_gradient for step in seen], made.noisy_gradient)
        assert seen[0]._fields == ("num_done", "num_steps", "phi", "noisy_gradient")

    def test_what_it_does_to_its_arrays_reaches_nothing(self, schema, table):
        def spoil(step):
            step.phi[:] = 1e9
            step.noisy_gradient[:] = -1e9

        np.testing.assert_array_equal(run(schema, table, callback=spoil).phi, run(schema, table).phi)

    def test_what_it_raises_ends_the_run_and_all_planned_steps_count(self, schema, table, tmp_path):
        def stop(step):
            if step.num_done == 7:
                raise ValueError("seen enough")

        ledger = na.Ledger.create(tmp_path / "l.jsonl", label="table")
        with pytest.raises(na.RunInterrupted, match="after 7 of 40") as stopped:
            na.release(
                MODEL,
                table,
                schema=schema,
                privacy=BUDGET,
                config=na.DPVIConfig(num_steps=40),
                callback=stop,
                ledger=ledger,
            )
        assert isinstance(stopped.value.__cause__, ValueError)
        partial = stopped.value.release
        assert partial.num_steps == 7
        assert partial.guarantee.num_steps == 40
        assert partial.guarantee.epsilon > 0.99
        (entry,) = ledger.entries()
        assert entry.num_steps == 40
        assert entry.state.value == "committed"

    def test_what_it_raises_at_the_last_step_loses_nothing(self, schema, table):
        def stop(step):
            if step.num_done == 40:
                raise ValueError

        with pytest.raises(na.RunInterrupted) as stopped:
            run(schema, table, callback=stop)
        np.testing.assert_array_equal(stopped.value.release.phi, run(schema, table).phi)

    def test_something_that_cannot_be_called_is_refused(self, schema, table):
        with pytest.raises(na.ArgumentError, match="callback must be a function"):
            run(schema, table, callback=3)


def test_a_gradient_model_of_thinned_steps_takes_their_number(schema, table):
    made = run(schema, table, thin=2)
    assert make_gradient_model(made).sums.num_steps == 16
