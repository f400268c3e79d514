# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``./breeze pictures``: pictures of both pages, light and dark, with and without data."""

from __future__ import annotations

from collections.abc import Mapping
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
    from playwright.sync_api import Browser

FOR_SITE = Path(__file__).parents[3] / "docs" / "pictures"

SHOWN = "main[aria-busy=false]"

EMPTY = {"failures-empty": FAILURES}
"""Addresses by the names of pictures: before anything is seeded."""

SEEDED = {
    "failures": FAILURES,
    "launches": launches(STORY),
    "launches-quiet": launches(QUIET),
    "launches-empty": launches(UNTOUCHED),
    "launches-error": launches("no_such_dag"),
}

IN_AIRFLOW = {
    "airflow-failures": AIRFLOW_FAILURES,
    "airflow-launches": airflow_launches(STORY, RUN_ID, "load"),
}
"""The pages where Airflow shows them. The site has these."""


def take_pictures(folder: Path | None) -> None:
    """
    Take pictures anew.

    :param folder: where to put all of them; it is made. None: those of the site, where the site has them
    """
    target = folder or FOR_SITE
    target.mkdir(parents=True, exist_ok=True)
    with open_api_server() as server, open_browser() as browser:
        if folder:
            _take(browser, server, EMPTY, target)
        server.seed()
        if folder:
            _take(browser, server, SEEDED, target)
        _take(browser, server, IN_AIRFLOW, target)


def _take(browser: Browser, server: ApiServer, pictures: Mapping[str, str], folder: Path) -> None:
    themes: tuple[Theme, ...] = get_args(Theme)
    for theme in themes:
        with log_in(browser, server.url, server.deployment.client.token, theme) as context:
            page = context.new_page()
            for name, address in pictures.items():
                path = folder / f"{name}-{theme}.png"
                page.goto(f"{server.url}/{address}")
                if pictures is IN_AIRFLOW:
                    page.frame_locator("iframe").locator(SHOWN).wait_for()
                    page.wait_for_load_state("networkidle")
                    page.screenshot(path=path)
                else:
                    # All that is on the page, as it is by itself.
                    page.wait_for_selector(SHOWN)
                    page.locator("body").screenshot(path=path)
