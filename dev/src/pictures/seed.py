# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
``python -m pictures.seed``: a week of an Airflow whose nodes come and go, as rows of its database.

They are written to the database of Airflow's configuration. Each call writes the same, seen from now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pendulum
from airflow.models.log import Log
from airflow.models.taskinstancehistory import TaskInstanceHistory
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow.utils.session import create_session
from uuid6 import uuid7

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes import TABLE
from airflow_resilience.context import ContextSource as Source
from airflow_resilience.context import ExecutionContext
from airflow_resilience.context import StateChangeCategory as Category
from airflow_resilience.context import StateChangeReason as Reason
from airflow_resilience.decision import Action, AvoidNode, BudgetUse, Decision
from airflow_resilience.ledger import EXECUTION_FAILURE_EVENT, LAUNCH_FAILURE_EVENT, record_held
from airflow_resilience.ledger_entries import HeldLaunch, LedgerEntry
from airflow_resilience.outages import Dependency, DependencyKind
from airflow_resilience.propagation.audit import EVENT
from airflow_resilience.propagation.stored import StoredContext
from airflow_resilience.retry_policy.evidence import Phase
from airflow_resilience.retry_policy.rule import INFRASTRUCTURE
from airflow_resilience.termination.exceptions import explain
from cluster_lab.airflow_rows import store_run
from pictures.places import HELD, QUIET, RUN_ID, STORY, UNTOUCHED

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy.orm import Session

DAYS = 7
MANY = {"ingest_clickstream": 160, "train_recommender": 60, "monthly_report": 25, "export_billing": 12}
"""Dags, and how many of their task instances lose pods."""

NODES = ("spot-a-7f2c", "spot-a-91be", "spot-b-03d4", "spot-b-5a10", "pool-2-node-6", "pool-2-node-9")
_WEIGHTS = (14, 9, 6, 4, 2, 1)

_LAUNCH_CAUSES = {"registry-unavailable": 6, "refused-by-node-shutdown": 3, "volume-unavailable": 2}
_LOSSES = {"evicted-by-api": 9, "node-lost": 5, "preempted-by-scheduler": 3, "evicted-by-node-pressure": 2}
_CAUSES = {cause.name: cause for cause in TABLE}

_OTHER_ENDS = (
    explain(KeyError("customer_id")),
    explain(RuntimeError("the warehouse has refused the statement")),
    ExecutionContext(
        Category.TIMEOUT,
        Reason.EXECUTION_TIMEOUT,
        Source.WORKER,
        {"exception": "airflow.sdk.exceptions.AirflowTaskTimeout", "message": "Timeout, PID: 24"},
    ),
    ExecutionContext(Category.USER_ACTION, Reason.MANUAL_STATE_CHANGE, Source.API, {"state": "failed"}),
    ExecutionContext(
        Category.INFRASTRUCTURE,
        Reason.RESOURCE_EXHAUSTION,
        Source.EXECUTOR,
        {"message": "exceeded quota: tasks, requested: pods=1, used: pods=200, limited: pods=200"},
    ),
)
"""What ends a task that did not lose its pod."""

LAST_LINES = """\
Traceback (most recent call last):
  File "/opt/airflow/dags/sales.py", line 41, in load
    frame = pandas.concat(parts)
MemoryError: Unable to allocate 3.81 GiB for an array with shape (512000000,)
<img src=x onerror="document.title = 'not inert'"> what a pod says is text, whatever it says
"""


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A pod that was lost."""

    cause: str
    node: str | None
    explanation: str
    action: Action = Action.RELAUNCH
    phase: Phase = Phase.LAUNCH
    rule: str = "infrastructure"
    reason: str = "EvictionByEvictionAPI"
    budget: tuple[int, int] | None = None
    delay: float = 0.0
    more: Mapping[str, Any] = field(default_factory=dict)
    """Metadata of its context beside pod, node and cause."""
    away_since: datetime | None = None
    """Since when :data:`HUB` was away, if that is why."""


_WORKER = {"container": "base", "container_type": "worker"}
HUB = Dependency(DependencyKind.REGISTRY, "registry.example.com")

EMPTY_FILE = explain(ValueError("the file of yesterday has 0 rows, at least 1,000 are expected"))

REGISTRY_AWAY = Loss(
    cause="registry-unavailable",
    node=NODES[0],
    explanation="launch 1 of 4; policy standard, rule registry",
    rule="registry",
    budget=(1, 3),
    reason="ErrImagePull",
    delay=30.0,
    more={**_WORKER, "message": "failed to pull image: dial tcp: lookup registry: i/o timeout"},
)

EVICTED = Loss(
    cause="evicted-by-api",
    node=NODES[1],
    phase=Phase.EXECUTION,
    explanation="infrastructure retry 1 of 5; policy infrastructure, rule infrastructure",
    budget=(1, 5),
    delay=10.0,
    more={"condition": "DisruptionTarget", "container": "base", "exit_code": 143},
)

OUT_OF_MEMORY = Loss(
    cause="worker-out-of-memory",
    node=NODES[2],
    phase=Phase.EXECUTION,
    action=Action.COUNT,
    explanation="infrastructure retries used: 1 of 5; no rule is about it; policy infrastructure, "
    "rule defaultAction",
    rule="defaultAction",
    budget=(1, 5),
    reason="OOMKilled",
    more={**_WORKER, "exit_code": 137, "signal": "SIGKILL", "message": LAST_LINES},
)

NODE_LOST = Loss(
    cause="node-lost",
    node=NODES[3],
    phase=Phase.EXECUTION,
    explanation="infrastructure retry 1 of 5; policy infrastructure, rule infrastructure",
    budget=(1, 5),
    reason="NodeLost",
    delay=10.0,
)


def seed() -> None:
    """Write everything."""
    now = datetime.now(UTC)
    with create_session(scoped=False) as session:
        _store(session, UNTOUCHED)
        (quiet,) = _store(session, QUIET)
        _run(quiet, "success", "quiet-dag-k2x9", now - timedelta(hours=2), now - timedelta(hours=1))
        (story,) = _store(session, STORY, retries=3)
        _tell_story(session, story, now)
        (held,) = _store(session, HELD)
        _hold(session, held, now)
        random = Random(14)
        for dag_id, count in MANY.items():
            for number, ti in enumerate(_store(session, dag_id, mapped=count)):
                _lose_some(session, ti, random, now, number)


def _tell_story(session: Session, ti: TaskInstance, now: datetime) -> None:
    begin = now - timedelta(minutes=52)

    def at(minutes: float) -> datetime:
        return begin + timedelta(minutes=minutes)

    _lose(session, ti, REGISTRY_AWAY, at(1), 1)
    _log(session, ti, "running", at(2))
    _lose(session, ti, EVICTED, at(14), 2)
    _log(session, ti, "running", at(15))
    _lose(session, ti, OUT_OF_MEMORY, at(31), 3)
    _run(ti, "failed", "", at(15), at(31))
    _next_try(session, ti)
    _log(session, ti, "running", at(32))
    _fail(session, ti, EMPTY_FILE, at(35))
    _run(ti, "failed", "sales-load-load-4jd81mzc", at(32), at(35))
    _next_try(session, ti)
    _log(session, ti, "running", at(37))
    _lose(session, ti, NODE_LOST, at(45), 1)
    _log(session, ti, "running", at(46))
    _run(ti, "running", "sales-load-load-7h2kq0xw", at(46), None)


def _hold(session: Session, ti: TaskInstance, now: datetime) -> None:
    ti.state, since = "queued", now - timedelta(minutes=4)
    free = "registry/registry.example.com is away for everybody, which counts against no limit"
    loss = replace(REGISTRY_AWAY, rule="outage", explanation=free, budget=None, delay=0.0, away_since=since)
    _lose(session, ti, loss, now - timedelta(minutes=2), 1)
    held = HeldLaunch(ti_id=str(ti.id), dependency=HUB, away_since=since)
    record_held([(ti.key, held)], session=session)


def _lose_some(session: Session, ti: TaskInstance, random: Random, now: datetime, number: int) -> None:
    # Every few hours a wave of nodes goes; in between a pod is lost here and there.
    wave = random.random() < 0.6
    hours = random.choice((7, 8, 31, 32, 33, 79, 80, 127)) if wave else random.uniform(0.2, DAYS * 24 - 1)
    at = now - timedelta(hours=hours, minutes=random.uniform(0, 50))
    node = random.choices(NODES, _WEIGHTS)[0]
    if number % 9 == 4:
        _exhaust(session, ti, node, at)
        return
    is_launch = random.random() < 0.35
    causes = _LAUNCH_CAUSES if is_launch else _LOSSES
    (cause,) = random.choices(list(causes), list(causes.values()))
    words, allowed = "launch 1 of 3; policy standard, rule infrastructure", 2
    if not is_launch:
        words, allowed = "infrastructure retry 1 of 3; policy infrastructure, rule infrastructure", 3
    phase = Phase.LAUNCH if is_launch else Phase.EXECUTION
    loss = Loss(cause=cause, node=node, phase=phase, explanation=words, budget=(1, allowed))
    _lose(session, ti, loss, at, 1)
    state = random.choices(("success", "failed", "running"), (30, 3, 2))[0]
    end = at + timedelta(minutes=9)
    _run(ti, state, f"pod-{number}", at + timedelta(minutes=1), end)
    if state == "failed":
        _fail(session, ti, random.choice(_OTHER_ENDS), end)


def _exhaust(session: Session, ti: TaskInstance, node: str, at: datetime) -> None:
    of_two = "infrastructure retry {} of 2; policy infrastructure"
    first = Loss(
        cause="evicted-by-node-pressure",
        node=node,
        phase=Phase.EXECUTION,
        explanation=of_two.format(1),
        budget=(1, 2),
        reason="Evicted",
    )
    second = replace(first, explanation=of_two.format(2), budget=(2, 2))
    words = (
        "infrastructure retries used: 2 of 2; no infrastructure retry is left; "
        "infrastructure_retry_budget: retried 2 of 2 times"
    )
    last = replace(second, action=Action.COUNT, explanation=words)
    for number, loss in enumerate((first, second, last), 1):
        _lose(session, ti, loss, at + timedelta(minutes=4 * number), number)
    _run(ti, "failed", "", at, at + timedelta(minutes=13))


def _store(session: Session, dag_id: str, *, retries: int = 0, mapped: int = 0) -> list[TaskInstance]:
    with DAG(dag_id, schedule=None, start_date=pendulum.datetime(2026, 1, 1), tags=["pictures"]) as dag:
        if mapped:
            names = [str(number) for number in range(mapped)]
            EmptyOperator.partial(task_id="part", retries=retries).expand(doc=names)
        else:
            EmptyOperator(task_id="load", retries=retries)
    run = store_run(session, dag, bundle="dags-folder", run_id=RUN_ID)
    session.flush()
    found = sorted(run.get_task_instances(session=session), key=lambda ti: ti.map_index)
    for ti in found:
        ti.try_number = 0 if dag_id == UNTOUCHED else 1
    return found


def _run(ti: TaskInstance, state: str, host: str, begin: datetime, end: datetime | None) -> None:
    ti.state, ti.hostname, ti.start_date = state, host, begin
    ti.end_date = None if state == "running" else end


def _next_try(session: Session, ti: TaskInstance) -> None:
    session.add(TaskInstanceHistory(ti, state="failed"))
    session.flush()
    ti.id = uuid7()
    ti.try_number += 1


def _fail(session: Session, ti: TaskInstance, context: ExecutionContext, at: datetime) -> None:
    _log(session, ti, EVENT, at, StoredContext(str(ti.id), ti.try_number, context).to_json())


def _lose(session: Session, ti: TaskInstance, loss: Loss, at: datetime, launch: int) -> None:
    cause = _CAUSES[loss.cause]
    index = f"-{ti.map_index}" if ti.map_index >= 0 else ""
    pod = f"{ti.dag_id}-{ti.task_id}{index}-{ti.try_number}{launch}".replace("_", "-")
    number = crc32(pod.encode())
    metadata = {"pod": pod, "namespace": "airflow", "node": loss.node, "cause": loss.cause, **loss.more}
    entry = LedgerEntry(
        ti_id=str(ti.id),
        worker_uid=f"{number:08x}-5a1f-4c1e-9b7e-{number:012x}",
        worker_name=pod,
        launch=launch,
        reason=loss.reason,
        context=ExecutionContext(cause.category, cause.reason, Source.EXECUTOR, metadata),
        decision=Decision(
            action=loss.action,
            policy=INFRASTRUCTURE if loss.phase is Phase.EXECUTION else "standard",
            rule=loss.rule,
            explanation=loss.explanation,
            delay=loss.delay,
            budget=loss.budget and BudgetUse(*loss.budget),
            ran_out="is left" in loss.explanation,
            avoid_node=AvoidNode.PREFER if loss.action is Action.RELAUNCH else AvoidNode.NONE,
        ),
        dependency=HUB if loss.away_since else None,
        away_since=loss.away_since,
        node_is_suspect=loss.cause == "volume-unavailable",
        due=at + timedelta(seconds=loss.delay) if loss.action is Action.RELAUNCH else None,
        phase=loss.phase,
    )
    event = LAUNCH_FAILURE_EVENT if loss.phase is Phase.LAUNCH else EXECUTION_FAILURE_EVENT
    _log(session, ti, event, at, entry.to_json())


def _log(session: Session, ti: TaskInstance, event: str, at: datetime, extra: str | None = None) -> None:
    row = Log(event=event, task_instance=ti.key, extra=extra)
    row.dttm = at
    session.add(row)
    session.flush()


if __name__ == "__main__":
    seed()
