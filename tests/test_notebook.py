"""What objects show in a notebook: the guarantee first, tables as HTML, and names never as markup."""

import pytest
from report_cases import (
    BUDGET,
    CONFIG,
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
from nadpvi.markup import shown_number

pytestmark = pytest.mark.filterwarnings("ignore::nadpvi.InferenceWarning")


@pytest.fixture(scope="module")
def shown():
    person = na.Person(column=f"{NASTY}id", max_rows=3)
    made = {
        "release": release_of("logistic"),
        "posterior": posterior_of("logistic"),
        "guarantee": release_of("logistic").guarantee,
        "schema": SCHEMA,
        "schema with persons": na.Schema(columns=SCHEMA.columns, person=person),
        "plan": na.plan(MODELS["logistic"], schema=SCHEMA, privacy=BUDGET, num_records=1000, config=CONFIG),
        "diagnostics": na.diagnose(release_of("logistic")),
        "foreign release": foreign_release(),
    }
    return {name: item._repr_html_() for name, item in made.items()}


def test_everything_is_a_table_with_a_caption(shown):
    for html in shown.values():
        page = read_page(html)
        assert page.tags.count("table") == page.tags.count("caption") >= 1
        assert all(found.get("scope") in ("col", "row") for tag, found in page.attributes if tag == "th")
        assert set(page.tags) <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "p", "strong"}


def test_names_are_escaped(shown):
    for name in ("posterior", "schema", "schema with persons", "plan", "diagnostics"):
        assert NASTY not in shown[name]
        assert NASTY in read_page(shown[name]).text


def test_the_guarantee_comes_first(shown):
    sentence = release_of("logistic").guarantee.sentence()
    for name in ("release", "posterior", "guarantee"):
        assert read_page(shown[name]).text.startswith(f"Private: {sentence}")
    assert read_page(shown["foreign release"]).text.startswith("No guarantee on record.")
    simulated = na.release(
        MODELS["coin"], people(), schema=SCHEMA, privacy=BUDGET, config=CONFIG, insecure_seed=1
    )
    for item in (simulated, simulated.guarantee):
        assert read_page(item._repr_html_()).text.startswith("NOT PRIVATE")


def test_a_posterior_shows_its_summary(shown):
    (rows,) = (
        table for caption, table in read_page(shown["posterior"]).tables.items() if caption[:9] == "Posterior"
    )
    table = posterior_of("logistic").summary()
    assert [row[0] for row in rows[1:]] == list(table.index)
    assert [row[1] for row in rows[1:]] == [shown_number(value) for value in table["mean"]]


def test_diagnostics_show_their_findings(shown):
    found = na.diagnose(release_of("logistic"))
    assert found.findings
    text = read_page(shown["diagnostics"]).text
    assert all(finding.sentence() in text for finding in found.findings)
    assert ("The intervals are in doubt." in text) == bool(found.warnings)
