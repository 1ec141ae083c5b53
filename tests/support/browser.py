"""Headless Chromium that opens pages of a folder, for tests of what a reader does with them."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from json import loads
from pathlib import Path

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
#: Schemes of what lies in the page or beside it.
LOCAL = ("file:", "data:", "blob:")


@contextmanager
def chromium(width: int = 1400, height: int = 1000) -> Iterator:
    """Open a browser with a window of a size; the test is skipped where none is installed."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    from selenium.webdriver.chrome.service import Service

    browser = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not browser or not driver:
        pytest.skip("no Chromium with chromedriver is installed (apt install chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS, f"--window-size={width},{height}", f"--user-data-dir={profile}"):
            options.add_argument(flag)
        opened = webdriver.Chrome(options=options, service=Service(driver))
        # Charts of a busy machine take long.
        opened.implicitly_wait(60)
        opened.set_script_timeout(120)
        opened.set_page_load_timeout(120)
        try:
            yield opened
        finally:
            opened.quit()


def load(driver, page: Path) -> None:
    """Open a page, with the logs of earlier ones read away."""
    for name in ("browser", "performance"):
        driver.get_log(name)
    driver.get(page.as_uri())


def complaints(driver) -> list[str]:
    """Messages of the console since the page was opened."""
    return [entry["message"] for entry in driver.get_log("browser")]


def requests(driver) -> list[str]:
    """Addresses that pages of files have requested, and that are not on this machine."""
    events = [loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
    # The browser's own first page requests parts of itself.
    addresses = [each["request"]["url"] for each in sent if each["documentURL"].startswith("file:")]
    return [address for address in addresses if not address.startswith(LOCAL)]
