# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The module generated from provider.yaml, and the reference page."""

from __future__ import annotations

import pytest

from breeze import provider_info
from breeze.docs import render_configuration


@pytest.fixture
def provider_yaml(tmp_path, monkeypatch):
    """A copy of provider.yaml and of the module generated from it, both to be changed at will."""
    copy, generated = tmp_path / "provider.yaml", tmp_path / "get_provider_info.py"
    copy.write_text(provider_info.PROVIDER_YAML.read_text())
    monkeypatch.setattr(provider_info, "PROVIDER_YAML", copy)
    monkeypatch.setattr(provider_info, "GENERATED", generated)
    monkeypatch.setattr("breeze.paths.ROOT", tmp_path)
    provider_info.write_provider_info()
    return copy


def test_what_is_generated_passes_its_own_check(provider_yaml):
    assert provider_info.check_provider_info() == []


def test_a_change_that_was_not_generated_is_found(provider_yaml):
    provider_yaml.write_text(provider_yaml.read_text().replace("name: Kubernetes Resilience", "name: Other"))
    (problem,) = provider_info.check_provider_info()
    assert "generate-provider-info" in problem


def test_what_airflow_would_not_accept_is_found(provider_yaml):
    provider_yaml.write_text(provider_yaml.read_text().replace("type: integer", "type: whole", 1))
    provider_info.write_provider_info()
    (problem,) = provider_info.check_provider_info()
    assert "'whole' is not one of" in problem


def test_the_reference_page_tells_everything_about_an_option():
    page = render_configuration(
        {
            "config": {
                "section": {
                    "description": "What ``it`` is for.\n",
                    "options": {
                        "key": {
                            "description": "What it ``does``.\n",
                            "version_added": "0.1.0",
                            "type": "integer",
                            "example": None,
                            "default": "32",
                        }
                    },
                }
            }
        }
    )
    assert "## [section]\n\nWhat `it` is for." in page
    assert "### key\n\nWhat it `does`." in page
    assert "| Default | `32` |" in page
    assert "| Environment variable | `AIRFLOW__SECTION__KEY` |" in page
    assert "Example" not in page
