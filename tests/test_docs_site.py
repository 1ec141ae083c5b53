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
