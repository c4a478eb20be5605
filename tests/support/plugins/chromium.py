"""Debian's Chromium without a screen, as a person uses it: log in, look, click."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    NoSuchElementException,
    StaleElementReferenceException,
)
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

SCREENSHOTS = "VEEN_SCREENSHOTS"
"""The environment variable that names a folder to keep screenshots in."""
TIMEOUT_SEC = 120
_DRAWN_ANEW = (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    NoSuchElementException,
    StaleElementReferenceException,
)
_WIDE, _PHONE = (1280, 900), (390, 844)


def programs() -> tuple[str, str] | None:
    """The browser and its driver; None where they are not installed."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


class Chromium:
    def __init__(self, folder: Path) -> None:
        result = programs()
        assert result is not None
        options = Options()
        options.binary_location = result[0]
        wide = f"--window-size={_WIDE[0]},{_WIDE[1]}"
        # Root has no sandbox, and a container has little shared memory.
        for item in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", wide):
            options.add_argument(item)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(result[1]))
        self._folder = folder

    def close(self) -> None:
        self.driver.quit()

    def wait(self, there: Callable[[], Any], what: str) -> Any:
        """Airflow draws its pages anew as answers come: what was just there is looked for again."""
        waiting = WebDriverWait(
            self.driver, TIMEOUT_SEC, poll_frequency=0.2, ignored_exceptions=_DRAWN_ANEW
        )
        return waiting.until(lambda _driver: there(), f"{what}, at {self.driver.current_url}")

    def find(self, css: str) -> Any:
        """The first one, once it is there."""
        return self.wait(lambda: self.all(css), css)[0]

    def all(self, css: str) -> list[Any]:
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def click(self, css: str, text: str) -> None:
        """On the one that says so, once it does; a click that raises was none."""

        def clicked() -> bool:
            result = [item for item in self.all(css) if item.text == text]
            for item in result[:1]:
                item.click()
            return bool(result)

        self.wait(clicked, text)

    def log_in(self, url: str, name: str, password: str) -> None:
        self.driver.delete_all_cookies()
        self.driver.get(url)
        self.find("input[name=username]").send_keys(name)
        self.find("input[name=password]").send_keys(password)
        self.find("button[type=submit]").click()

    def open_page(self) -> None:
        """By the navigation, and into the frame that Airflow shows it in."""
        self.click("a", "Recorder & Bridge")
        self.driver.switch_to.frame(self.find("iframe[title='Recorder & Bridge']"))
        self.find("#streams")

    def leave_frame(self) -> None:
        self.driver.switch_to.default_content()

    def text(self) -> str:
        return str(self.wait(lambda: self.all("body")[0].text, "a page that says something"))

    def widths(self) -> tuple[int, int]:
        """Of the page, and of the window."""
        script = "return [document.documentElement.scrollWidth, window.innerWidth]"
        page, window = self.driver.execute_script(script)
        return int(page), int(window)

    def as_phone(self) -> None:
        size = {"width": _PHONE[0], "height": _PHONE[1], "deviceScaleFactor": 2, "mobile": True}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def downloads(self) -> Path:
        """Where files are saved from now on; one is there when it is whole."""
        where = {"behavior": "allow", "downloadPath": str(self._folder)}
        self.driver.execute_cdp_cmd("Page.setDownloadBehavior", where)
        return self._folder

    def show(self, css: str) -> None:
        self.driver.execute_script("arguments[0].scrollIntoView()", self.find(css))

    def shoot(self, name: str) -> None:
        """Into the test's own folder, and into the one that is to be kept."""
        self.driver.save_screenshot(str(self._folder / f"{name}.png"))
        if os.environ.get(SCREENSHOTS):
            path = Path(os.environ[SCREENSHOTS])
            path.mkdir(parents=True, exist_ok=True)
            self.driver.save_screenshot(str(path / f"{name}.png"))

    def refused_resources(self) -> list[str]:
        """What a policy of a page did not let it do."""
        messages = [str(item["message"]) for item in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]
        return [
            item for item in messages if "Content Security Policy" in item or "Refused to" in item
        ]
