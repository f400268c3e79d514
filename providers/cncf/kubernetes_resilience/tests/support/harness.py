# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The executor over a real metadata database, with the Kubernetes thread replaced.

The thread is what a mock stands for here: its messages are put into the executor's inbox, and what the
executor asks of it is recorded. The thread itself is tested in ``unit/pods`` and in ``integration``.
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from airflow.callbacks.callback_requests import TaskCallbackRequest
from airflow.executors.workloads import ExecuteTask
from airflow.models.log import Log
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import event, select
from sqlalchemy.exc import OperationalError

from airflow.providers.cncf.kubernetes_resilience.executors import isolation
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import QUIET_SECONDS
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodRef
from airflow.providers.cncf.kubernetes_resilience.pods.messages import (
    PodConfirmed,
    PodCreated,
    PodDeletionAccepted,
    PodNotCreated,
    PodObservation,
)

from . import manifests as m
from .cluster import Cluster, FakeLauncher, PausedRuntime, Pod

OTHER_JOB = 2**31 - 1
"""The job of another scheduler. No job of a test has this id, however many the process has made."""


class FakeRuntime(PausedRuntime):
    """Records commands instead of carrying them out; waited-for calls are answered by the cluster."""

    def __init__(self, settings, emit, *, cluster: Cluster):
        super().__init__()
        self.settings, self.emit = settings, emit
        self.cluster = cluster
        self.launcher = FakeLauncher(cluster)
        self.is_away = False
        """Whether the API server does not answer."""
        self.connects = True
        """Whether a connection comes about at once."""
        self.starts = self.calls = 0

    def start(self, *, wait=True):
        if not (self.connects or wait):
            return
        self.is_alive = True
        self.starts += 1

    def stop(self, timeout):
        self.is_alive = False

    def call(self, coroutine, timeout):
        self.calls += 1
        return super().call(coroutine, timeout)

    def take(self, name: str) -> list[tuple[Any, ...]]:
        """Return what was asked for under that name since the last time."""
        taken = [args for command, args in self.commands if command.__name__ == name]
        self.commands = [command for command in self.commands if command[0].__name__ != name]
        return taken

    def carry_out(self, owner: str) -> None:
        """Let the loop run the commands that a class of the executor has of its own."""
        own = [item for item in self.commands if item[0].__qualname__.startswith(owner)]
        self.commands = [item for item in self.commands if item not in own]
        for function, args in own:
            with suppress(Exception):  # the real one logs it
                asyncio.run(function(*args))


class Clock:
    """Monotonic time that goes on when a test says so."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class Harness:
    """An executor that was started, and the hands to play scheduler and cluster."""

    def __init__(self, executor, clock, session):
        self.executor, self.clock, self.session = executor, clock, session
        self.registry, self.inbox = executor._registry, executor._inbox
        self.runtime: FakeRuntime = self.parts.runtime
        self.cluster = self.runtime.cluster

    @property
    def parts(self):
        """The parts of the executor. Tests know them by this, the registry and the inbox alone."""
        return self.executor._parts

    # ------------------------------------------------------------------ the scheduler

    @property
    def label(self) -> str:
        """The label by which the executor selects its pods."""
        return str(self.executor.job_id)

    def queue(self, ti) -> None:
        """Hand a task instance to the executor, as the scheduler does."""
        workload = ExecuteTask.make(ti, generator=self.executor.jwt_generator)
        self.executor.queue_workload(workload, session=self.session)

    def hand_over(self, *tis) -> None:
        """Queue task instances and let the executor turn once."""
        for ti in tis:
            self.queue(ti)
        self.executor.heartbeat()

    def requeue(self, ti) -> None:
        """Let this scheduler queue a task instance again, in the same try."""
        self.set_state(ti, "queued", queued_by_job_id=self.executor.job_id)
        self.hand_over(ti)

    def call_for(self, ti) -> tuple[str, dict[str, Any]]:
        """Queue a task instance and return the create call for its pod, which stays open."""
        self.hand_over(ti)
        return self.create_call()

    def launch(self, ti) -> Pod:
        """Queue a task instance and return its pod, created."""
        self.hand_over(ti)
        return self.created()

    def offer(self, *tis) -> list[Any]:
        """Offer task instances of a dead scheduler as Airflow does; return those that are reset."""
        ids = [ti.id for ti in tis]
        self.session.execute(select(TaskInstance.id).where(TaskInstance.id.in_(ids)).with_for_update())
        lost = list(self.executor.try_adopt_task_instances(tis))
        for ti in tis:
            if ti in lost:
                ti.state = ti.queued_by_job_id = None
            else:
                ti.queued_by_job_id = self.executor.job_id
        self.session.commit()
        return lost

    def adopt(self, *tis) -> list[Any]:
        """As :meth:`offer`, and let the pods be relabelled; return the task instances that are reset."""
        lost = self.offer(*tis)
        self.executor.sync()
        self.relabel()
        return lost

    def take_over(self, *tis) -> None:
        """As :meth:`adopt`, with one more turn."""
        self.adopt(*tis)
        self.executor.sync()

    def relabel(self) -> None:
        """Let the pods be relabelled that were adopted."""
        self.runtime.carry_out("FakeLauncher.adopt")

    def set_state(self, ti, state, **values) -> None:
        self.row(ti)
        for name, value in {"state": state, **values}.items():
            setattr(ti, name, value)
        self.session.commit()

    def begin_anew(self, ti, state, **values) -> None:
        """Let a task instance have a state under another UUID, as when it is cleared or tried again."""
        self.row(ti).prepare_db_for_next_try(self.session)
        self.set_state(ti, state, **values)

    def begin(self, ti, pod: Pod) -> None:
        """Let the worker in a pod report its start, as the execution API writes it down."""
        self.session.add(Log(event="running", task_instance=ti.key))
        self.set_state(ti, "running", hostname=pod.name)

    def run(self, ti) -> Pod:
        """Launch a task instance and let its worker begin; return the pod."""
        pod = self.launch(ti)
        self.observe(pod, m.alive())
        self.begin(ti, pod)
        return pod

    def call_back(self, ti) -> list[TaskCallbackRequest]:
        """Let the scheduler call back for a task instance; return where the callbacks are that were sent."""
        sent: list[TaskCallbackRequest] = []
        self.executor.callback_sink = SimpleNamespace(send=sent.append)
        self.executor.send_callback(request_for(ti))
        return sent

    # ------------------------------------------------------------------ the cluster

    def create_call(self) -> tuple[str, dict[str, Any]]:
        """Take the one create call that is open."""
        (call,) = self.runtime.take("create")
        return call

    def created(self) -> Pod:
        """Answer the one create call that is open; return its pod."""
        launch_id, body = self.create_call()
        pod = self.cluster.add(Pod(body))
        self.send(PodCreated(launch_id, pod.facts()))
        return pod

    def refuse(self, error) -> None:
        """Answer the one create call that is open with an error."""
        launch_id, _ = self.create_call()
        self.send(PodNotCreated(launch_id, error))

    def send(self, *messages) -> None:
        """Deliver messages and let the executor turn once."""
        for message in messages:
            self.inbox.put(message)
        self.executor.sync()

    def observe(self, pod: Pod, like: dict[str, Any] | None = None, **status: Any) -> None:
        """Let the informer see a pod with the status of a manifest, or with these fields of it."""
        if like:
            pod.become(like)
        if status:
            pod.manifest["status"] = status
        self.send(PodObservation(pod.facts()))

    def lose_sight(self, pod: Pod) -> None:
        """Let the informer see a pod no more."""
        self.send(PodObservation(pod.facts(), gone=True))

    def vanish(self, pod: Pod) -> None:
        """Let the informer see a pod no more, and the API server say that it does not exist."""
        self.cluster.remove(pod)
        self.lose_sight(pod)
        self.send(*(PodConfirmed(ref, None) for (ref,) in self.runtime.take("confirm")))

    def deleted(self, ref: PodRef) -> None:
        """Answer a delete call: the pod is gone."""
        self.send(PodConfirmed(ref, None))

    def accepted(self, ref: PodRef, grace_seconds: int = 30) -> None:
        """Answer a delete call: the pod is given that time to end."""
        self.send(PodDeletionAccepted(ref, grace_seconds))

    def wait(self, seconds: float) -> None:
        """Let time pass and the executor turn once."""
        self.clock.advance(seconds)
        self.executor.sync()

    # ------------------------------------------------------------------ what can be seen

    def row(self, ti):
        """Return the task instance as the database has it now."""
        self.session.commit()
        self.session.refresh(ti)
        return ti

    def ledger(self, ti):
        """Return the ledger rows of a task instance, oldest first."""
        self.session.commit()
        rows = self.session.scalars(select(Log).where(Log.event == "pod launch failed").order_by(Log.id))
        key = (ti.dag_id, ti.task_id, ti.map_index)
        return [json.loads(row.extra) for row in rows if (row.dag_id, row.task_id, row.map_index) == key]

    def quiet(self) -> None:
        """Let it be quiet for long enough that pods which have ended are cleaned up."""
        self.wait(QUIET_SECONDS)

    def events(self) -> dict[Any, tuple[Any, Any]]:
        """Take what the executor reported, without the reports that something was queued."""
        events = self.executor.get_event_buffer()
        return {key: event for key, event in events.items() if event[0] != "queued"}

    def failure(self) -> str:
        """Take the one report, which is of a failure; return what it says."""
        ((state, info),) = self.events().values()
        assert state == "failed"
        return info

    def occupied(self, ti) -> bool:
        """Whether the task instance has a slot of the executor."""
        return ti.key in self.executor.running


def request_for(ti) -> TaskCallbackRequest:
    """Return the request for the callbacks of a task instance."""
    return TaskCallbackRequest(ti=ti, filepath="", bundle_name="tests", bundle_version=None, msg="")


def noted_log(name: str) -> Any:
    """Return a logger that takes values beside the sentence, as Airflow's do, and is noted by ``caplog``."""
    return structlog.wrap_logger(
        logging.getLogger(name),
        [structlog.stdlib.PositionalArgumentsFormatter(), structlog.stdlib.render_to_log_kwargs],
        structlog.stdlib.BoundLogger,
    )


@contextmanager
def lock(ti):
    """Hold the row lock of a task instance, as another scheduler or the API server may."""
    with create_session(scoped=False) as session:
        session.execute(select(TaskInstance.id).where(TaskInstance.id == ti.id).with_for_update())
        yield
        session.rollback()


@contextmanager
def database_away(owner, *names: str):
    """Let these functions fail, as while the database does not answer."""

    def broken(*args, **kwargs):
        raise OperationalError("SELECT 1", {}, Exception("the database is away"))

    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setattr(owner, name, broken)
        patch.setattr(isolation, "database_answers", lambda: False)
        yield


@contextmanager
def statements(session):
    """Collect the statements that are executed, by whatever session."""
    found = []

    def note(*args):
        found.append(args[2])

    event.listen(session.bind, "before_cursor_execute", note)
    yield found
    event.remove(session.bind, "before_cursor_execute", note)
