"""A Chromium that is driven by a test."""

import os
import shutil
import sys
import time
import traceback

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

# Time within which a page has to show what a test waits for; far more than it takes.
WAIT_MAX_S = 20

NARROW = (390, 844)
MEDIUM = (800, 600)
LAPTOP = (1000, 700)
WIDE = (1600, 1000)


class Browser:
    """One window of Chromium. Its console is read after each test."""

    def __init__(self, screenshots):
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or shutil.which("google-chrome")
        # Containers have neither what the sandbox needs nor a large /dev/shm.
        for flag in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "hide-scrollbars", "no-proxy-server"):
            options.add_argument(f"--{flag}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        self.driver.set_page_load_timeout(WAIT_MAX_S)
        self.screenshots = screenshots
        os.makedirs(screenshots, exist_ok=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.driver.quit()

    def begin(self):
        """Sets everything back that a test may have changed."""
        self.size(*WIDE)
        self.media("light")
        self.scripts(True)
        self.driver.get("about:blank")
        self.driver.get_log("browser")

    def size(self, width, height):
        self.width = width
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def media(self, scheme):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def scripts(self, work):
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not work})

    def open(self, url):
        self.driver.get(url)

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def one(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector):
        """Returns the texts of all elements at one moment, also of those that are not to be seen."""
        return self.run("return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector)

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0]).textContent", selector)

    def until(self, holds, what):
        """Waits until `holds` returns something true, and returns it."""
        deadline = time.monotonic() + WAIT_MAX_S
        while time.monotonic() < deadline:
            try:
                if found := holds():
                    return found
            except (StaleElementReferenceException, WebDriverException):
                pass
            time.sleep(0.05)
        raise AssertionError(f"the page never showed that {what}")

    def refreshed(self):
        """Waits until the page has fetched itself anew from now on, and put it in its place."""
        self.run(
            "window.renders = 0;"
            "window.watcher?.disconnect();"
            "window.watcher = new MutationObserver(() => window.renders++);"
            "window.watcher.observe(document.getElementById('updated'), {childList: true, characterData: true, subtree: true})"
        )
        # The time of the last update changes with each, if seconds lie between them.
        self.until(lambda: self.run("return window.renders") >= 2, "it was updated twice")

    def overflow(self):
        """Returns by how many pixels the page is wider than the window."""
        widths = self.run("return [document.documentElement.scrollWidth, document.body.scrollWidth, window.innerWidth]")
        assert widths.pop() == self.width, widths
        return max(widths) - self.width

    def photograph(self, name, whole=False):
        path = os.path.join(self.screenshots, f"{name}.png")
        try:
            if whole:
                self.whole_height()
            self.driver.save_screenshot(path)
        except WebDriverException as error:
            print(f"no photograph {name}: {error}")

    def whole_height(self):
        self.size(self.width, min(3000, self.run("return document.documentElement.scrollHeight")))

    def complaints(self, expected=()):
        """Fails if the console has errors, warnings or violations of the policy, but for `expected` texts."""
        entries = [entry["message"] for entry in self.driver.get_log("browser")]
        entries = [entry for entry in entries if not any(text in entry for text in expected)]
        assert not entries, f"the console has: {entries}"

    def passes(self, test, *args):
        """Runs a test and prints its result; returns whether it passed."""
        self.begin()
        try:
            test(self, *args)
            self.complaints(expected=getattr(test, "expected", ()))
        except Exception:
            traceback.print_exc(file=sys.stdout)
            self.photograph(f"failed-{test.__name__}")
            print(f"test {test.__name__} ... FAILED")
            return False
        print(f"test {test.__name__} ... ok")
        return True
