# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The values for the official Helm chart, compared with the keys that the chart's schema has.

The chart cannot be had where tests run: it is in no package index. Its ``values.schema.json`` was read in
November 2026, as of commit 002e5532d7d5 of apache/airflow, where the chart has Airflow 3.0.5 by default.
Excerpts of its templates, typed off, were rendered with these values: the helpers and the pod template of
9c62bfae76b8, the scheduler of 008b07561f2b, the defaults of d6ba4817823e (Airflow 3.1.3 by default).

.. seealso:: https://github.com/apache/airflow/blob/002e5532d7d55a375bbf71bd4e72d7e008635073/chart/values.schema.json
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow.providers.cncf.kubernetes_resilience.executors.kubernetes_executor import KubernetesExecutor
from airflow.providers.cncf.kubernetes_resilience.executors.policy_settings import OWN_SECTION, POLICY_FILE
from breeze.paths import ROOT
from testbed.permissions import Account

DOCUMENTED: dict[str, type] = {
    "airflowVersion": str,
    "apiServer.serviceAccount.create": bool,
    "apiServer.serviceAccount.name": str,
    "config.kubernetes_resilience.retry_policy_file": str,
    "config.metrics.statsd_influxdb_enabled": str,
    "defaultAirflowRepository": str,
    "defaultAirflowTag": str,
    "env": list,
    "executor": str,
    "rbac.create": bool,
    "scheduler.extraVolumeMounts": list,
    "scheduler.extraVolumes": list,
    "scheduler.serviceAccount.create": bool,
    "scheduler.serviceAccount.name": str,
    "statsd.extraMappings": list,
}
"""Keys of the schema, with types that it allows, that our pages have. In ``config`` any key may be."""

BLOCKS = [
    pytest.param(yaml.safe_load(block), id=f"{page.stem}-{number}")
    for page in sorted((ROOT / "docs").glob("*.md"))
    for number, block in enumerate(
        re.findall(r"^```yaml chart\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    )
]


def keys_of(values: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values that are no mappings, with their places."""
    for key, value in values.items():
        yield from keys_of(value, f"{path}{key}.") if isinstance(value, dict) else [(path + key, value)]


@pytest.mark.parametrize("values", BLOCKS)
def test_the_chart_has_each_key_and_allows_its_value(values):
    assert {key: type(value) for key, value in keys_of(values)}.items() <= DOCUMENTED.items()
    # The schema allows nothing else beside these two in an item, and no value that is no text.
    assert all(item.keys() == {"name", "value"} for item in values.get("env", ()))
    assert all(isinstance(item["value"], str) for item in values.get("env", ()))


def test_each_page_that_names_the_chart_has_its_values_checked():
    pages = {
        page.stem for page in (ROOT / "docs").glob("*.md") if re.search(r"Helm\s+chart", page.read_text())
    }
    assert {parameter.id.rpartition("-")[0] for parameter in BLOCKS} == pages


def test_every_key_that_is_known_is_used():
    assert {key for block in BLOCKS for key, _ in keys_of(block.values[0])} == DOCUMENTED.keys()


def test_blocks_do_not_displace_each_other():
    # Of a list that several files of values have, Helm takes the last one alone. An ``env`` without the
    # executor's name would bring the official executor back.
    keys = [key for block in BLOCKS for key, _ in keys_of(block.values[0])]
    assert len(keys) == len(set(keys))


def test_the_policy_file_is_in_the_folder_that_is_mounted():
    (values,) = (block.values[0] for block in BLOCKS if OWN_SECTION in block.values[0].get("config", ()))
    (volume,), (mount,) = values["scheduler"]["extraVolumes"], values["scheduler"]["extraVolumeMounts"]
    assert volume["name"] == mount["name"]
    assert Path(values["config"][OWN_SECTION][POLICY_FILE]).parent == Path(mount["mountPath"])


def test_the_executor_is_ours_for_airflow_and_the_official_one_for_the_chart():
    (values,) = (block.values[0] for block in BLOCKS if "executor" in block.values[0])
    (variable,) = values["env"]
    alias, _, path = variable["value"].partition(":")
    assert variable["name"] == "AIRFLOW__CORE__EXECUTOR"
    assert values["executor"] == alias == "KubernetesExecutor"
    assert path == f"{KubernetesExecutor.__module__}.{KubernetesExecutor.__name__}"


def test_the_chart_uses_the_accounts_of_the_manifest():
    (values,) = (block.values[0] for block in BLOCKS if "rbac" in block.values[0])
    accounts = {values[part]["serviceAccount"]["name"] for part in ("scheduler", "apiServer")}
    assert accounts == set(Account)
    assert not values["rbac"]["create"]
    assert not any(values[part]["serviceAccount"]["create"] for part in ("scheduler", "apiServer"))


def test_mappings_are_those_of_the_file():
    (values,) = (block.values[0] for block in BLOCKS if "statsd" in block.values[0])
    file = yaml.safe_load((ROOT / "docs" / "monitoring" / "statsd-mappings.yaml").read_text())
    assert all(item in file["mappings"] for item in values["statsd"]["extraMappings"])
