# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys

from airflow.api_fastapi.core_api.datamodels.plugins import PluginResponse
from airflow.plugins_manager import get_plugin_info

from airflow.providers.cncf.kubernetes_resilience.plugin.plugin import KubernetesResiliencePlugin


def test_airflow_finds_the_plugin_and_can_describe_it():
    (info,) = [item for item in get_plugin_info() if item["name"] == KubernetesResiliencePlugin.name]
    told = PluginResponse.model_validate(info)
    assert {view.destination for view in told.external_views} == {"task_instance", "nav"}
    # Below a prefix, an address from the root would not be Airflow's.
    assert not any(view.href.startswith("/") for view in told.external_views)


def test_a_worker_imports_no_web_framework_for_it():
    code = (
        "import sys; import airflow.plugins_manager; before = set(sys.modules);"
        f"import {KubernetesResiliencePlugin.__module__};"
        "new = set(sys.modules) - before;"
        "print(*sorted(name for name in new if not name.startswith('airflow.providers')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_what_an_api_server_has_is_left_out_of_the_collection_of_garbage():
    code = (
        "import gc; from starlette.testclient import TestClient;"
        f"from {KubernetesResiliencePlugin.__module__} import DeferredApplication;"
        "client = TestClient(DeferredApplication()); before = gc.get_freeze_count();"
        "answer = client.get('/failures'); once = gc.get_freeze_count();"
        "client.get('/failures');"
        "print(answer.status_code, before, once > 100_000, gc.get_freeze_count() <= once)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["200", "0", "True", "True"]
