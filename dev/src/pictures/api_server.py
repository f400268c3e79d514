# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""An API server of a throw-away Airflow, with rows to show."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cluster_lab.managed_process import run_well
from cluster_lab.postgres import EmbeddedPostgres
from testbed.airflow_configuration import DeploymentSettings
from testbed.airflow_deployment import AirflowDeployment, Component


@contextmanager
def open_api_server() -> Iterator[AirflowDeployment]:
    """Start an API server with what there is to show in its database, and stop it in the end."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pictures-")))
        (home / "dags").mkdir()
        postgres = stack.enter_context(EmbeddedPostgres())
        settings = DeploymentSettings(
            home=home, database_url=postgres.url, kubeconfig=home / "none", dags_folder=home / "dags"
        )
        deployment = AirflowDeployment(settings)
        stack.callback(deployment.stop)
        deployment.run_well("db", "migrate")
        deployment.start_components(Component.API_SERVER)
        deployment.client.log_in()
        run_well([sys.executable, "-m", "pictures.seed"], deployment.environment)
        yield deployment
