"""The site of docs/, opened in a browser as a reader would: every page, the search."""

import functools
import http.server
import os
import subprocess
import sys
import threading
from pathlib import Path

import browser
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
#: Pages that are written while the site is built: the tree of files.
GENERATED = 1


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Folder of the built site; a broken link or anchor fails the build (mkdocs.yml, strict)."""
    pytest.importorskip("mkdocs", reason="MkDocs is not installed: make docs")
    # That of `make docs`, unless a file is newer.
    made = ROOT / "build" / "site" / "index.html"
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    times = [(ROOT / name).lstat().st_mtime for name in listed.stdout.splitlines()]
    if times and made.is_file() and made.stat().st_mtime > max(times):
        return made.parent
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
    # Not quiet: MkDocs counts only the warnings that it prints. Its notice of MkDocs 2 is not ours.
    variables = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run(command, cwd=ROOT, env=variables, check=True)
    return folder


@pytest.fixture(scope="module")
def driver():
    with browser.chromium() as opened:
        yield opened


def test_every_page_of_the_navigation_opens_from_the_folder(site, driver):
    browser.load(driver, site / "index.html")
    links = driver.find_elements("css selector", "nav.md-nav--primary a.md-nav__link[href]")
    addresses = {link.get_attribute("href").split("#")[0] for link in links}
    pages = {address for address in addresses if address.startswith("file:")}
    assert len(pages) == len(list((ROOT / "docs").rglob("*.md"))) + GENERATED
    for page in sorted(pages):
        browser.load(driver, Path(page.removeprefix("file://")))
        assert driver.find_elements("css selector", "article h1"), page
        assert not browser.complaints(driver), page
        assert not browser.requests(driver), page
        pictures = "return [...document.querySelectorAll('article img')].every(i => i.naturalWidth)"
        assert driver.execute_script(pictures), page


def test_the_leaderboard_is_sorted_and_filtered(site, driver):
    browser.load(driver, site / "leaderboard.html")
    place = driver.find_elements("css selector", ".filtered")[-1]
    table = place.find_element("css selector", "table")
    costs = "return [...arguments[0].tBodies[0].rows].map(row => +row.lastElementChild.textContent)"
    before = driver.execute_script(costs, table)
    table.find_elements("css selector", "th button")[-1].click()
    assert driver.execute_script(costs, table) == sorted(before) != before

    # One choice in each of three lists.
    choices = {"columns": "above 16", "records": "above 50,000", "bounds": "as declared"}
    for choice in place.find_elements("css selector", "select"):
        name = choice.find_element("css selector", "option").text.partition(":")[0]
        if name in choices:
            choice.find_element("xpath", f"option[text()='{choices[name]}']").click()
    rows = table.find_elements("css selector", "tbody tr")
    shown = [row.text for row in rows if row.is_displayed()]
    assert 0 < len(shown) < len(rows)
    assert all(all(word in row for word in choices.values()) for row in shown)


def test_the_page_of_files_has_the_modules(site):
    page = (site / "tree.html").read_text(encoding="utf-8")
    assert "privacy/" in page
    assert "samplers.py" in page


def test_the_search_finds_a_method(site, driver):
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        driver.get(f"http://127.0.0.1:{server.server_port}/index.html")
        driver.execute_script("document.querySelector('#__search').click()")
        field = driver.find_element("css selector", "input.md-search__input")
        field.send_keys("SynopsisKMeans")
        found = driver.find_element("css selector", "a.md-search-result__link")
        assert found.get_attribute("href").startswith(f"http://127.0.0.1:{server.server_port}/")
        server.shutdown()
