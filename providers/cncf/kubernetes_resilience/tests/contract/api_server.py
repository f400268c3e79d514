# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
``python api_server.py``: ask Airflow's API server for the pages and their data, as several people.

It runs in this process, on a database that is made for it; ``AIRFLOW_HOME`` is an empty folder. It prints the
answers as JSON: by person and path, the status and the Dags that were told about.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

warnings.simplefilter("ignore")

from airflow.api_fastapi import app as airflow_app  # noqa: E402
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager  # noqa: E402
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser  # noqa: E402
from airflow.models.dag import DagModel  # noqa: E402
from airflow.models.dagbundle import DagBundleModel  # noqa: E402
from airflow.models.taskinstancekey import TaskInstanceKey  # noqa: E402
from airflow.utils.db import initdb  # noqa: E402
from airflow.utils.session import create_session  # noqa: E402
from starlette.testclient import TestClient  # noqa: E402

from airflow_resilience import ledger  # noqa: E402
from airflow_resilience.context import (  # noqa: E402
    ContextSource,
    ExecutionContext,
    StateChangeCategory,
    StateChangeReason,
)
from airflow_resilience.decision import Action, Decision  # noqa: E402
from airflow_resilience.ledger_entries import LedgerEntry  # noqa: E402

MINE, SECRET = "mine", "secret"
PREFIX = "/kubernetes-resilience"


class PerDag(SimpleAuthManager):
    """Nobody but the administrator may read the secret Dag."""

    def is_authorized_dag(
        self, *, method: Any, user: Any, access_entity: Any = None, details: Any = None
    ) -> bool:
        """Whether a user may read a Dag, or any."""
        if details and details.id == SECRET and user.username != "admin":
            return False
        return super().is_authorized_dag(
            method=method, user=user, access_entity=access_entity, details=details
        )


def seed() -> None:
    """Store two Dags, and for each a pod that it has lost."""
    context = ExecutionContext(
        StateChangeCategory.INFRASTRUCTURE, StateChangeReason.WORKER_LOST, ContextSource.EXECUTOR
    )
    decision = Decision(action=Action.RELAUNCH, policy="p", rule="r", explanation="launch 1 of 2")
    with create_session() as session:
        session.merge(DagBundleModel(name="bundle"))
        session.flush()
        for dag_id in (MINE, SECRET):
            session.add(DagModel(dag_id=dag_id, bundle_name="bundle"))
            entry = LedgerEntry(
                ti_id="id",
                worker_uid=dag_id,
                worker_name="pod",
                launch=1,
                reason="NodeLost",
                context=context,
                decision=decision,
            )
            ledger.record([(TaskInstanceKey(dag_id, "task", "run", 1, -1), entry)], session=session)


def launches(dag_id: str) -> str:
    """Return the path of the launches of a task instance that does not exist."""
    return f"/api/v1/dags/{dag_id}/dagRuns/run/taskInstances/task/-1/launches"


def main() -> None:
    """Print the answers."""
    initdb()  # type: ignore[no-untyped-call]
    seed()
    airflow_app.get_auth_manager_cls = lambda: PerDag
    client = TestClient(airflow_app.create_app(apps="core"), raise_server_exceptions=False)
    paths = (
        "/failures",
        "/dags/d/runs/r/tasks/t/{MAP_INDEX}/launches",
        "/openapi.json",
        "/api/v1/failures",
        "/api/v1/failures/summary",
        f"/api/v1/failures?dag_id={SECRET}",
        launches(MINE),
        launches(SECRET),
    )
    answers: dict[str, dict[str, list[Any]]] = {}
    for person in ("nobody", "joan", "admin"):
        client.cookies.clear()
        if person != "nobody":
            user = SimpleAuthManagerUser(username=person, role="VIEWER")
            # As the user interface does, whose cookie the frames of pages share.
            client.cookies.set("_token", airflow_app.get_auth_manager().generate_jwt(user))
        for path in paths:
            answer = client.get(PREFIX + path)
            told = [name for name in (MINE, SECRET) if json.dumps(name) in answer.text]
            answers.setdefault(person, {})[path] = [answer.status_code, told]
    client.cookies.clear()
    token = airflow_app.get_auth_manager().generate_jwt(
        SimpleAuthManagerUser(username="admin", role="VIEWER")
    )
    answer = client.get(f"{PREFIX}/api/v1/failures", headers={"Authorization": f"Bearer {token}"})
    answers["a program"] = {"/api/v1/failures": [answer.status_code, []]}
    views = client.get("/api/v2/plugins", headers={"Authorization": f"Bearer {token}"})
    answers["the user interface"] = {
        "/api/v2/plugins": [views.status_code, [name for name in ("Launches",) if name in views.text]]
    }
    sys.stdout.write(f"ANSWERS {json.dumps(answers)}\n")


if __name__ == "__main__":
    main()
