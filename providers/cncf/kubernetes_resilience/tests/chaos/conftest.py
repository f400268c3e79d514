# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
import time_machine
import yaml

from cluster_lab import airflow_fixtures

from ..support.cluster import TEMPLATE
from .execution_machine import ExecutionChaos
from .executions import ExecutionWorld
from .machine import Chaos
from .outage_machine import MAX_WAIT, THRESHOLD, OutageChaos, OutageWorld
from .world import World, read_task_instances


@pytest.fixture
def machine(migrated_database, tmp_path, monkeypatch):
    """
    Give a function that makes a state machine for a limit of relaunches, and an infrastructure budget, or a
    registry that goes and comes.
    """
    template = tmp_path / "template.yaml"
    template.write_text(yaml.safe_dump(TEMPLATE))
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__POD_TEMPLATE_FILE", str(template))
    monkeypatch.setenv(
        "AIRFLOW__KUBERNETES_EXECUTOR__WORKER_POD_PENDING_FATAL_CONTAINER_STATE_REASONS", "ErrImagePull"
    )
    from airflow.settings import NonScopedSession

    session = NonScopedSession()
    tis = airflow_fixtures.scheduled_task_instances(session, count=2)

    def make(limit: int, budget: int = 0, *, outages: bool = False) -> type[Chaos]:
        monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES", str(limit))
        monkeypatch.setenv("AIRFLOW__KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET", str(budget))
        monkeypatch.setenv(
            "AIRFLOW__KUBERNETES_RESILIENCE__OUTAGE_THRESHOLD", str(THRESHOLD if outages else 3)
        )
        monkeypatch.setenv("AIRFLOW__KUBERNETES_RESILIENCE__OUTAGE_MAX_WAIT", str(MAX_WAIT))

        def make_world(traveller: time_machine.Traveller) -> World:
            begin_anew(session, tis)
            args = session, tis, airflow_fixtures.make_scheduler_job
            if budget:
                return ExecutionWorld(*args, limit=limit, budget=budget, traveller=traveller)
            return (OutageWorld if outages else World)(*args, limit=limit, traveller=traveller)

        base = ExecutionChaos if budget else OutageChaos if outages else Chaos
        return type(base.__name__, (base,), {"make_world": staticmethod(make_world)})

    yield make
    session.rollback()
    airflow_fixtures.empty_tables(session)
    session.commit()
    session.close()


def begin_anew(session, tis):
    """Give the task instances a new life, which costs less than new ones for each example."""
    from airflow.models.log import Log
    from airflow.models.taskinstancehistory import TaskInstanceHistory
    from sqlalchemy import delete
    from uuid6 import uuid7

    session.rollback()
    tis[:] = read_task_instances(session)
    session.execute(delete(TaskInstanceHistory))
    session.execute(delete(Log))
    for ti in tis:
        ti.id, ti.state, ti.try_number, ti.queued_by_job_id, ti.hostname = uuid7(), "scheduled", 1, None, ""
        ti.max_tries, ti.end_date, ti.scheduled_dttm = 0, None, None
    session.commit()


@pytest.fixture
def by_hand(machine):
    """Give a function that makes the chaos machine, to be led by hand, for a limit and a budget."""
    made = []

    def make(limit: int, budget: int = 0, *, outages: bool = False) -> Chaos:
        made.append(machine(limit, budget, outages=outages)())
        return made[-1]

    yield make
    for chaos in made:
        chaos.world.cure()
        chaos.travel.stop()


@pytest.fixture
def chaos(request, by_hand):
    """Give the machine as the histories of a module begin."""
    return request.module.begin(by_hand)


@pytest.fixture
def world(chaos):
    """Give the world of the machine that a module leads by hand."""
    return chaos.world
