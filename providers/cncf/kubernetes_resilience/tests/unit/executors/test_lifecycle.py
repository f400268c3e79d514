# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Starting, stopping, and slots."""

from __future__ import annotations

import threading

import pytest
from airflow.executors.workloads import ExecuteCallback
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.models.callback import CallbackFetchMethod, ExecutorCallback
from airflow.models.dagbag import DBDagBag
from airflow.sdk import SyncCallback

from airflow.providers.cncf.kubernetes_resilience.executors import assembly
from airflow.providers.cncf.kubernetes_resilience.executors.kubernetes_executor import KubernetesExecutor
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import KubernetesApiError
from airflow.providers.cncf.kubernetes_resilience.pods.messages import PodNotCreated
from airflow_resilience import airflow_version

from ...support import manifests as m


def test_a_callback_for_executors_is_refused_and_does_not_end_the_scheduler(harness, queued_ti, session):
    """As a deadline has one."""
    run = queued_ti().dag_run
    definition = SyncCallback("module.function")
    callback = ExecutorCallback(definition, fetch_method=CallbackFetchMethod.IMPORT_PATH)
    session.add(callback)
    session.commit()
    executor = harness.executor
    workload = ExecuteCallback.make(callback, run, generator=executor.jwt_generator)

    executor.queue_workload(workload, session)
    SchedulerJobRunner.process_executor_events(executor, executor.job_id, DBDagBag(), session)
    why = "The Kubernetes executor runs tasks, and no ExecuteCallback"
    assert (callback.state, callback.output) == ("failed", why)


# ---------------------------------------------------------------------------------------- start and end


def test_a_version_of_airflow_that_is_not_supported_is_refused(session, scheduler_job_id, monkeypatch):
    executor = KubernetesExecutor()
    monkeypatch.setattr(airflow_version, "airflow_version", "3.4.0")
    before = threading.active_count()
    with pytest.raises(RuntimeError, match=r"Airflow 3\.4\.0 is not supported"):
        executor.start()
    assert (executor._is_started, threading.active_count()) == (False, before)


def test_a_start_warns_of_what_is_configured_in_vain(start, monkeypatch, capsys):
    start()
    assert "of no effect" not in capsys.readouterr().out
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__ASYNC_POD_CREATION", "True")
    start()
    assert "[kubernetes_executor] async_pod_creation = True: of no effect" in capsys.readouterr().out


def test_ending_what_could_not_connect(start, monkeypatch):
    stopped = []

    class Runtime:
        def __init__(self, *args):
            pass

        def start(self):
            raise TimeoutError

        def stop(self, timeout):
            stopped.append(timeout)

    executor = start().executor
    executor.end()
    monkeypatch.setattr(assembly, "KubernetesRuntime", Runtime)
    with pytest.raises(TimeoutError):
        executor.start()
    executor.end()
    assert len(stopped) == 1


def test_revoking_after_the_end(harness, queued_ti):
    ti = queued_ti()
    harness.launch(ti)
    harness.executor.end()
    harness.executor.revoke_task(ti=ti)
    assert not harness.occupied(ti)


def test_starting_again(harness, launched):
    _, pod = launched
    harness.executor.end()
    harness.executor.start()
    harness.runtime = harness.parts.runtime
    assert harness.runtime.is_alive
    harness.observe(pod, m.evicted())
    assert harness.created().launch_number == 2


@pytest.mark.parametrize(
    ("config", "namespaces"),
    [
        ({}, ("default",)),
        ({"KUBERNETES_EXECUTOR__MULTI_NAMESPACE_MODE": "True"}, (None,)),
        (
            {
                "KUBERNETES_EXECUTOR__MULTI_NAMESPACE_MODE": "True",
                "KUBERNETES_EXECUTOR__MULTI_NAMESPACE_MODE_NAMESPACE_LIST": "one,two",
            },
            ("one", "two"),
        ),
        (
            {
                "KUBERNETES_EXECUTOR__MULTI_NAMESPACE_MODE": "True",
                "KUBERNETES_EXECUTOR__MULTI_NAMESPACE_MODE_NAMESPACE_LIST": "one, two,one,",
            },
            ("one", "two"),
        ),
    ],
    ids=["one", "all", "listed", "listed by people"],
)
def test_the_namespaces_that_are_watched(start, config, namespaces):
    assert start(**config).runtime.settings.namespaces == namespaces


def test_what_the_runtime_is_told(start):
    settings = start(
        KUBERNETES_RESILIENCE__API_CONCURRENCY="7",
        KUBERNETES_RESILIENCE__WATCH_INACTIVITY_TIMEOUT="100",
        KUBERNETES_EXECUTOR__DELETE_OPTION_KWARGS='{"grace_period_seconds": 3}',
        KUBERNETES_EXECUTOR__KUBE_CLIENT_REQUEST_ARGS='{"_request_timeout": [5, 6]}',
    ).runtime.settings
    assert (settings.concurrency, settings.inactivity_timeout) == (7, 100)
    assert settings.delete_options == {"grace_period_seconds": 3}
    assert list(settings.request_timeout) == [5, 6]


def test_the_loop_never_waits_for_kubernetes(start, queued_ti):
    harness = start(KUBERNETES_EXECUTOR__TASK_PUBLISH_MAX_RETRIES="1")
    ti = queued_ti()
    launch_id, _ = harness.call_for(ti)
    harness.send(PodNotCreated(launch_id, KubernetesApiError("oops", status=500)))
    harness.wait(60)
    pod = harness.created()
    harness.observe(pod, m.starting())
    harness.vanish(pod)
    harness.created()
    harness.wait(1000)
    assert harness.runtime.calls == 0


# ----------------------------------------------------------------------------------------------- slots


def test_slots_and_bookkeeping(harness, queued_ti):
    ti = queued_ti()
    executor, all_slots = harness.executor, harness.executor.slots_available
    harness.queue(ti)
    assert (executor.slots_available, executor.has_task(ti)) == (all_slots - 1, True)
    executor.heartbeat()
    pod = harness.created()
    assert executor.get_event_buffer() == {ti.key: ("queued", str(executor.job_id))}
    assert (executor.slots_available, executor.has_task(ti)) == (all_slots - 1, True)
    harness.observe(pod, m.evicted())
    assert (executor.slots_available, executor.has_task(ti)) == (all_slots - 1, True)
    harness.observe(harness.created(), m.evicted())
    assert (executor.slots_available, executor.has_task(ti)) == (all_slots, False)
    assert executor.pod_launch_attempts == {}


def test_a_succeeded_pod_is_deleted_after_its_end_was_reported(harness, launched):
    ti, pod = launched
    harness.begin(ti, pod)
    harness.set_state(ti, "success")
    harness.observe(pod, m.succeeded())
    assert harness.runtime.take("clean_up") == []
    harness.quiet()
    assert harness.runtime.take("clean_up") == [(pod.ref,)]
