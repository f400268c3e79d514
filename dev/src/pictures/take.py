# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""``./breeze pictures``: both pages in Airflow, light and dark, for the site."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from pictures.api_server import open_api_server
from pictures.browser import Theme, log_in, open_browser
from pictures.places import AIRFLOW_FAILURES, RUN_ID, STORY, airflow_launches

FOLDER = Path(__file__).parents[3] / "docs" / "pictures"

PICTURES = {
    "airflow-failures": AIRFLOW_FAILURES,
    "airflow-launches": airflow_launches(STORY, RUN_ID, "load"),
}
"""Addresses by the names of pictures."""


def take_pictures() -> None:
    """Take them anew."""
    with open_api_server() as server, open_browser() as browser:
        for theme in get_args(Theme):
            with log_in(browser, server.url, server.client.token, theme) as context:
                page = context.new_page()
                for name, address in PICTURES.items():
                    page.goto(f"{server.url}/{address}")
                    page.frame_locator("iframe").locator("main[aria-busy=false]").wait_for()
                    page.wait_for_load_state("networkidle")
                    page.screenshot(path=FOLDER / f"{name}-{theme}.png")
