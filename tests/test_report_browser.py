"""The report as a browser shows it: real headless Chromium, at desk and at phone width, light and dark.

Chromium and its driver are Debian's (``apt-get install chromium chromium-driver``). Without them the test is
skipped and says so, except where NADPVI_TEST_BROWSER=1 promises that they are there, as in CI.
"""

import itertools
import json
import os
import shutil

import pytest
from report_cases import NASTY, people, posterior_of, release_of

pytestmark = pytest.mark.filterwarnings("ignore::nadpvi.InferenceWarning")

WIDTHS = {"phone": 375, "small phone": 320, "desk": 1100}

CONTRASTS = """
const channel = c => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
const light = rgb => 0.2126 * channel(rgb[0]) + 0.7152 * channel(rgb[1]) + 0.0722 * channel(rgb[2]);
const parse = text => text.match(/[0-9.]+/g).map(Number);
const back = element => {
  for (let e = element; e; e = e.parentElement) {
    const rgb = parse(getComputedStyle(e).backgroundColor);
    if (rgb.length < 4 || rgb[3] > 0) return rgb;
  }
  return [255, 255, 255];
};
const low = [];
for (const e of document.body.querySelectorAll("*")) {
  if (e.closest("svg") || !e.checkVisibility()) continue;
  if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
  const pair = [light(parse(getComputedStyle(e).color)), light(back(e))].sort((a, b) => b - a);
  const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
  if (ratio < 4.5) low.push([e.tagName, e.className, e.textContent.slice(0, 40), ratio]);
}
return low;
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page with everything in it, and names that are HTML."""
    path = tmp_path_factory.mktemp("browser") / "report.html"
    return posterior_of("logistic", method="dense").report(
        path, release=release_of("logistic"), table=people()
    )


@pytest.fixture(scope="module")
def browser(page):
    """Chromium with the page open and its log and requests kept."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        reason = "Chromium or its driver is missing: apt-get install chromium chromium-driver."
        if os.environ.get("NADPVI_TEST_BROWSER") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    # Chromium's sandbox cannot be set up by root, whom CI runs as.
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options=options, service=Service(driver))
    opened.get(page.as_uri())
    yield opened
    opened.quit()


def show(browser, *, width, scheme="light", unfold=True):
    """Set width and colours, and unfold what is folded."""
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    script = "for (const d of document.querySelectorAll('details')) d.open = arguments[0];"
    browser.execute_script(script, unfold)


def tree(browser):
    """What assistive technology is told: (role, name) of every node that it is told of."""
    nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    return [
        (node["role"]["value"], node.get("name", {}).get("value", ""), node)
        for node in nodes
        if not node["ignored"]
    ]


# First: the log and the requests are those of opening the page, and a second reading would be empty.
def test_it_opens_without_errors_or_requests(browser, page):
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]
    assert page.as_uri() in asked
    assert all(url == page.as_uri() or url.startswith("data:") for url in asked)
    assert browser.title == "Posterior report: logistic regression of y"


def test_the_log_would_show_an_error_and_a_request(browser, page, tmp_path):
    bad = tmp_path / "bad.html"
    text = page.read_text("utf-8")
    for added in ('<img src="https://example.invalid/x.png" alt="">', "<script>alert(1)</script>"):
        bad.write_text(text.replace("<main", f"{added}<main", 1), "utf-8")
        browser.get(bad.as_uri())
        # The page's own policy stops both; neither is silent.
        assert any("Content Security Policy" in entry["message"] for entry in browser.get_log("browser"))
    browser.get(page.as_uri())
    browser.get_log("browser")


@pytest.mark.parametrize("width", WIDTHS.values(), ids=list(WIDTHS))
def test_nothing_runs_off_the_side(browser, width):
    for unfold in (False, True):
        show(browser, width=width, unfold=unfold)
        # A desk's browser takes some of it for the scroll bar.
        assert width - 20 <= browser.execute_script("return document.documentElement.clientWidth") <= width
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        # Wide tables and drawings scroll inside boxes that a keyboard can reach.
        wide = browser.execute_script(
            """return [...document.querySelectorAll("*")].filter(e => e.scrollWidth > e.clientWidth + 1 &&
            ["auto", "scroll"].includes(getComputedStyle(e).overflowX)).map(e => e.tabIndex)"""
        )
        assert all(index == 0 for index in wide)
        assert wide or not unfold or width > 1000


def test_texts_are_large_enough_on_a_phone(browser):
    show(browser, width=375)
    sizes = browser.execute_script(
        """return [...document.querySelectorAll("p, td, th, li, summary, a")]
        .filter(e => e.checkVisibility()).map(e => parseFloat(getComputedStyle(e).fontSize))"""
    )
    assert min(sizes) >= 14
    drawn = browser.execute_script(
        """return [...document.querySelectorAll("svg text")].filter(e => e.textContent.trim())
        .map(e => Math.max(e.getBoundingClientRect().height, e.getBoundingClientRect().width))"""
    )
    assert len(drawn) > 100
    assert min(drawn) >= 5  # a single digit is that wide
    heights = browser.execute_script(
        "return [...document.querySelectorAll('svg')].map(e => e.getBoundingClientRect().height)"
    )
    assert min(heights) > 120


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out(browser, scheme):
    show(browser, width=1100, scheme=scheme)
    assert browser.execute_script(CONTRASTS) == []
    back = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert back == {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 24, 28)"}[scheme]


def test_headings_lead_through_the_page(browser):
    show(browser, width=1100)
    levels = [
        (int(found["value"]["value"]), name)
        for role, name, node in tree(browser)
        if role == "heading"
        for found in node["properties"]
        if found["name"] == "level"
    ]
    assert [name for level, name in levels if level == 1] == ["Posterior report: logistic regression of y"]
    assert [name for level, name in levels if level == 2] == [
        "Guarantee",
        "Can the intervals be trusted?",
        "Parameters",
        "Prior and posterior",
        "Predictions without data",
        "The release",
        "Test rows",
        "How it was made",
    ]
    assert all(after - before <= 1 for (before, _), (after, _) in itertools.pairwise(levels))
    roles = {role for role, _, _ in tree(browser)}
    assert roles >= {"main", "navigation", "banner", "contentinfo"}


def test_tables_and_figures_have_names(browser):
    show(browser, width=1100)
    told = tree(browser)
    tables = [name for role, name, _ in told if role == "table"]
    assert len(tables) == browser.execute_script("return document.querySelectorAll('table').length")
    assert all(tables)
    assert "Posterior: mean, standard deviation and 90 % equal-tailed interval" in tables
    assert sum(role == "columnheader" for role, _, _ in told) >= 4 * len(tables) // 2
    assert sum(role == "rowheader" and name == NASTY for role, name, _ in told) >= 2
    pictures = [name for role, name, _ in told if role in ("image", "img")]
    assert len(pictures) == browser.execute_script("return document.querySelectorAll('svg').length") == 15
    assert all(len(name) > 30 for name in pictures)


def test_links_lead_to_parts_of_the_page(browser):
    broken = browser.execute_script(
        """return [...document.querySelectorAll("a")].map(a => a.getAttribute("href"))
        .filter(h => !h.startsWith("#") || !document.getElementById(h.slice(1)))"""
    )
    assert broken == []


def test_a_name_that_is_html_is_a_name(browser):
    assert browser.execute_script("return document.querySelectorAll('script').length") == 0
    names = browser.execute_script(
        "return [...document.querySelectorAll('tbody th')].map(cell => cell.textContent)"
    )
    assert NASTY in names
