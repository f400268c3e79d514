# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The plugin of Airflow by which it finds what is here: the entry point ``airflow.plugins``."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from airflow_resilience.airflow_version import refuse_unsupported
from airflow_resilience.propagation import listener as failure_listener
from airflow_resilience.propagation import macros
from airflow_resilience.termination import listener as running_listener

refuse_unsupported()  # Airflow shows it as the plugin's import error


class AirflowResiliencePlugin(AirflowPlugin):
    """Listeners, and macros of templates."""

    name = "airflow_resilience"
    listeners = [running_listener, failure_listener]  # noqa: RUF012 - to its base class it is no ClassVar
    macros = [macros.previous_failure]  # noqa: RUF012
