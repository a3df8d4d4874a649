"""Files of releases and posteriors that were damaged, or edited by hand, and guarantees that do not add up.

An editor who computes the checksum anew is met by the checks of what the file says; one who does not, by the
checksum.
"""

import dataclasses
import gc
import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import nadpvi as na
from nadpvi.containers.checksum import HEADER, with_checksum
from nadpvi.containers.heaps import has_endless_heap
from nadpvi.containers.storage import to_netcdf
from nadpvi.errors import InferenceWarning
from nadpvi.privacy.accounting import epsilon_accounted_afresh
from nadpvi.privacy.accounting_quick import quick_epsilon
from nadpvi.privacy.guarantee_check import check_accounted, check_stated
from nadpvi.privacy.guarantee_maker import make_guarantee
from nadpvi.privacy.selection import Selection

DATA = Path(__file__).parent / "data" / "cmdstan"
MODEL = na.models.LogisticRegression(outcome="y")
BUDGET = na.PrivacyBudget(epsilon=1.0, delta=1e-5)
CONFIG = na.DPVIConfig(num_steps=100, sampling_rate=0.1)
COLUMNS = {
    "age": {"kind": "real", "lower": 0, "upper": 100},
    "y": {"kind": "binary", "levels": ["no", "yes"]},
}
SCHEMA = na.Schema.from_dict({"columns": COLUMNS})


def make_table(num_rows=400):
    rng = np.random.default_rng(0)
    return pd.DataFrame({"age": rng.uniform(0, 100, num_rows), "y": rng.choice(["no", "yes"], num_rows)})


def release_of(**changes):
    settings = {"schema": SCHEMA, "privacy": BUDGET, "config": CONFIG} | changes
    return na.release(MODEL, make_table(), **settings)


@pytest.fixture(scope="module")
def made():
    return release_of()


@pytest.fixture(scope="module")
def posterior(made):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InferenceWarning)
        return na.infer(made, method="exact", draws=20, seed=1)


@pytest.fixture(params=["made", "posterior"])
def either(request):
    """A release and a posterior in turn."""
    return request.getfixturevalue(request.param)


def content_of(thing):
    return thing.to_dataset() if isinstance(thing, na.Release) else thing.to_datatree()


def edited(thing, path, change, *, anew=True):
    """Write a file whose header or arrays `change` has edited in place, with its old checksum or anew."""
    data = with_checksum(content_of(thing)).copy(deep=True)
    header = json.loads(data.attrs[HEADER])
    change(header, data)
    data.attrs[HEADER] = json.dumps(header)
    path.write_bytes(to_netcdf(with_checksum(data) if anew else data))
    return type(thing), path


def guarantee(**changes):
    def change(header, data):
        header["guarantee"].update(changes)

    return change


def swap_labels(group):
    """Swap the first two labels of phi, in place."""
    labels = group["phi"].to_numpy().copy()
    labels[:2] = labels[1::-1].copy()
    group.coords["phi"] = xr.DataArray(labels, dims="phi")


def refusal(thing, path, change, *, anew=True):
    """Return the one line with which an edited file is refused."""
    kind, file = edited(thing, path / "edited.nc", change, anew=anew)
    with pytest.raises(na.FileError) as error:
        kind.load(file)
    assert "\n" not in str(error.value)
    assert "edited.nc is damaged or edited: " in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"epsilon": 0.01}, "guarantee states epsilon 0.01 at delta 1e-05, but a run as it describes spends"),
        ({"delta": 1e-9}, "spends epsilon"),
        ({"delta": 1e-14}, "guarantee cannot be accounted: delta must be at least"),
        ({"neighbouring_relation": "replace_one"}, "spends epsilon"),
        ({"discreteness": 1e9}, "discreteness must be between 0 and 0.01"),
        ({"discreteness": 0.01, "epsilon": 0.019}, "epsilon holds twice discreteness"),
        ({"assumed_public": []}, "assumed_public must name something"),
        ({"unit": "one person"}, "its schema is for one record"),
        ({"unit": "one person", "records_per_unit": 50}, "its schema is for one record"),
        ({"mechanism": "discrete Gaussian\x1b[2J\nFORGED"}, "mechanism must be printable"),
        ({"accountant": "a\nb"}, "accountant must be printable"),
        ({"assumed_public": ["schema\r"]}, "assumed_public must be printable"),
    ],
)
def test_a_forged_guarantee_is_refused(either, tmp_path, changes, reason):
    assert reason in refusal(either, tmp_path, guarantee(**changes))


def test_other_steps_than_the_configuration_s_are_refused(made, tmp_path):
    assert "but its configuration 100" in refusal(made, tmp_path, guarantee(num_steps=101))
    assert "it is for 50 steps, and 100 are seen" in refusal(made, tmp_path, guarantee(num_steps=50))

    def of_config(**changes):
        return lambda header, data: header["config"].update(changes)

    assert "its configuration 3" in refusal(made, tmp_path, of_config(num_steps=3))
    assert "its configuration 0.9" in refusal(made, tmp_path, of_config(sampling_rate=0.9))
    assert "its configuration 5" in refusal(made, tmp_path, of_config(clip_norm=5.0))


def test_a_simulation_cannot_be_made_private(tmp_path):
    simulated = release_of(insecure_seed=1)
    change = guarantee(is_private=True, reason_not_private=None)
    assert "is_private must be false with a mechanism that promises nothing" in refusal(
        simulated, tmp_path, change
    )
    assert "spends epsilon" in refusal(simulated, tmp_path, guarantee(epsilon=0.01))
    promised = release_of().guarantee
    for words in ("no noise", "Gaussian, Simulation", "from a seeded generator"):
        with pytest.raises(na.ArgumentError, match="is_private must be false"):
            dataclasses.replace(promised, mechanism=words)


def test_the_number_of_records_must_be_named(tmp_path):
    config = dataclasses.replace(CONFIG, prior_term="per_record", num_records=400)
    made = release_of(config=config)
    named = made.guarantee.assumed_public
    assert "must name the number of records, 400" in refusal(
        made, tmp_path, guarantee(assumed_public=[item for item in named if "400" not in item])
    )


def test_fewer_steps_than_sums_or_thinned_steps_show(tmp_path):
    for changes in ({"keep": "sums", "burn_in": 0.5}, {"thin": 3}):
        made = release_of(config=dataclasses.replace(CONFIG, num_steps=300, **changes))
        assert na.Release.load(made.save(tmp_path / "whole.nc", overwrite=True)).guarantee == made.guarantee
        assert "it is for 250 steps" in refusal(made, tmp_path, guarantee(num_steps=250))


def test_a_forged_guarantee_is_refused_in_memory(made):
    forged = dataclasses.replace(made.guarantee, epsilon=0.3)
    with pytest.raises(na.ArgumentError, match="spends epsilon"):
        dataclasses.replace(made, guarantee=forged)
    settings = ("phi", "noisy_gradient", "noise_multiplier", "clip_norm", "sampling_rate", "preconditioner")
    arrays = {name: getattr(made, name) for name in settings}
    with pytest.raises(na.ArgumentError, match="spends epsilon"):
        na.Release.from_arrays(**arrays, guarantee=forged)
    assert na.Release.from_arrays(**arrays, guarantee=made.guarantee).guarantee == made.guarantee


def stated(**changes):
    settings = {
        "budget": na.PrivacyBudget(epsilon=100.0, delta=1e-5),
        "noise_multiplier": 3.0,
        "num_steps": 200,
        "sampling_rate": 0.05,
        "clip_norm": 1.0,
        "mechanism": "discrete Gaussian",
        "assumed_public": ("schema",),
    }
    return make_guarantee(**settings | changes)


REPLACING = na.PrivacyBudget(epsilon=100.0, delta=1e-5, neighbouring_relation="replace_one")
GENUINE = [
    {},
    {"sampling_rate": 1.0},
    {"budget": REPLACING},
    {"budget": REPLACING, "sampling_rate": 1.0},
    {"unit": "one person", "records_per_unit": 4},
    {"discreteness": 1e-3},
    {"noise_multiplier": 0.1, "num_steps": 3, "budget": na.PrivacyBudget(epsilon=1e4, delta=1e-5)},
    {"selection": Selection(mean_runs=5, score_noise_multiplier=20)},
    {"reason_not_private": "a simulation", "mechanism": "simulation"},
    {"budget": na.PrivacyBudget(epsilon=1.0, delta=0.4), "noise_multiplier": 100.0},
]


@pytest.mark.parametrize("changes", GENUINE)
def test_genuine_guarantees_pass_and_smaller_ones_do_not(changes):
    genuine = stated(**changes)
    check_stated(genuine)
    check_accounted(genuine)
    if genuine.epsilon == 0:
        return
    with pytest.raises(na.ArgumentError, match="spends epsilon"):
        check_stated(dataclasses.replace(genuine, epsilon=0.95 * genuine.epsilon))
    tolerance = 5e-3 if genuine.noise_multiplier < 0.2 else 1e-3
    with pytest.raises(na.ArgumentError, match="spends epsilon"):
        check_accounted(dataclasses.replace(genuine, epsilon=(1 - 1.1 * tolerance) * genuine.epsilon))
    check_accounted(dataclasses.replace(genuine, epsilon=(1 - 0.9 * tolerance) * genuine.epsilon))


def test_a_run_without_noise_promises_nothing_that_could_be_accounted():
    check_accounted(
        make_guarantee(
            budget=na.NonPrivate(),
            noise_multiplier=0.0,
            num_steps=10,
            sampling_rate=0.5,
            clip_norm=1.0,
            mechanism="no noise",
            assumed_public=(),
        )
    )


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
@pytest.mark.parametrize(
    ("sigma", "steps", "rate", "delta"),
    [(5.0, 100, 0.1, 1e-5), (0.5, 30, 0.03, 1e-9), (30.0, 1000, 0.5, 1e-2), (0.1, 3, 0.01, 1e-5)],
)
def test_the_quick_account_is_near_the_full_one(sigma, steps, rate, delta, relation):
    settings = {
        "noise_multiplier": sigma,
        "num_steps": steps,
        "sampling_rate": rate,
        "delta": delta,
        "neighbouring_relation": relation,
    }
    full = epsilon_accounted_afresh(**settings)
    assert quick_epsilon(**settings) == pytest.approx(full, rel=0.01)


def test_the_quick_account_of_what_hardly_spends():
    settings = {"noise_multiplier": 50.0, "num_steps": 1, "neighbouring_relation": "add_or_remove_one"}
    assert quick_epsilon(**settings, sampling_rate=0.01, delta=1e-2) == 0.0
    assert quick_epsilon(**settings, sampling_rate=1.0, delta=0.5) == 0.0


class TestChecksum:
    def test_an_edit_without_its_checksum_is_refused(self, either, tmp_path):
        def header(header, data):
            header["guarantee"]["accountant_version"] += "."

        def array(header, data):
            group = data if isinstance(data, xr.Dataset) else data["posterior"]
            name = "iterates" if isinstance(data, xr.Dataset) else "phi_star"
            group[name].values[0, 0] += 1e-12

        def label(header, data):
            swap_labels(data if isinstance(data, xr.Dataset) else data["posterior"])

        def absent(header, data):
            del header["sha256"]

        for change in (header, array, label, absent):
            line = refusal(either, tmp_path, change, anew=False)
            assert "what it holds does not have its checksum" in line

    def test_what_was_saved_is_intact_and_saved_again(self, either, tmp_path):
        first = type(either).load(either.save(tmp_path / "1.nc"))
        second = type(either).load(first.save(tmp_path / "2.nc"))
        assert with_checksum(content_of(second)).attrs == with_checksum(content_of(either)).attrs

    def test_all_that_groups_may_hold_survives(self, posterior, tmp_path):
        kinds = {
            "truth": ("item", np.array([True, False])),
            "count": ("item", np.array([1, 2], dtype=np.int32)),
            "single": ("item", np.array([0.5, np.nan], dtype=np.float32)),
            "text": ("item", np.array(["ä", ""], dtype=object)),
            "scalar": ((), 3.0),
        }
        groups = {**posterior.groups, "constant_data": xr.Dataset(kinds, coords={"item": ["a", "b"]})}
        changed = dataclasses.replace(posterior, groups=groups)
        back = na.Posterior.load(changed.save(tmp_path / "p.nc"))
        xr.testing.assert_equal(back.groups["constant_data"], groups["constant_data"])

    def test_flipped_bits_never_change_what_is_read(self, made, tmp_path):
        whole, rng = made.save(tmp_path / "release.nc").read_bytes(), np.random.default_rng(1)
        original, path, num_refused = made.to_dataset(), tmp_path / "flipped.nc", 0
        for _ in range(60):
            damaged = bytearray(whole)
            damaged[int(rng.integers(len(whole)))] ^= 1 << int(rng.integers(8))
            path.write_bytes(damaged)
            try:
                back = na.Release.load(path).to_dataset()
            except na.FileError:
                num_refused += 1
            else:
                assert back.identical(original)
        assert num_refused > 20

    def test_files_from_before_there_were_checksums(self, either, tmp_path):
        assert na.Release.load(DATA / "release.nc").num_steps == 60

        def older(header, data):
            header["format_version"] = 2 if isinstance(either, na.Release) else 1
            header.pop("sha256", None)

        kind, path = edited(either, tmp_path / "old.nc", older, anew=False)
        assert kind.load(path).guarantee == either.guarantee

    def test_a_damaged_version_does_not_turn_the_check_off(self, either, tmp_path):
        def older(header, data):
            header["format_version"] = 2 if isinstance(either, na.Release) else 1

        line = refusal(either, tmp_path, older, anew=False)
        assert "what it holds does not have its checksum" in line

    @pytest.mark.parametrize("version", [-3, 0, None, "2", 2.0, True])
    def test_versions_that_never_were(self, either, tmp_path, version):
        def change(header, data):
            header["format_version"] = version

        assert "there is no format version" in refusal(either, tmp_path, change)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("learning_rate", 0.0, "learning_rate must be finite and positive"),
        ("learning_rate", -1.0, "learning_rate must be finite and positive"),
        ("learning_rate", np.inf, "learning_rate must be finite and positive"),
        ("model_prior_sd", 0.0, "model_prior_sd must be finite and positive"),
        ("model_prior_sd", -1.0, "model_prior_sd must be finite and positive"),
        ("model_prior_sd", np.inf, "model_prior_sd must be finite and positive"),
        ("final_phi", np.nan, "final_phi is not finite"),
        ("final_phi", np.inf, "final_phi is not finite"),
    ],
)
def test_arrays_that_no_run_can_have_had(made, tmp_path, name, value, reason):
    with pytest.raises(na.ArgumentError, match=reason):
        dataclasses.replace(made, **{name: np.full(made.dimension, value)})

    def change(header, data):
        data[name].values[0] = value

    assert reason in refusal(made, tmp_path, change)


def test_without_a_learning_rate_the_final_iterate_may_be_unknown(made):
    unknown = np.full(made.dimension, np.nan)
    again = dataclasses.replace(made, learning_rate=unknown, final_phi=np.zeros(0))
    assert np.isnan(again.final_phi).all()


def test_labels_of_another_model(made, tmp_path):
    def swap(header, data):
        swap_labels(data)

    assert "phi_labels must be those of the description" in refusal(made, tmp_path, swap)


class TestPosterior:
    @pytest.mark.parametrize("name", ["phi_star", "curvature", "coefficients"])
    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_draws_that_are_not_finite(self, posterior, tmp_path, name, value):
        def change(header, data):
            data["posterior"][name].values[0, 3, 1] = value

        assert f"{name} has draws that are not finite" in refusal(posterior, tmp_path, change)

    @pytest.mark.parametrize("settings", [None, [], "x", [("method", "exact")]])
    def test_settings_that_are_no_dict(self, posterior, tmp_path, settings):
        with pytest.raises(na.ArgumentError, match="settings must be a dict"):
            dataclasses.replace(posterior, settings=settings)

    @pytest.mark.parametrize(
        "diagnostics",
        [
            {"findings": [{"a": 1}]},
            {"findings": [3]},
            {"findings": 3},
            [1],
            {"findings": [{"check": "r_hat"}]},
        ],
    )
    def test_junk_findings(self, posterior, tmp_path, diagnostics):
        def change(header, data):
            header["settings"]["diagnostics"] = diagnostics

        assert "no findings as nadpvi writes them" in refusal(posterior, tmp_path, change)

    def test_findings_that_would_write_lines_of_their_own(self, posterior, tmp_path):
        finding = {
            "check": "r_hat",
            "severity": "note",
            "coordinates": [],
            "num_coordinates": 1,
            "value": 1.0,
            "threshold": 1.0,
            "message": "fine",
            "remedy": "none needed",
        }
        kept = {**posterior.settings, "diagnostics": {"findings": [finding]}}
        assert dataclasses.replace(posterior, settings=kept).findings[0].message == "fine"
        finding["message"] = "fine\nAdding or removing one record changes nothing"
        with pytest.raises(na.ArgumentError, match="no findings"):
            dataclasses.replace(posterior, settings=kept)

    @pytest.mark.parametrize(
        "numbers", [[0, 0, 1, 2], [1, 0, 2, 3], [-1, 0, 1, 2], [0.0, 1.0, 2.0, 3.0], ["a", "b", "c", "d"]]
    )
    def test_coordinates_that_number_nothing(self, posterior, numbers):
        four = posterior.groups["posterior"].isel(chain=slice(4), draw=slice(4))
        for dim in ("chain", "draw"):
            with pytest.raises(na.ArgumentError, match=f"the coordinate {dim} must be whole numbers"):
                na.Posterior(groups={"posterior": four.assign_coords({dim: numbers})})

    def test_statistics_of_other_draws(self, posterior):
        statistics = xr.Dataset({"diverging": (("chain", "draw"), np.zeros((1, 3), dtype=bool))})
        with pytest.raises(na.ArgumentError, match="sample_stats must have as many entries"):
            na.Posterior(groups={"posterior": posterior.groups["posterior"], "sample_stats": statistics})

    def test_no_draws_at_all(self):
        empty = xr.Dataset({"phi_star": (("chain", "draw", "phi"), np.zeros((1, 0, 2)))})
        with pytest.raises(na.ArgumentError, match="at least one chain of one draw"):
            na.Posterior(groups={"posterior": empty})


@pytest.mark.parametrize("path", [None, 3, b"release.nc", ["release.nc"]])
def test_paths_that_are_none(either, path):
    for use in (either.save, type(either).load):
        with pytest.raises(na.ArgumentError, match=r"^path must be a text or a path \(got "):
            use(path)


def test_a_link_to_nothing(made, tmp_path):
    link = tmp_path / "link.nc"
    link.symlink_to("target.nc")
    with pytest.raises(na.FileError, match="is a link to a file that does not exist; remove the link"):
        made.save(link)
    assert made.save(link, overwrite=True) == link
    assert not link.is_symlink()
    assert na.Release.load(link).dimension == made.dimension


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_failed_export_leaves_nothing_new(made, tmp_path, monkeypatch, failing):
    import os

    original, calls = os.fsync, []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) == failing:
            raise OSError(28, "No space left on device")
        return original(descriptor)

    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "labels.csv").write_text("the last export's")
    monkeypatch.setattr(os, "fsync", full)
    places = {"data": tmp_path / "data.json", "folder": tmp_path / "program"}
    with pytest.raises(na.FileError, match="No space left"):
        na.export_stan(made, **places, overwrite=True)
    assert [item.name for item in (tmp_path / "program").iterdir()] == ["labels.csv"]
    assert not places["data"].exists()
    (tmp_path / "program" / "labels.csv").unlink()
    na.export_stan(made, **places)
    assert places["data"].exists()


def test_export_paths_that_are_none(made, tmp_path):
    with pytest.raises(na.ArgumentError, match=r"^folder must be a text or a path"):
        na.export_stan(made, data=tmp_path / "data.json", folder=None)
    with pytest.raises(na.ArgumentError, match=r"^data must be a text or a path"):
        na.export_stan(made, data=3, folder=tmp_path)


def test_damage_leaves_no_complaint_on_standard_error(either, tmp_path, monkeypatch):
    """What h5netcdf does in ``__del__`` of an object that was never whole goes to `sys.unraisablehook`."""
    complaints = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    whole = bytearray(either.save(tmp_path / "whole.nc").read_bytes())
    at = whole.index(b"_NCProperties")
    path, num_refused = tmp_path / "damaged.nc", 0
    places = [*range(at - 40, at + 60, 2), *range(0, 200, 5)]
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 0x40
        path.write_bytes(damaged)
        try:
            type(either).load(path)
        except na.FileError:
            num_refused += 1
    gc.collect()
    assert num_refused > 10
    assert complaints == []


def test_damage_on_which_hdf5_would_never_return_is_refused(either, tmp_path):
    """Free space of no size in the heap of texts: one byte is enough to get there."""
    damaged = bytearray(either.save(tmp_path / "whole.nc").read_bytes())
    assert not has_endless_heap(bytes(damaged))
    heap = damaged.index(b"GCOL")
    size = int.from_bytes(damaged[heap + 8 : heap + 16], "little")
    # All objects but the first are gone, and what is left is zeros.
    first = 16 + -(-int.from_bytes(damaged[heap + 24 : heap + 32], "little") // 8) * 8
    damaged[heap + 16 + first : heap + size] = bytes(size - 16 - first)
    (tmp_path / "damaged.nc").write_bytes(damaged)
    load = f"import nadpvi as na; na.{type(either).__name__}.load({str(tmp_path / 'damaged.nc')!r})"
    done = subprocess.run(
        [sys.executable, "-c", load], capture_output=True, text=True, timeout=120, check=False
    )
    assert "damaged.nc is not a file that nadpvi wrote, or it is damaged" in done.stderr


def summary(path, *options):
    command = [sys.executable, "-m", "nadpvi", "summary", str(path), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_summary_accounts_in_full(made, tmp_path):
    """So little below what is spent that loading does not see it."""
    path = made.save(tmp_path / "whole.nc")
    assert summary(path).returncode == 0
    kind, forged = edited(made, tmp_path / "forged.nc", guarantee(epsilon=0.995 * made.guarantee.epsilon))
    loaded = kind.load(forged)
    with pytest.raises(na.ArgumentError, match="spends epsilon"):
        loaded.check_guarantee()
    done = summary(forged)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "spends epsilon" in " ".join(done.stderr.split())
    assert "factor exp" not in done.stdout


def test_summary_says_what_is_kept(tmp_path):
    config = dataclasses.replace(CONFIG, num_steps=60, keep="sums", burn_in=0.5)
    path = release_of(config=config).save(tmp_path / "sums.nc")
    lines = summary(path).stdout.splitlines()
    assert {"steps: 60", "keeps: sums", "window_steps: 30"} <= set(lines)
    facts = json.loads(summary(path, "--json").stdout)
    assert (facts["steps"], facts["keeps"], facts["window_steps"]) == (60, "sums", 30)
