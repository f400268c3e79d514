# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Why a task has failed is stored before anybody is told, and the next run is told."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from airflow.callbacks.callback_requests import TaskCallbackRequest
from airflow.listeners import hookimpl
from airflow.listeners.listener import get_listener_manager
from airflow.models.log import Log
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import (
    KubernetesExecutor as UpstreamKubernetesExecutor,
)
from sqlalchemy import delete, select

from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import CREATION_TIMEOUT
from airflow.providers.cncf.kubernetes_resilience.executors.failures.judge import Asked, Situation
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import (
    KubernetesApiError,
    PodConflictError,
    PodNotFoundError,
)
from airflow_resilience import execution_context
from airflow_resilience.propagation import audit
from airflow_resilience.propagation.database import read_failure, write_failures
from airflow_resilience.propagation.stored import PREVIOUS_FAILURE, SETTLED_XCOM_KEY, XCOM_KEY, StoredContext
from airflow_resilience.termination.exceptions import explain
from cluster_lab.airflow_fixtures import make_scheduler_job

from ....support import manifests as m
from ....support.harness import database_away, lock, request_for
from .test_executions import lose, present, run_again


def stored(harness):
    harness.session.commit()
    harness.session.expire_all()
    rows = harness.session.scalars(select(XComModel).where(XComModel.key == SETTLED_XCOM_KEY))
    return [StoredContext.from_json(row.value) for row in rows]


def told(pod):
    """Return what a worker is told about the run before it."""
    (worker,) = pod.manifest["spec"]["containers"]
    values = [item["value"] for item in worker.get("env") or () if item["name"] == PREVIOUS_FAILURE]
    return StoredContext.from_json(values[0]) if values else None


def in_words(context):
    return context.category, context.reason, context.source


@pytest.mark.parametrize("budget", ["0", "1"])
def test_a_loss_that_is_reported_is_stored_for_callbacks(start, running, budget):
    harness = start(KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET=budget)
    ti, pod = running(harness)
    ti_id = str(ti.id)
    lose(harness, pod, m.out_of_memory())
    assert [state for state, _ in harness.events().values()] == ["failed"]
    (found,) = stored(harness)
    assert (found.ti_id, found.try_number) == (ti_id, 1)
    assert in_words(found.context) == ("APPLICATION", "RESOURCE_EXHAUSTION", "EXECUTOR")
    assert found.context.metadata["exit_code"] == 137


def test_what_runs_again_is_not_stored_for_callbacks_and_tells_the_next_run(start, running):
    harness = start(KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET="2")
    ti, pod = running(harness)
    assert told(pod) is None
    key = ti.key
    lose(harness, pod)
    second = run_again(harness, key)
    assert told(second).ti_id == str(present(harness, key).id)
    assert in_words(told(second).context) == ("INFRASTRUCTURE", "RESOURCE_EXHAUSTION", "EXECUTOR")
    assert told(second).explanation.startswith("infrastructure retry 1 of 2")
    assert stored(harness) == []


def test_a_relaunch_is_told_why_there_is_one(start, queued_ti):
    harness = start()
    first = harness.launch(queued_ti())
    harness.observe(first, m.evicted())
    assert (told(first), told(harness.created()).context.reason) == (None, "RESOURCE_EXHAUSTION")


def test_what_goes_on_after_a_deferral_is_told_why_the_try_before_has_failed(start, running, session):
    """Also a sensor that is rescheduled. After a loss in the same try it is told, by the ledger."""
    harness = start()
    ti, pod = running(harness)
    harness.observe(pod, m.out_of_memory())
    row = present(harness, ti.key)
    harness.begin_anew(row, "queued", try_number=2)
    pod = harness.launch(row)
    assert told(pod).context.reason == "RESOURCE_EXHAUSTION"
    harness.set_state(row, "deferred")
    session.execute(delete(XComModel))  # as Airflow's worker does when a task begins anew
    session.commit()
    harness.observe(pod, m.succeeded())
    harness.set_state(row, "queued", next_method="execute_complete")
    assert told(harness.launch(row)).context.reason == "RESOURCE_EXHAUSTION"


def test_what_is_cleared_after_a_success_is_not_told_of_the_failure_before_that(start, running, session):
    harness = start()
    ti, pod = running(harness)
    harness.observe(pod, m.out_of_memory())
    row = present(harness, ti.key)
    harness.begin_anew(row, "queued", try_number=2)
    pod = harness.launch(row)
    session.execute(delete(XComModel))  # as Airflow's worker does when a task begins anew
    harness.set_state(row, "success")
    harness.observe(pod, m.succeeded())
    harness.begin_anew(row, "queued", try_number=3)
    assert told(harness.launch(row)) is None


def test_a_try_is_not_told_of_its_own_number(start, queued_ti, session):
    """It was cleared, and the number of tries begins anew."""
    harness, ti = start(), queued_ti()
    write_failures({ti.key: (str(ti.id), explain(ValueError()))}, session=session)
    session.commit()
    assert told(harness.launch(ti)) is None


def test_the_last_failure_takes_the_place_of_the_one_before(queued_ti, session):
    ti, other = queued_ti(), queued_ti()
    for error in (ValueError("first"), KeyError("second")):
        failures = {item.key: (str(item.id), explain(error)) for item in (ti, other)}
        write_failures(failures, session=session)
        session.commit()
    rows = session.scalars(select(XComModel).where(XComModel.key == SETTLED_XCOM_KEY)).all()
    contexts = [StoredContext.from_json(row.value).context for row in rows]
    assert [context.metadata["exception"] for context in contexts] == ["builtins.KeyError"] * 2
    assert {row.task_id for row in rows} == {ti.task_id, other.task_id}


def test_a_message_that_the_database_does_not_take_is_no_obstacle(queued_ti, session):
    ti = queued_ti()
    write_failures({ti.key: (str(ti.id), explain(ValueError("a\0b")))}, session=session)
    session.commit()
    assert json.dumps(session.scalars(select(XComModel.value)).one())
    assert session.get(TaskInstance, ti.id)


def test_callbacks_and_the_next_run_are_told_the_end_of_what_a_program_has_said(start, queued_ti):
    """A traceback says at its end what was wrong."""
    harness = start(KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES="0")
    said = "Traceback (most recent call last):\n" + "  a frame\n" * 300 + "ValueError: what was wrong"
    ended = m.pod("Failed", [m.base(m.terminated(1, "Error", said))])
    harness.observe(harness.launch(queued_ti()), ended)
    (found,) = stored(harness)
    assert found.context.metadata["message"].endswith("ValueError: what was wrong")
    assert StoredContext.from_json(found.to_json()) == found


@pytest.mark.parametrize("budget", ["0", "1"])
def test_a_callback_carries_why_the_task_has_failed(start, running, budget):
    """By the time that it is called, the next run may have begun, and the XCom be gone."""
    harness = start(KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET=budget)
    ti, pod = running(harness)
    lose(harness, pod, m.out_of_memory())
    assert [state for state, _ in harness.events().values()] == ["failed"]
    row = present(harness, ti.key)
    row.context_carrier = {"traceparent": "as it was"}
    (found,) = harness.call_back(row)
    # As it comes to the DAG processor.
    carrier = TaskCallbackRequest.from_json(found.to_json()).ti.context_carrier
    assert carrier.pop("traceparent") == "as it was"
    told = execution_context({"ti": SimpleNamespace(id=row.id, context_carrier=carrier)})
    assert in_words(told) == ("APPLICATION", "RESOURCE_EXHAUSTION", "EXECUTOR")


def test_a_callback_that_no_guess_follows_is_sent_and_carries_it_too(start, running):
    """It is about something else: a refused second phase, for example, while the first one's pod is there."""
    harness = start(KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET="1")
    ti, _ = running(harness)
    says(harness, ti, ValueError("its own"))
    sent = harness.call_back(ti)
    assert sent == []
    for _ in range(2):
        harness.executor.sync()
    (found,) = sent
    assert in_words(execution_context({"ti": found.ti})) == ("APPLICATION", "TASK_ERROR", "WORKER")


def test_a_callback_about_something_else_is_sent_as_it_is(start, running):
    harness = start()
    ti = present(harness, running(harness)[0].key)
    harness.executor.revoke_task(ti=ti)
    before = request_for(ti).to_json()
    assert [item.to_json() for item in harness.call_back(ti)] == [before]


def ended(harness):
    """Return what the audit log says of tasks that have failed and lost no pod."""
    harness.session.commit()
    rows = harness.session.scalars(select(Log).where(Log.event == audit.EVENT).order_by(Log.id)).all()
    return [(row.try_number, StoredContext.from_json(row.extra)) for row in rows]


def says(harness, ti, error, ti_id=None):
    """Do what Airflow's API server does for a worker that stores why its task has failed."""
    said = StoredContext(ti_id or str(ti.id), ti.try_number, explain(error)).to_json()
    place = {"dag_id": ti.dag_id, "task_id": ti.task_id, "run_id": ti.run_id, "map_index": ti.map_index}
    XComModel.set(key=XCOM_KEY, value=said, serialize=False, session=harness.session, **place)
    harness.session.commit()


def test_what_a_worker_has_said_of_its_own_failure_is_written_down(start, running):
    harness = start()
    ti, pod = running(harness)
    says(harness, ti, ValueError("its own"))
    harness.set_state(ti, "failed")
    harness.observe(pod, m.succeeded())
    assert ended(harness) == [(1, StoredContext(str(ti.id), 1, explain(ValueError("its own"))))]


def test_also_if_the_task_waits_for_its_next_try(start, running, session):
    harness = start()
    ti, pod = running(harness)
    ti_id = str(ti.id)
    says(harness, ti, ValueError("its own"))
    row = present(harness, ti.key)
    row.state = "up_for_retry"
    row.prepare_db_for_next_try(session)
    session.commit()
    harness.observe(pod, m.succeeded())
    ((try_number, stored),) = ended(harness)
    assert (try_number, stored.ti_id, stored.context.reason) == (1, ti_id, "TASK_ERROR")


def test_also_if_its_pod_takes_longer_to_end_than_the_next_try_to_begin(start, running):
    harness = start()
    ti, pod = running(harness)
    ti_id = str(ti.id)
    says(harness, ti, ValueError("its own"))
    row = present(harness, ti.key)
    harness.begin_anew(row, "queued", try_number=2)
    assert told(harness.launch(row)).context.reason == "TASK_ERROR"
    for _ in range(2):
        ((try_number, stored),) = ended(harness)
        assert (try_number, stored.ti_id, stored.context.reason) == (1, ti_id, "TASK_ERROR")
        harness.observe(pod, m.succeeded())


def clear(harness, ti):
    """Do what Airflow does with a task that runs and is cleared."""
    row = present(harness, ti.key)
    harness.begin_anew(row, "restarting")
    return row


@pytest.mark.parametrize("end", [m.succeeded(), m.worker_error(137), m.out_of_memory()])
def test_that_a_running_task_was_cleared_is_told_if_its_worker_has_not_said_why_it_ended(start, running, end):
    harness = start()
    ti, pod = running(harness)
    ti_id = str(ti.id)
    clear(harness, ti)
    harness.observe(pod, end)
    ((try_number, said),) = ended(harness)
    assert (try_number, said.ti_id) == (1, ti_id)
    assert in_words(said.context) == ("USER_ACTION", "MANUAL_CLEAR", "API")
    # What the scheduler's listeners and the callbacks of a failed worker read, and the next try.
    assert read_failure(ti.key, session=harness.session) == said


def test_what_the_worker_of_a_cleared_task_has_said_counts(start, running):
    harness = start()
    ti, pod = running(harness)
    says(harness, ti, ValueError("its own, just before"))
    clear(harness, ti)
    harness.observe(pod, m.succeeded())
    ((_, said),) = ended(harness)
    assert said.context.reason == "TASK_ERROR"
    assert read_failure(ti.key, session=harness.session) == said


def test_the_next_try_is_told_that_the_one_before_was_cleared(start, running):
    harness = start()
    ti, pod = running(harness)
    row = clear(harness, ti)
    harness.observe(pod, m.succeeded())
    harness.set_state(row, "queued", try_number=2)
    assert told(harness.launch(row)).context.reason == "MANUAL_CLEAR"


def test_a_task_that_was_cleared_and_is_another_schedulers_by_now_is_left_to_it(start, running, session):
    harness = start()
    ti, pod = running(harness)
    clear(harness, ti).queued_by_job_id = make_scheduler_job(session)
    session.commit()
    harness.observe(pod, m.succeeded())
    harness.quiet()
    assert (ended(harness), harness.events(), ti.key in harness.executor.running) == ([], {}, False)
    assert (harness.runtime.take("clean_up"), harness.runtime.take("mark_done")) == ([], [])


def test_that_a_task_was_cleared_waits_for_whoever_has_its_row_locked(start, running):
    harness = start()
    ti, pod = running(harness)
    row = clear(harness, ti)
    with lock(row):
        harness.observe(pod, m.succeeded())
        assert harness.events() == {}
    harness.executor.sync()
    assert [state for state, _ in harness.events().values()] == ["success"]
    assert len(ended(harness)) == 1


@pytest.mark.parametrize("state", ["success", "failed"])
def test_what_is_of_another_run_of_the_try_is_not(start, running, state):
    harness = start()
    ti, pod = running(harness)
    says(harness, ti, ValueError("a worker that is cut off"), ti_id="00000000-0000-0000-0000-000000000000")
    harness.set_state(ti, state)
    harness.observe(pod, m.succeeded())
    assert ended(harness) == []


def test_what_was_decided_about_is_in_the_ledger_only(start, running):
    harness = start(KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET="1")
    ti, pod = running(harness)
    says(harness, ti, ValueError("as it was killed"))
    lose(harness, pod, m.out_of_memory())
    harness.set_state(ti, "failed")
    harness.executor.sync()
    assert ended(harness) == []
    assert read_failure(ti.key, session=harness.session).context.reason == "RESOURCE_EXHAUSTION"


def told_without_a_pod(harness, ti):
    """Return what listeners and callbacks are told of a task that got no pod, and see that both are."""
    ((state, info),) = harness.events().values()
    told = []

    class Listener:
        @hookimpl
        def on_task_instance_failed_with_context(self, execution_context):
            told.append(execution_context)

    get_listener_manager().add_listener(listener := Listener())
    try:
        hook = get_listener_manager().hook.on_task_instance_failed
        hook(previous_state="queued", task_instance=ti, error=info)
    finally:
        get_listener_manager().pm.unregister(listener)
    (request,) = harness.call_back(ti)
    assert execution_context({"ti": request.ti}) == told[0]
    ((try_number, stored),) = ended(harness)
    assert (state, try_number, stored.ti_id, stored.context) == ("failed", 1, str(ti.id), told[0])
    return told[0]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            KubernetesApiError("image: Required", status=422, reason="Invalid"),
            "APPLICATION ADMISSION_REFUSED",
        ),
        (
            PodNotFoundError("no such namespace", status=404, reason="NotFound"),
            "APPLICATION ADMISSION_REFUSED",
        ),
        (
            KubernetesApiError('pods "x" is forbidden: exceeded quota: tasks', status=403),
            "INFRASTRUCTURE RESOURCE_EXHAUSTION",
        ),
        (PodConflictError("object has been modified", status=409), "INFRASTRUCTURE ADMISSION_REFUSED"),
    ],
    ids=str,
)
def test_a_pod_that_is_refused_is_a_failed_launch_that_is_stored_for_callbacks(
    start, queued_ti, error, expected
):
    harness, ti = start(KUBERNETES_EXECUTOR__TASK_PUBLISH_MAX_RETRIES="0"), queued_ti()
    harness.hand_over(ti)
    harness.refuse(error)
    ((state, info),) = harness.events().values()
    (found,) = stored(harness)
    (entry,) = harness.ledger(ti)
    assert (state, entry["context"]) == ("failed", found.context.to_dict())
    assert in_words(found.context) == (*expected.split(), "EXECUTOR")
    assert str(error) in found.context.metadata["pod_message"]
    assert str(error) in info
    assert found.context.metadata["namespace"] == "default"


def test_a_pod_that_cannot_be_built(start, queued_ti, tmp_path):
    harness = start(KUBERNETES_EXECUTOR__POD_TEMPLATE_FILE=str(tmp_path / "none.yaml"))
    ti = queued_ti()
    harness.hand_over(ti)
    context = told_without_a_pod(harness, ti)
    assert in_words(context) == ("APPLICATION", "START_ERROR", "EXECUTOR")
    assert "Pod could not be built" in context.metadata["message"]


def test_a_workload_that_is_not_accepted(start, queued_ti, monkeypatch):
    harness, ti = start(), queued_ti()
    monkeypatch.setattr(UpstreamKubernetesExecutor, "execute_async", lambda self, **workload: 1 / 0)
    harness.hand_over(ti)
    harness.executor.sync()
    context = told_without_a_pod(harness, ti)
    assert in_words(context) == ("APPLICATION", "START_ERROR", "EXECUTOR")


def test_a_database_that_is_away_is_waited_for_before_anybody_is_told(start, queued_ti, tmp_path):
    harness = start(KUBERNETES_EXECUTOR__POD_TEMPLATE_FILE=str(tmp_path / "none.yaml"))
    ti = queued_ti()
    harness.queue(ti)
    with database_away(audit, "create_session"):
        harness.executor.heartbeat()
        assert harness.events() == {}
    harness.executor.sync()
    assert told_without_a_pod(harness, ti).reason == "START_ERROR"


def test_nothing_is_stored_about_a_task_that_was_cleared_meanwhile(start, queued_ti):
    harness, ti = start(), queued_ti()
    harness.set_state(ti, None)
    audit.record_unlaunched(ti.key, explain(None))
    assert (ended(harness), stored(harness)) == ([], [])


def test_what_the_executor_cannot_handle(start, queued_ti):
    harness, ti = start(), queued_ti()
    harness.hand_over(ti)
    launch = harness.registry.get(ti.key)
    harness.parts.actions.cannot_settle(Asked(launch, Situation.ENDED), RuntimeError("a bug"))
    harness.wait(CREATION_TIMEOUT)
    assert in_words(told_without_a_pod(harness, ti)) == ("INFRASTRUCTURE", "UNKNOWN", "EXECUTOR")
