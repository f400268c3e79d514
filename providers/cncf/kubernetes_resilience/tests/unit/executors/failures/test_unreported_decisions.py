# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A decision that ends a task was written, and the scheduler was killed before it had told of it."""

from __future__ import annotations

import inspect

import pytest
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.models.dagbag import DBDagBag
from airflow.models.log import Log
from airflow.models.taskinstance import TaskInstance

from airflow.providers.cncf.kubernetes_resilience.executors.failures.situation import SIDECAR_GRACE

from ....support import manifests as m

FAIL = """\
policies:
  - name: strict
    rules:
      - {name: broken, action: Fail, onReasons: [StartError]}
defaultPolicy: strict
"""


@pytest.fixture
def killed(start, queued_ti, with_policies):
    """Give a function that has a decision written that is never acted upon, and returns the task instance."""

    def make(action, **values):
        config = with_policies(FAIL) if action == "fail" else {}
        harness, ti = start(**config), queued_ti(**values)
        pod = harness.launch(ti)
        harness.parts.actions.act = lambda settled: None
        harness.observe(pod, m.start_error() if action == "fail" else m.worker_error())
        (entry,) = harness.ledger(ti)
        assert entry["action"] == action
        assert harness.events() == {}
        harness.cluster.remove(pod)
        return ti, entry

    return make


def take_over(heir, ti):
    """Adopt a task instance without a pod, which is then scheduled and queued again in the same try."""
    assert heir.adopt(ti) == []
    assert heir.row(ti).state == "scheduled"
    heir.requeue(ti)


@pytest.mark.parametrize("action", ["count", "fail"])
def test_the_successor_tells_of_it_and_launches_nothing(killed, successor, action):
    ti, entry = killed(action, retries=1)
    heir = successor()
    take_over(heir, ti)
    assert heir.runtime.take("create") == []
    assert entry["explanation"] in heir.failure()
    assert not heir.occupied(ti)
    assert heir.row(ti).max_tries == (0 if action == "fail" else 1), "what was decided about retries stays"


def test_a_worker_that_has_started_since_makes_it_past(killed, successor):
    ti, _ = killed("count")
    heir = successor()
    assert heir.adopt(ti) == []
    heir.session.add(Log(event="running", task_instance=ti.key))
    heir.session.commit()
    heir.requeue(ti)
    assert heir.create_call()


@pytest.mark.parametrize("exit_code", [1, 143], ids=["own exit", "terminated"])
def test_a_worker_that_has_ended_in_a_pending_pod_is_decided_about_once(
    harness, queued_ti, successor, exit_code
):
    """The pod is Pending for as long as its sidecar has no image."""
    ti = queued_ti()
    pod = harness.launch(ti)
    harness.parts.actions.act = lambda settled: None
    harness.observe(pod, m.beside_a_sidecar_without_image(m.terminated(exit_code, "Error")))
    harness.wait(SIDECAR_GRACE)
    decided = harness.ledger(ti)
    heir = successor()
    heir.take_over(ti)
    heir.wait(SIDECAR_GRACE)
    assert heir.ledger(ti) == decided
    heir.quiet()
    assert (heir.runtime.take("delete"), heir.runtime.take("stop_and_keep")) == ([], [(pod.ref,)])


def deliver(harness, session=None):
    """Let Airflow's scheduler read what the executor has reported."""
    process = SchedulerJobRunner.process_executor_events
    known = {
        "executor": harness.executor,
        "job_id": harness.executor.job_id,
        "scheduler_dag_bag": DBDagBag(load_op_links=False),
        "session": session or harness.session,
    }
    process(**{name: known[name] for name in inspect.signature(process).parameters})
    harness.session.commit()


def test_a_decision_that_was_delivered_is_never_met_again(killed, successor):
    """The next try has the same UUID, since its worker never ran, but another number."""
    ti, _ = killed("count", retries=1)
    heir = successor()
    take_over(heir, ti)
    before = str(ti.id)
    deliver(heir)
    assert heir.row(ti).state == "up_for_retry"
    assert str(ti.id) == before
    heir.session.get(TaskInstance, ti.id).dag_run.schedule_tis([ti], session=heir.session)
    heir.session.commit()
    assert heir.row(ti).try_number == 2
    heir.requeue(ti)
    assert heir.created().launch_number == 1
    assert heir.events() == {}


def test_a_task_that_was_cleared_begins_anew(killed, successor):
    ti, _ = killed("count")
    heir = successor()
    take_over(heir, ti)
    heir.events()
    ti.prepare_db_for_next_try(heir.session)
    heir.session.commit()
    heir.requeue(ti)
    assert heir.created().launch_number == 1
