# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
# Airflow passes a context by name whether it is used or not.
# ruff: noqa: ARG002
"""The user's code in the system tests, which notes when it begins and when it has ended, and its pods."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.triggers.file import FileTrigger
from airflow.sdk import BaseOperator, Context

from testbed.code_journal import (
    Order,
    code_name,
    folder_of_worker,
    order_file,
    record_callback,
    recorded,
    release_file,
)
from testbed.light_worker import HEARTBEAT_VARIABLE, LONGEST_WORK, SECONDS_VARIABLE

if TYPE_CHECKING:
    from kubernetes.client import V1Pod

LIGHT_WORKER = ("python", "-m", "testbed.light_worker")
_HELD = Path(__file__).with_name("held.sh")


def light_pod(
    seconds: float | None = None, *, heartbeat: float | None = None, image: str | None = None
) -> dict[str, V1Pod]:
    """
    Return the ``executor_config`` of a task that needs no more than :mod:`testbed.light_worker`.

    :param seconds: how long it works, if it is not released before; None: until it is released
    :param heartbeat: seconds between two heartbeats, from whose answers it learns that it has to go
    :param image: None: that of the pod template
    """
    given = {SECONDS_VARIABLE: seconds, HEARTBEAT_VARIABLE: heartbeat}
    env = {name: value for name, value in given.items() if value}
    return pod_with(command=LIGHT_WORKER, env=env, image=image)


def held_pod(*worker: str) -> dict[str, V1Pod]:
    """
    Return the ``executor_config`` of a task whose worker waits until the test decides about its pod.

    :param worker: what takes the place of Airflow's, :data:`LIGHT_WORKER` for one
    """
    return pod_with(command=("sh", str(_HELD), *worker))


def pod_with(
    *,
    command: Sequence[str] | None = None,
    env: Mapping[str, object] | None = None,
    grace_period: int | None = None,
    image: str | None = None,
    memory: str | None = None,
) -> dict[str, V1Pod]:
    """
    Return the ``executor_config`` of a task whose pods differ from the others.

    :param command: what takes the place of an image's entry point
    :param env: environment variables of the worker
    :param grace_period: seconds between SIGTERM and SIGKILL; None: those of the pod template
    :param image: None: that of the pod template
    :param memory: limit of the worker; None: that of the pod template
    """
    # Not at the top: most workers do not need it, and take a second longer to start with it.
    from kubernetes.client import V1Container, V1EnvVar, V1Pod, V1PodSpec, V1ResourceRequirements

    variables = [V1EnvVar(name, str(value)) for name, value in (env or {}).items()]
    container = V1Container(
        name="base",
        image=image,
        command=list(command) if command else None,
        env=variables,
        resources=V1ResourceRequirements(limits={"memory": memory}) if memory else None,
    )
    spec = V1PodSpec(containers=[container], termination_grace_period_seconds=grace_period)
    return {"pod_override": V1Pod(spec=spec)}


def make_pairs(executor: str) -> None:
    """Make twelve tasks, half of them another executor's, which wait for each other or run at once."""
    for number in range(3):
        pods = [
            Work(task_id=f"pod_{number}_{wave}", executor_config=light_pod()) for wave in ("first", "then")
        ]
        others = [Work(task_id=f"other_{number}_{wave}", executor=executor) for wave in ("first", "then")]
        pods[0] >> others[1]
        others[0] >> pods[1]


class Work(BaseOperator):
    """
    Works until the test says that it is enough.

    :param environment: what it needs to find among its environment variables
    :param number: any; to be mapped over
    """

    def __init__(
        self, *, environment: Mapping[str, str] | None = None, number: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.environment = environment or {}
        self.number = number

    def execute(self, context: Context) -> None:
        """Work."""
        with recorded(code_of(context)):
            for key, value in self.environment.items():
                if os.environ.get(key) != value:
                    raise ValueError(f"{key} is {os.environ.get(key)!r} and not {value!r}")
            self.log.info("%s works", self.task_id)
            work(context)


class WorkAfterWaiting(BaseOperator):
    """Waits in the triggerer until the test says that it is enough; another pod continues it."""

    def execute(self, context: Context) -> None:
        """Hand over to the triggerer."""
        with recorded(code_of(context)):
            trigger = FileTrigger(str(_released(context)), poke_interval=0.5)
        self.defer(trigger=trigger, method_name=self.resume.__name__)

    def resume(self, context: Context, event: Any = None) -> None:
        """Note that it goes on, in the second pod."""
        with recorded(code_of(context)):
            self.log.info("the task goes on")


def note_failure(context: Context) -> None:
    """Note that this is called: a failure callback."""
    record_callback(code_of(context))


def code_of(context: Context) -> str:
    """Return the name under which the code of the running task is recorded."""
    ti: Any = context["ti"]
    return code_name(ti.dag_id, ti.run_id, ti.task_id, ti.map_index)


def _released(context: Context) -> Path:
    dag_id: str = context["ti"].dag_id
    return release_file(folder_of_worker() / dag_id)


def work(context: Context) -> None:
    """
    Be busy until the test says that it is enough, to all tasks or to the one in this pod.

    :raises RuntimeError: if it tells this one to fail
    """
    released = _released(context)
    pod = os.environ.get("HOSTNAME")  # not known where another executor runs the task
    orders = order_file(folder_of_worker(), pod) if pod else None
    deadline = time.monotonic() + LONGEST_WORK
    while not released.exists() and time.monotonic() < deadline:
        if orders and orders.exists():
            _obey(Order(orders.read_text()))
            return
        time.sleep(0.2)


def _obey(order: Order) -> None:
    match order:
        case Order.SUCCEED:
            return
        case Order.FAIL:
            raise RuntimeError("the task fails, as the test wants it to")
        case Order.DIE:
            os.kill(os.getpid(), signal.SIGKILL)
