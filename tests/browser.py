"""A real headless Chromium for tests of pages. Without one, its tests are skipped, loudly."""

import shutil
import tempfile
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync "
    "--disable-dev-shm-usage --force-color-profile=srgb"
).split()
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
MISSING = "no chromium and chromedriver on the PATH (apt-get install chromium chromium-driver)"

if not (CHROMIUM and DRIVER):
    warnings.warn(f"THE VIEWER IS NOT TESTED: {MISSING}", stacklevel=1)


@contextmanager
def chromium(width=1280, height=800):
    """A selenium driver with a new, empty profile, whose console and requests are recorded."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    profile = tempfile.mkdtemp()
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        resize(driver, width, height)
        yield driver
    finally:
        driver.quit()
        shutil.rmtree(profile, ignore_errors=True)


def resize(driver, width, height):
    """The size of the page itself."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def open_page(driver, address, place=""):
    """Open a page (a path or an address) anew and wait until it is ready."""
    url = address if str(address).startswith("http") else Path(address).as_uri()
    driver.get("about:blank")
    driver.get(f"{url}{place}")
    wait(driver, "return document.documentElement.dataset.ready === 'yes'")


def go(driver, place):
    """Another place of the open page."""
    driver.execute_script("location.hash = arguments[0]", place)


def wait(driver, script, *arguments, seconds=30):
    """The script's first true result. Raises AssertionError if there is none in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        result = driver.execute_script(script, *arguments)
        if result:
            return result
        time.sleep(0.02)
    raise AssertionError(f"never true: {script}\n{driver.get_log('browser')}")


def texts(driver, selector):
    """The texts of the elements that match."""
    return driver.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", selector
    )


def press(driver, *keys):
    """Type keys into what has the focus."""
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(driver).send_keys(*keys).perform()


def requests_of(driver):
    """The addresses that pages asked for since the last call."""
    import json

    urls = []
    for line in driver.get_log("performance"):
        message = json.loads(line["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            urls.append(message["params"]["request"]["url"])
    return urls
