# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A real Chromium, Debian's package, without a window."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

Theme = Literal["light", "dark"]

SIZE = (1280, 900)
"""Pixels of the window."""


def find_chromium() -> str | None:
    """Return where the browser is; None if there is none."""
    return shutil.which("chromium")


@contextmanager
def open_browser() -> Iterator[Browser]:
    """
    Start the browser, and stop it in the end.

    :raises FileNotFoundError: if it is not installed
    """
    program = find_chromium()
    if program is None:
        raise FileNotFoundError("there is no chromium; on Debian: apt-get install chromium")
    with sync_playwright() as playwright:
        # As root it refuses to start in its sandbox. It sees nothing but the API server on this machine.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def log_in(browser: Browser, url: str, token: str, theme: Theme = "light") -> Iterator[BrowserContext]:
    """
    Open a profile of its own, of somebody who is logged in to Airflow.

    :param url: the address of the API server
    :param token: of the user
    :param theme: what the browser prefers, and Airflow follows
    """
    width, height = SIZE
    context = browser.new_context(
        color_scheme=theme,
        viewport={"width": width, "height": height},
        locale="en-GB",
        timezone_id="UTC",
        reduced_motion="reduce",
    )
    context.add_cookies([{"name": "_token", "value": token, "url": url}])
    try:
        yield context
    finally:
        context.close()
