# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Which links the documentation may have; ``./breeze build-docs`` checks its own."""

from __future__ import annotations

import pytest

from breeze.docs import check_links

HTML = '<h1 id="here">Here</h1><a href="{}">somewhere</a>'
MARKDOWN = "# Here\n\n[somewhere]({})\n"


@pytest.mark.parametrize(("suffix", "form"), [(".html", HTML), (".md", MARKDOWN)])
@pytest.mark.parametrize(
    ("link", "exists"),
    [
        ("page{}#here", True),
        ("#here", True),
        ("https://example.org/other-sites-are-not-asked", True),
        ("no-page{}", False),
        ("page{}#there", False),
    ],
)
def test_a_link_leads_to_a_page_and_a_heading(tmp_path, suffix, form, link, exists):
    (tmp_path / f"page{suffix}").write_text(form.format(link.format(suffix)))
    assert (check_links(tmp_path) == 0) == exists
