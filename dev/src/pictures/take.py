# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``./breeze pictures``: pictures of both pages, light and dark, with and without data."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from pictures.api_server import ApiServer, open_api_server
from pictures.browser import Theme, log_in, open_browser
from pictures.places import (
    AIRFLOW_FAILURES,
    FAILURES,
    QUIET,
    RUN_ID,
    STORY,
    UNTOUCHED,
    airflow_launches,
    launches,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

THEMES: tuple[Theme, ...] = get_args(Theme)

DOCS = Path(__file__).parents[3] / "docs"

_SHOWN = "main[aria-busy=false]"


FOR_SITE = (
    "airflow-failures-light",
    "airflow-failures-dark",
    "airflow-launches-light",
    "airflow-launches-dark",
)
"""Those that the site shows."""


def take_for_site() -> None:
    """Take the pictures that the site shows anew."""
    with tempfile.TemporaryDirectory(prefix="pictures-") as folder:
        for path in take_all(Path(folder)):
            if path.stem in FOR_SITE:
                shutil.copy(path, DOCS / "pictures" / path.name)


def take_all(folder: Path) -> list[Path]:
    """
    Take every picture.

    :param folder: where to put them; it is made
    :return: the files
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open_api_server() as server, open_browser() as browser:
        empty = [
            _take(browser, server, FAILURES, folder / f"failures-empty-{theme}.png", theme)
            for theme in THEMES
        ]
        server.seed()
        with_data = [
            _take(browser, server, address, folder / f"{name}-{theme}.png", theme)
            for theme in THEMES
            for name, address in (
                ("failures", FAILURES),
                ("launches", launches(STORY)),
                ("launches-quiet", launches(QUIET)),
                ("launches-empty", launches(UNTOUCHED)),
                ("launches-error", launches("no_such_dag")),
            )
        ]
        framed = [
            _take_in_airflow(browser, server, address, folder / f"{name}-{theme}.png", theme)
            for theme in THEMES
            for name, address in (
                ("airflow-failures", AIRFLOW_FAILURES),
                ("airflow-launches", airflow_launches(STORY, RUN_ID, "load")),
            )
        ]
        return empty + with_data + framed


def _take(browser: Browser, server: ApiServer, address: str, path: Path, theme: Theme) -> Path:
    """Take a picture of all that is on a page, as it is by itself."""
    with log_in(browser, server.url, server.deployment.client.token, theme) as context:
        page = context.new_page()
        page.goto(f"{server.url}/{address}")
        page.wait_for_selector(_SHOWN)
        page.locator("body").screenshot(path=path)
    return path


def _take_in_airflow(browser: Browser, server: ApiServer, address: str, path: Path, theme: Theme) -> Path:
    """Take a picture of a page where Airflow shows it."""
    with log_in(browser, server.url, server.deployment.client.token, theme) as context:
        page: Page = context.new_page()
        page.goto(f"{server.url}/{address}")
        page.frame_locator("iframe").locator(_SHOWN).wait_for()
        page.wait_for_load_state("networkidle")
        page.screenshot(path=path)
    return path
