# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The Airflow plugin of this distribution: the entry point ``airflow.plugins``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.plugins_manager import AirflowPlugin
from jinja2 import pass_context

from airflow_resilience.airflow_version import refuse_unsupported
from airflow_resilience.propagation import listener, reading

if TYPE_CHECKING:
    from jinja2.runtime import Context

    from airflow_resilience.context import ExecutionContext

refuse_unsupported()  # Airflow shows it as the plugin's import error


@pass_context
def previous_failure(context: Context) -> ExecutionContext | None:
    """Return the context of the end of the previous run; None without one, or if unknown."""
    return reading.previous_failure(context.get_all())


class AirflowResiliencePlugin(AirflowPlugin):
    """Listeners, and macros for templates."""

    name = "airflow_resilience"
    listeners = [listener]  # noqa: RUF012 - to its base class it is no ClassVar
    macros = [previous_failure]  # noqa: RUF012
