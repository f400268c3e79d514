# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The Airflow plugin with the pages: the entry point ``airflow.plugins``.

Every process of Airflow imports this module, which therefore imports nothing that a worker lacks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from airflow.plugins_manager import AirflowPlugin

URL_PREFIX = "/kubernetes-resilience"

_Message = MutableMapping[str, Any]


class DeferredApplication:
    """The application, imported with its first request: only API servers get requests."""

    async def __call__(
        self,
        scope: _Message,
        receive: Callable[[], Awaitable[_Message]],
        send: Callable[[_Message], Awaitable[None]],
    ) -> None:
        """Handle a request."""
        from airflow.providers.cncf.kubernetes_resilience.plugin.api import app  # noqa: PLC0415

        await app(scope, receive, send)


# Paths without a leading slash are relative to the address of Airflow's pages.
_PREFIX = URL_PREFIX.removeprefix("/")


class KubernetesResiliencePlugin(AirflowPlugin):
    """A page for each task instance, a page for all of them, and their data as JSON."""

    name = "kubernetes_resilience"
    fastapi_apps = [  # noqa: RUF012 - to its base class it is no ClassVar
        {"app": DeferredApplication(), "url_prefix": URL_PREFIX, "name": "Kubernetes Resilience"}
    ]
    external_views = [  # noqa: RUF012
        {
            "name": "Launches",
            "href": f"{_PREFIX}/dags/{{DAG_ID}}/runs/{{RUN_ID}}/tasks/{{TASK_ID}}/{{MAP_INDEX}}/launches",
            "destination": "task_instance",
            "url_route": "launches",
        },
        {
            "name": "Infrastructure failures",
            "href": f"{_PREFIX}/failures",
            "destination": "nav",
            "category": "browse",
            "url_route": "infrastructure-failures",
        },
    ]
