# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""How Sphinx builds the site; ``./breeze build-docs`` calls it."""

from __future__ import annotations

project = "Airflow Resilience"
author = "The Airflow Resilience authors"
project_copyright = "2026, the Airflow Resilience authors"

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist"]
#: Links such as ``page.md#a-heading`` are checked against the headings.
myst_heading_anchors = 3

#: It is included in the first page.
exclude_patterns = ["readme.md"]

html_theme = "furo"
html_title = project
html_show_sphinx = False
html_static_path = ["static"]
html_css_files = ["site.css"]
