# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The plugin of Airflow by which its API server finds the pages: the entry point ``airflow.plugins``.

Every process of Airflow imports this module, workers too. So it imports nothing that they do not have.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from airflow.plugins_manager import AirflowPlugin

URL_PREFIX = "/kubernetes-resilience"

_Message = MutableMapping[str, Any]


class DeferredApplication:
    """The application, which is imported with its first request: only API servers get one."""

    def __init__(self) -> None:
        self._is_imported = False

    async def __call__(
        self,
        scope: _Message,
        receive: Callable[[], Awaitable[_Message]],
        send: Callable[[_Message], Awaitable[None]],
    ) -> None:
        """Handle a request."""
        import gc  # noqa: PLC0415

        from airflow.providers.cncf.kubernetes_resilience.plugin.api import app  # noqa: PLC0415

        if not self._is_imported:
            # An API server has close to a million objects that stay: modules, models, schemas. An answer
            # about thousands of failures makes so many new ones that Python would look through all of these
            # every now and then, which holds up every request of the process, for a second or two.
            gc.freeze()
            self._is_imported = True
        await app(scope, receive, send)


# Without a slash at the beginning, these are relative to the address under which Airflow's pages are served.
_PREFIX = URL_PREFIX.removeprefix("/")


class KubernetesResiliencePlugin(AirflowPlugin):
    """A page about each task instance, a page about all of them, and the data of both as JSON."""

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
