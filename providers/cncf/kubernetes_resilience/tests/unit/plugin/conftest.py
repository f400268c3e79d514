# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The application in Airflow's own API server, in this process, and users who may read some Dags."""

from __future__ import annotations

from functools import cache

import pytest
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from starlette.testclient import TestClient

from airflow.providers.cncf.kubernetes_resilience.plugin.plugin import URL_PREFIX

API = f"{URL_PREFIX}/api/v1"


class PerDag(SimpleAuthManager):
    """Users may read Dags whose names begin with their own; the administrator may read all."""

    def is_authorized_dag(self, *, method, user, access_entity=None, details=None):
        if details and details.id and not details.id.startswith(user.username) and user.username != "admin":
            return False
        return super().is_authorized_dag(
            method=method, user=user, access_entity=access_entity, details=details
        )


@cache
def application():
    # Airflow makes one application for each process.
    from airflow.api_fastapi import app as airflow_app

    airflow_app.get_auth_manager_cls = lambda: PerDag
    return airflow_app.create_app(apps="core")


@pytest.fixture
def client(session):
    """Nobody who is logged in."""
    return TestClient(application(), raise_server_exceptions=False)


@pytest.fixture
def log_in(client):
    """Give a function that logs somebody in, as the user interface does."""

    def as_user(name, role="VIEWER"):
        from airflow.api_fastapi.app import get_auth_manager

        user = SimpleAuthManagerUser(username=name, role=role)
        client.cookies.set("_token", get_auth_manager().generate_jwt(user))
        return client

    return as_user
