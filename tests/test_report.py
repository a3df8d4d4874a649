"""The report: its numbers are the file's, it says what is promised, and nothing in it is taken for HTML."""

import dataclasses

import numpy as np
import pytest
from report_cases import (
    MODELS,
    NASTY,
    SCHEMA,
    foreign_release,
    people,
    posterior_of,
    read_page,
    release_of,
)

import nadpvi as na
from nadpvi.baselines import last_iterate_posterior, non_private_posterior
from nadpvi.errors import ArgumentError, FileError
from nadpvi.markup import shown_number
from nadpvi.report.guarantee import best_guess
from nadpvi.report.page import render_report

pytestmark = pytest.mark.filterwarnings("ignore::nadpvi.InferenceWarning")

SUMMARY = "Posterior: mean, standard deviation and 90 % equal-tailed interval"
SHARES = "Standard deviation on the unconstrained scale, and its parts"


def check_table(page, posterior):
    """The page's table of parameters is the posterior's summary, number by number."""
    table = posterior.summary()
    header, *rows = page.tables[SUMMARY]
    assert header == ["parameter", "mean", "sd", "5%", "95%", "bulk ESS", "tail ESS", "R-hat"]
    assert [row[0] for row in rows] == [str(label) for label in table.index]
    for row, (_, numbers) in zip(rows, table.iterrows(), strict=True):
        assert row[1:] == [shown_number(numbers[name], name=name) for name in table.columns]


def test_the_numbers_are_those_of_the_file(tmp_path):
    posterior_of("logistic").save(tmp_path / "posterior.nc")
    loaded = na.Posterior.load(tmp_path / "posterior.nc")
    written = loaded.report(tmp_path / "report.html", release=release_of("logistic"))
    page = read_page(written.read_text("utf-8"))
    check_table(page, loaded)
    shares = loaded.uncertainty_shares()
    rows = page.tables[SHARES][1:]
    assert [row[0] for row in rows] == list(shares.index)
    assert [row[1:4] for row in rows] == [
        [shown_number(value) for value in numbers]
        for numbers in shares[["sd", "sd_data", "sd_privacy"]].to_numpy().tolist()
    ]
    numbers = dict(page.tables["The guarantee in numbers"][1:])
    guarantee = loaded.guarantee
    assert float(numbers["epsilon"]) == pytest.approx(guarantee.epsilon, rel=1e-5)
    assert float(numbers["noise multiplier"]) == pytest.approx(guarantee.noise_multiplier, rel=1e-5)
    assert numbers["noisy gradients"] == "120"
    assert guarantee.sentence() in page.text
    assert all(item in page.text for item in guarantee.assumed_public)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_model_has_a_page(name):
    posterior = posterior_of(name)
    page = read_page(render_report(posterior, release=release_of(name), table=people()))
    check_table(page, posterior)
    assert "Not covered by the guarantee." in page.text
    assert page.tags.count("h1") == 1


@pytest.mark.parametrize("method", ["nuts", "laplace", "dense"])
def test_every_method_has_a_page(method):
    posterior = posterior_of("logistic", method=method)
    page = read_page(render_report(posterior, release=release_of("logistic")))
    check_table(page, posterior)
    assert dict(page.tables["The draws"][1:])["method"] == method
    assert ("Do the chains agree?" in page.text) == (method != "laplace")
    assert ("what the other coordinates contribute is taken out" in page.text) == (method == "dense")


def test_the_same_posterior_gives_the_same_page():
    assert render_report(posterior_of("poisson")) == render_report(posterior_of("poisson"))


def test_a_trace_without_a_model_has_a_page():
    posterior = na.infer(foreign_release(), method="exact", draws=50, seed=1)
    page = read_page(render_report(posterior, release=foreign_release()))
    check_table(page, posterior)
    assert "No guarantee on record" in page.text
    assert "all of its uncertainty is about the optimum" in page.text
    assert SHARES not in page.tables
    with pytest.raises(ArgumentError, match="predicts no outcome"):
        posterior.report("unused.html", table=people())


def test_a_release_of_sums_has_a_page_without_a_trace():
    config = na.DPVIConfig(num_steps=120, sampling_rate=0.2, preconditioner_u=10.0, keep="sums")
    made = na.release(
        MODELS["logistic"],
        people(),
        schema=SCHEMA,
        privacy=na.PrivacyBudget(epsilon=4.0, delta=1e-5),
        config=config,
    )
    posterior = na.infer(made, method="exact", draws=50, seed=1)
    page = read_page(render_report(posterior, release=made))
    check_table(page, posterior)
    assert "keeps the sums of its window" in page.text


def test_a_custom_model_from_a_file_has_a_page(tmp_path):
    def log_likelihood(parameters, x, y):
        return -0.5 * ((y - parameters["center"]) / 30.0) ** 2

    model = na.models.CustomModel(
        name="middle",
        outcome="weight",
        predictors=(),
        parameters=[na.models.Parameter(name="center")],
        log_prior=lambda parameters: -0.5 * parameters["center"] ** 2 / 100.0**2,
        log_likelihood=log_likelihood,
        prior_mean=0.0,
        prior_sd=100.0,
    )
    made = na.release(
        model,
        people(),
        schema=SCHEMA,
        privacy=na.PrivacyBudget(epsilon=4.0, delta=1e-5),
        config=na.DPVIConfig(num_steps=60, sampling_rate=0.2, clip_norm=1.0),
    )
    na.infer(made, method="exact", draws=50, seed=1).save(tmp_path / "posterior.nc")
    loaded = na.Posterior.load(tmp_path / "posterior.nc")
    page = read_page(render_report(loaded, release=made))
    check_table(page, loaded)
    assert "came from a file, which holds no functions" in page.text


def test_names_are_never_markup():
    html = render_report(posterior_of("logistic"), release=release_of("logistic"), table=people())
    page = read_page(html)
    assert "script" not in page.tags
    assert NASTY in page.text
    assert NASTY not in html
    foreign = render_report(na.infer(foreign_release(), method="exact", draws=50, seed=1))
    assert NASTY not in foreign
    assert "script" not in read_page(foreign).tags
    # A name between dollar signs is a name, and no formula.
    assert "job[$x$]" in page.text


def test_the_page_asks_for_nothing_from_outside():
    html = render_report(posterior_of("logistic"), release=release_of("logistic"), table=people())
    page = read_page(html)
    for tag, attributes in page.attributes:
        assert tag not in ("script", "iframe", "object", "embed", "img", "base", "form")
        for name in ("src", "href", "xlink:href", "action"):
            assert attributes.get(name, "#").startswith(("#", "data:")), (tag, attributes)
        assert not any(name.startswith("on") for name in attributes)
    identifiers = [attributes["id"] for _, attributes in page.attributes if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))


def test_the_page_can_be_read_without_seeing_it():
    html = render_report(posterior_of("logistic"), release=release_of("logistic"), table=people())
    page = read_page(html)
    attributes = page.attributes
    assert ("html", {"lang": "en"}) in attributes
    assert page.tags.count("table") == page.tags.count("caption")
    assert all(found.get("scope") in ("col", "row") for tag, found in attributes if tag == "th")
    drawings = [found for _, found in attributes if found.get("class") == "drawing"]
    assert len(drawings) == page.tags.count("svg") == 15
    assert all(found["role"] == "img" and len(found["aria-label"]) > 30 for found in drawings)


def test_what_is_not_private_is_stamped():
    simulated = na.release(
        MODELS["coin"],
        people(),
        schema=SCHEMA,
        privacy=na.PrivacyBudget(epsilon=1.0, delta=1e-5),
        config=na.DPVIConfig(num_steps=60, sampling_rate=0.2),
        insecure_seed=3,
    )
    posterior = na.infer(simulated, method="exact", draws=50, seed=1)
    html = render_report(posterior)
    assert '<p class="stamp">NOT PRIVATE</p>' in html
    assert "Differentially private" not in html
    assert "right guesses" not in html
    exact = non_private_posterior(MODELS["coin"], people(), schema=SCHEMA, draws=50, seed=1)
    assert '<p class="stamp">NOT PRIVATE</p>' in render_report(exact)
    assert '<p class="stamp">Differentially private' in render_report(posterior_of("coin"))


def test_a_baseline_has_a_page_and_no_shares():
    posterior = last_iterate_posterior(release_of("logistic"), draws=50, seed=1)
    page = read_page(render_report(posterior))
    check_table(page, posterior)
    assert "no draws of phi_star" in page.text
    assert "No checks are on record" in page.text
    with pytest.raises(ArgumentError, match="leave the release out"):
        render_report(posterior, release=release_of("logistic"))


def test_findings_are_told_with_their_remedies():
    posterior = posterior_of("logistic")
    page = read_page(render_report(posterior))
    assert posterior.findings  # 120 steps are few
    for finding in posterior.findings:
        assert finding.sentence() in page.text
    verdicts = {row[0]: row[1] for row in page.tables["Checks of the release and of the draws"][1:]}
    has_doubt = any(finding.severity == "warning" for finding in posterior.findings)
    assert ("in doubt" in verdicts.values()) == has_doubt
    assert "passed" in verdicts.values()


def test_another_release_is_refused():
    other = na.release(
        MODELS["logistic"],
        people(),
        schema=SCHEMA,
        privacy=na.PrivacyBudget(epsilon=4.0, delta=1e-5),
        config=na.DPVIConfig(num_steps=120, sampling_rate=0.2, preconditioner_u=10.0),
    )
    for wrong in (other, foreign_release()):
        with pytest.raises(ArgumentError, match="not the release that the posterior was made of"):
            render_report(posterior_of("logistic"), release=wrong)
    with pytest.raises(ArgumentError, match="must be a Release"):
        render_report(posterior_of("logistic"), release="release.nc")


def test_a_forged_guarantee_is_not_reported():
    posterior = posterior_of("coin")
    forged = dataclasses.replace(posterior.guarantee, epsilon=posterior.guarantee.epsilon / 2)
    with pytest.raises(ArgumentError):
        render_report(dataclasses.replace(posterior, guarantee=forged))


def test_a_file_is_replaced_only_when_asked(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("mine")
    with pytest.raises(FileError, match="exists"):
        posterior_of("coin").report(path)
    assert path.read_text() == "mine"
    assert posterior_of("coin").report(path, overwrite=True) == path
    assert path.read_text("utf-8").startswith("<!doctype html>")


def test_a_best_guess_is_that_of_randomised_response():
    # With delta 0 randomised response reaches the bound: the truth with probability e^eps / (1 + e^eps).
    for epsilon in (0.0, 0.1, 1.0, 5.0):
        assert best_guess(epsilon=epsilon, delta=0.0) == pytest.approx(
            np.exp(epsilon) / (1 + np.exp(epsilon))
        )
    assert best_guess(epsilon=1000.0, delta=1e-5) == 1.0
    # With epsilon 0, a mechanism that leaks all with probability delta and answers at random otherwise.
    assert best_guess(epsilon=0.0, delta=0.2) == pytest.approx(0.2 + 0.8 / 2)


def test_test_rows_are_scored_as_they_should_be():
    posterior = posterior_of("multinomial")
    page = read_page(render_report(posterior, table=people()))
    scores = dict(page.tables["Scores on the test rows"][1:])
    predicted = posterior.predict(people())
    observed = people()["party"].map({"l": 0, "m": 1, "r": 2}).to_numpy()
    chance = predicted[np.arange(len(observed)), observed]
    assert scores["log score"] == shown_number(float(np.log(chance).mean()))
    assert scores["accuracy"] == shown_number(float((predicted.argmax(axis=1) == observed).mean()))
    posterior = posterior_of("linear")
    page = read_page(render_report(posterior, table=people()))
    error = posterior.predict(people()) - people()["weight"].to_numpy()
    scores = dict(page.tables["Scores on the test rows"][1:])
    assert scores["root mean square error"] == shown_number(float(np.sqrt((error**2).mean())))
