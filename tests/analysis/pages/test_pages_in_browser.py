"""What a reader does with a report: hover, filter, hide, sort, choose; nothing leaves the file."""

import browser
import pytest
import reports
from fabricated.studies import ROWS

from pkm.analysis.pages import index_page

pytestmark = pytest.mark.slow

#: Two charts of each report, of different kinds where it has them.
FIGURES = {
    "fastlloyd": ("figure2", "figure4"),
    "dpm": ("figure1", "scaling"),
    "distdp": ("median", "grid"),
    "mufc": ("figure4", "losses"),
    "kaplan-stemmer": ("local", "capture"),
    "comparison": ("comparison_ratios", "comparison_ranks"),
}
MARKS = ".chart g.mark-symbol.role-mark path"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="module")
def page(folder):
    """Report on FastLloyd."""
    with pytest.MonkeyPatch.context() as patch:
        return build("fastlloyd", folder, patch)


@pytest.fixture(scope="module")
def driver():
    with browser.chromium() as opened:
        yield opened


def build(paper, folder, patch):
    out = folder / f"{paper}-quick"
    return reports.build_report(paper, ROWS[paper](), out, patch, FIGURES[paper])


def figure_of(driver, name):
    """Figure on the page, with its chart drawn."""
    figure = driver.find_element("id", name)
    driver.execute_script("arguments[0].scrollIntoView()", figure)
    figure.find_element("css selector", ".chart svg")
    return driver.find_element("css selector", f"#{name}.live")


def count(driver, figure, selector=MARKS):
    """Number of elements of a figure that are in the page at this moment."""
    script = "return arguments[0].querySelectorAll(arguments[1]).length"
    return driver.execute_script(script, figure, selector)


def wait_until(driver, condition):
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(driver, 60).until(lambda _: condition())


@pytest.mark.parametrize("paper", FIGURES)
def test_charts_replace_pictures_and_nothing_leaves_the_file(
    paper, folder, page, driver, monkeypatch
):
    opened = page if paper == "fastlloyd" else build(paper, folder, monkeypatch)
    browser.load(driver, opened)
    for name in FIGURES[paper]:
        figure = figure_of(driver, name)
        assert not figure.find_element("css selector", ".image").is_displayed()
        assert count(driver, figure, ".chart svg path") > 5
    assert browser.requests(driver) == []
    assert browser.complaints(driver) == []


def test_a_pointer_over_a_mark_sees_value_interval_seeds_and_epsilon(page, driver):
    from selenium.webdriver import ActionChains

    browser.load(driver, page)
    figure = figure_of(driver, "figure2")
    mark = figure.find_elements("css selector", MARKS)[0]
    ActionChains(driver).move_to_element(mark).perform()
    tooltip = driver.find_element("css selector", "#vg-tooltip-element.visible")
    for text in ("mean", "95 % interval", "seeds", "ε spent", "adjacency"):
        assert text in tooltip.text


def test_a_click_on_a_mark_says_where_its_rows_are(page, driver):
    from selenium.webdriver import ActionChains

    browser.load(driver, page)
    figure = figure_of(driver, "figure2")
    ActionChains(driver).click(figure.find_elements("css selector", MARKS)[0]).perform()
    note = figure.find_element("css selector", ".note")
    assert "pkm verify fastlloyd/figure2 profile=quick" in note.text
    link = note.find_element("tag name", "a").get_attribute("href")
    assert link.endswith(".parquet") and "/cells/" in link


def test_a_filter_hides_the_other_data_sets(page, driver):
    from selenium.webdriver.support.ui import Select

    browser.load(driver, page)
    figure = figure_of(driver, "figure2")
    marks = count(driver, figure)
    titles = count(driver, figure, ".chart .role-title-text text")
    choice = Select(driver.find_element("name", "dataset"))
    choice.select_by_visible_text("Iris")
    wait_until(driver, lambda: count(driver, figure) < marks)
    assert count(driver, figure, ".chart .role-title-text text") < titles
    choice.select_by_visible_text("all")
    wait_until(driver, lambda: count(driver, figure) == marks)


def test_a_click_in_the_legend_hides_a_method(page, driver):
    from selenium.webdriver import ActionChains

    browser.load(driver, page)
    figure = figure_of(driver, "figure2")
    marks = count(driver, figure)
    entry = figure.find_elements("css selector", ".role-legend-symbol path")[-1]
    ActionChains(driver).click(entry).perform()
    wait_until(driver, lambda: count(driver, figure) < marks)


def test_claims_are_sorted_and_chosen_by_verdict(page, driver):
    browser.load(driver, page)
    heading = driver.find_elements("css selector", "table.claims th button")[2]
    verdicts = "return [...document.querySelectorAll('table.claims > tbody > tr')]"
    orders = verdicts + ".map(row => Number(row.cells[2].dataset.order))"
    driver.execute_script("arguments[0].click()", heading)
    ascending = driver.execute_script(orders)
    assert ascending == sorted(ascending)
    assert len(set(ascending)) > 1
    driver.execute_script("arguments[0].click()", heading)
    assert driver.execute_script(orders) == sorted(ascending, reverse=True)
    chosen = driver.find_element("css selector", "button.count.not-run")
    driver.execute_script("arguments[0].click()", chosen)
    visible = driver.execute_script(
        verdicts + ".filter(row => !row.hidden).map(row => row.dataset.verdict)"
    )
    assert set(visible) == {"not run"}


@pytest.fixture
def telephone():
    with browser.chromium(width=420) as opened:
        # Windows have a smallest width, pages of a telephone do not.
        size = {"width": 420, "height": 900, "deviceScaleFactor": 1, "mobile": True}
        opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        yield opened


def test_a_narrow_window_has_no_part_outside_it(page, folder, telephone):
    for opened in (page, index_page.build(folder)):
        browser.load(telephone, opened)
        assert telephone.execute_script("return document.documentElement.scrollWidth") <= 420
    table = telephone.find_element("css selector", "table.papers")
    assert table.size["width"] <= 420


def test_the_front_page_leads_to_the_reports_and_back(page, folder, driver):
    browser.load(driver, index_page.build(folder))
    link = driver.find_element("css selector", "td a[href='fastlloyd-quick/index.html']")
    driver.execute_script("arguments[0].click()", link)
    assert driver.current_url == page.as_uri()
    home = driver.find_element("css selector", "nav a.home")
    driver.execute_script("arguments[0].click()", home)
    assert driver.current_url == (folder / "index.html").as_uri()
    assert browser.requests(driver) == []
    assert browser.complaints(driver) == []
