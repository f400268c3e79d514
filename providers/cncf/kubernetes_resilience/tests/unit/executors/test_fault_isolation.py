# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""One task of seven cannot be handled: the others finish, and the failure of the one is visible."""

from __future__ import annotations

import dataclasses
import functools
import json

import pytest
from airflow.models.log import Log
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import KubernetesExecutor as Official
from sqlalchemy import text
from sqlalchemy.exc import DataError

from airflow import settings
from airflow.providers.cncf.kubernetes_resilience.executors import isolation, reconciler
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.adopter import Adopter
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.pod_search import PodSearch
from airflow.providers.cncf.kubernetes_resilience.executors.creation.create_retries import CreateRetries
from airflow.providers.cncf.kubernetes_resilience.executors.creation.launch_queue import LaunchQueue
from airflow.providers.cncf.kubernetes_resilience.executors.creation.pod_builder import PodBuilder
from airflow.providers.cncf.kubernetes_resilience.executors.deletion import (
    garbage_collection,
)
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import (
    CREATION_TIMEOUT,
    PodDeletion,
)
from airflow.providers.cncf.kubernetes_resilience.executors.failures import (
    event_filter,
    judge,
    policies,
    record,
    situation,
)
from airflow.providers.cncf.kubernetes_resilience.executors.failures.event_filter import StaleEventFilter
from airflow.providers.cncf.kubernetes_resilience.executors.failures.policies import RetryPolicies
from airflow.providers.cncf.kubernetes_resilience.executors.failures.superseded_pods import SupersededPods
from airflow.providers.cncf.kubernetes_resilience.executors.launches.commands import PodCommands
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.launches.workload import StoredWorkload
from airflow.providers.cncf.kubernetes_resilience.executors.reconciler import CHECK_INTERVAL
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import queued_timeout, task_instances
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import KubernetesApiError
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts
from airflow.providers.cncf.kubernetes_resilience.pods.messages import (
    PodCreated,
    PodNotCreated,
    PodObservation,
)
from airflow_resilience import ledger
from airflow_resilience.metrics import stats
from airflow_resilience.propagation import audit

from ...support import manifests as m
from ...support.cluster import Pod
from ...support.harness import request_for
from .failures.test_executions import losses

TASKS, BAD = 7, 4

METRIC = "kubernetes_executor.unhandled_errors"

AWAY = KubernetesApiError("the API server is away", status=503)


class OddError(Exception):
    """One that nobody expects."""


ERRORS = {"odd": OddError("odd"), "database": DataError("INSERT", {}, Exception("refused"))}


@pytest.fixture(params=ERRORS.values(), ids=ERRORS)
def error(request):
    return request.param


@pytest.fixture
def poison(monkeypatch):
    """Give a function that makes a step fail whenever it is about that task instance."""

    def make(owner, name, ti):
        asks_database = owner in (ledger, task_instances) or name == "read_profiles"
        error = ERRORS["database" if asks_database else "odd"]
        words = {str(ti.id), f"map_index={ti.map_index},", f"map_index={ti.map_index})"}
        original = getattr(owner, name)

        @functools.wraps(original)
        def poisoned(*args, **kwargs):
            # Without the object itself, which may know of every task.
            told = repr(args[1:] if isinstance(owner, type) else args) + repr(kwargs)
            if any(word in told for word in words):
                raise error
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, poisoned)

    return make


@pytest.fixture
def counted(monkeypatch):
    """Give the steps of which a failure was counted."""
    steps = []

    def incr(name, *args, tags=None, **kwargs):
        if name == METRIC:
            steps.append(tags["step"])

    monkeypatch.setattr(stats(), "incr", incr)
    return steps


class Play:
    """Task instances whose first pods are evicted, and whose second ones succeed."""

    def __init__(self, harness, tis):
        self.harness = harness
        self.tis = {ti.map_index: ti for ti in tis}
        self.events = {}
        self.finished = set()

    def queue(self):
        self.harness.hand_over(*self.tis.values())
        return self

    def answer(self):
        """Create the pods that were asked for, and return them."""
        pods = []
        for launch_id, body in self.harness.runtime.take("create"):
            pods.append(self.harness.cluster.add(Pod(body)))
            self.harness.inbox.put(PodCreated(launch_id, pods[-1].facts()))
        return pods

    def see(self, pod, like):
        self.harness.inbox.put(PodObservation(pod.become(like).facts()))

    def finish(self, pod):
        index = int(pod.annotations["map_index"])
        self.harness.begin(self.tis[index], pod)
        self.harness.set_state(self.tis[index], "success")
        self.see(pod, m.succeeded())
        self.finished.add(index)

    def turn(self, seconds=2.0):
        self.harness.wait(seconds)
        self.events |= {key.map_index: event for key, event in self.harness.events().items()}

    def until_the_end(self, turns=25):
        for _ in range(turns):
            for pod in self.answer():
                if pod.launch_number == 1:
                    self.see(pod, m.evicted())
                else:
                    self.finish(pod)
            self.turn()
        return self

    @property
    def reported(self):
        """The map indexes of those that were reported in each state."""
        return {
            state: {index for index, (reported, _) in self.events.items() if reported == state}
            for state in {state for state, _ in self.events.values()}
        }

    def left_over(self):
        """Return what the executor still has in its collections."""
        executor = self.harness.executor
        collections = {
            "running": executor.running,
            "registry": list(executor._registry),
            "leaving": executor._registry._departing,
            "unsettled": executor._registry._unsettled,
            "relabelled": executor._registry.relabelled(),
            "adopting": executor._registry.adopting(),
            "early": executor._parts.event_filter._early,
            "suspects": executor._isolation._suspects,
        }
        return {name: items for name, items in collections.items() if items}


@pytest.fixture
def play(harness, queued_ti):
    return Play(harness, queued_ti(mapped=TASKS))


OTHERS = set(range(TASKS)) - {BAD}

STEPS = {
    "assess": (judge, "assess", "settle"),
    "classify": (record, "classify", "settle"),
    "decide": (RetryPolicies, "decide", "settle"),
    "ledger": (ledger, "record", "settle"),
    "profiles": (record, "read_profiles", "settle"),
    "locks": (task_instances, "lock_rows", "settle"),
    "queued time": (task_instances, "refresh_queued", "settle"),
    "retire": (PodDeletion, "supersede", "act"),
    "workload": (StoredWorkload, "job", "act"),
    "relaunch": (LaunchQueue, "relaunch", "act"),
    "earlier failures": (audit, "read_previous_failures", "launch"),
    "wanted": (judge, "_judge_due", "launch"),
    "build": (PodBuilder, "build", None),
    "hook": (settings, "pod_mutation_hook", None),
    "create": (LaunchRegistry, "create", "build"),
    "ask": (CreateRetries, "ask", "act"),
}


@pytest.mark.parametrize(("owner", "name", "step"), STEPS.values(), ids=STEPS)
def test_the_others_finish_whatever_fails_for_one_of_them(play, poison, counted, caplog, owner, name, step):
    play.queue()
    poison(owner, name, play.tis[BAD])
    play.until_the_end()
    assert play.reported == {"success": OTHERS, "failed": {BAD}}
    play.turn(isolation.FORGOTTEN_AFTER)
    assert play.left_over() == {}
    _, info = play.events[BAD]
    assert any(word in info for word in ("odd", "refused"))
    if step:  # that no pod can be built was seen to before, and is none of the unexpected
        assert counted.count(step) == 1
        (said,) = [record for record in caplog.records if "is given up" in record.getMessage()]
        assert said.exc_info


def test_what_only_fails_for_a_moment_costs_nothing(play, poison, monkeypatch):
    play.queue()
    with monkeypatch.context():
        poison(ledger, "record", play.tis[BAD])
        play.until_the_end(turns=3)
    monkeypatch.undo()
    play.until_the_end()
    assert play.reported == {"success": set(range(TASKS))}
    assert play.left_over() == {}
    assert len(play.harness.ledger(play.tis[BAD])) == 1


@pytest.mark.parametrize("name", ["read_rows"])
def test_nothing_is_reported_of_a_task_of_which_nothing_is_known(play, poison, counted, name):
    pods = play.queue().answer()
    poison(task_instances, name, play.tis[BAD])
    for pod in pods:
        play.see(pod, m.evicted())
    play.until_the_end()
    assert play.reported == {"success": OTHERS}
    assert play.left_over() == {}
    assert play.harness.row(play.tis[BAD]).state == "queued", "Airflow's own time limit sees to it"
    assert counted


def test_a_silent_worker_of_which_nothing_is_known_is_left(start, queued_ti, poison, counted):
    harness = start(KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET="2")
    ti = queued_ti()
    harness.run(ti)
    poison(record, "read_profiles", ti)
    harness.executor.change_state(ti.key, "failed")  # no heartbeat
    for _ in range(10):
        harness.wait(10)
    assert (harness.runtime.take("delete"), harness.events()) == ([], {})
    assert counted == ["settle"]


def test_a_guess_that_a_worker_is_gone_stands_if_its_pod_cannot_be_judged(start, queued_ti, poison, counted):
    harness = start(KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET="2")
    ti = queued_ti()
    harness.run(ti)
    poison(situation, "find_failure", ti)
    sent = harness.call_back(harness.row(ti))
    harness.executor.change_state(ti.key, "failed")  # no heartbeat
    assert sent == []
    assert [state for state, _ in harness.events().values()] == ["failed"]
    assert (harness.occupied(ti), counted) == (False, ["heartbeat-timeout"])
    harness.executor.sync()
    assert len(sent) == 1
    assert not harness.registry.get(ti.key).is_silent, "nothing is left of a guess that is Airflow's"


def test_what_runs_again_after_a_guess_that_was_passed_on_has_a_slot(start, queued_ti, monkeypatch):
    """Airflow drops a report about a task instance that the executor has. Else it would fail the next run."""
    harness = start(KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET="2")
    ti = queued_ti()
    pod = harness.run(ti)
    with monkeypatch.context() as patch:
        patch.setattr(situation, "find_failure", lambda *args, **options: 1 / 0)
        harness.executor.change_state(ti.key, "failed")  # no heartbeat
    assert not harness.occupied(ti)
    harness.observe(pod, m.evicted())
    harness.wait(record.REPORT_GRACE)
    assert harness.registry.get(ti.key).waiting
    assert harness.occupied(ti)


def test_a_message_that_cannot_be_read_is_not_the_end_of_what_it_is_about(play, poison, counted):
    play.queue()
    poison(situation, "find_failure", play.tis[BAD])
    play.until_the_end()
    assert play.reported == {"success": set(range(TASKS))}
    assert play.left_over() == {}
    (entry,) = play.harness.ledger(play.tis[BAD])
    assert entry["reason"] == "Unknown"
    assert "receive" in counted


@pytest.mark.parametrize(
    ("owner", "name"), [(Adopter, "abandon"), (Official, "execute_async")], ids=["job", "workload"]
)
def test_what_cannot_be_taken_in(play, poison, counted, owner, name):
    poison(owner, name, play.tis[BAD])
    play.queue().until_the_end()
    assert play.reported == {"success": OTHERS, "failed": {BAD}}
    assert play.left_over() == {}
    assert counted == ["intake"]


def test_what_can_be_neither_taken_in_nor_reported(play, poison, counted):
    poison(LaunchRegistry, "make_current", play.tis[BAD])
    play.queue().until_the_end()
    assert play.reported == {"success": OTHERS}  # Airflow revokes what is queued for too long
    assert counted == ["intake", "intake"]


def test_an_answer_to_a_create_call_that_cannot_be_handled(play, poison, counted):
    play.queue()
    calls = play.harness.runtime.take("create")
    poison(CreateRetries, "_wait", play.tis[BAD])
    for launch_id, _ in calls:
        play.harness.inbox.put(PodNotCreated(launch_id, AWAY))
    play.turn(60)
    play.turn(CREATION_TIMEOUT)  # until it is known that no call has brought about a pod
    play.until_the_end()
    assert play.reported == {"success": {*OTHERS, BAD}}  # its launch has failed, and is made again
    assert play.left_over() == {}
    assert counted == ["receive"]


@pytest.mark.parametrize(
    ("owner", "name"), [(judge, "_judge_creation"), (task_instances, "read_rows")], ids=["go on", "rows"]
)
def test_a_creation_that_has_failed(play, poison, counted, owner, name):
    play.queue()
    for launch_id, _ in play.harness.runtime.take("create"):
        play.harness.inbox.put(PodNotCreated(launch_id, AWAY))
    poison(owner, name, play.tis[BAD])
    play.turn(60)
    play.until_the_end()
    play.turn(CREATION_TIMEOUT)  # until it is known that no call has brought about a pod
    known = {"failed": {BAD}} if owner is judge else {}
    assert play.reported == {"success": OTHERS, **known}
    assert play.left_over() == {}
    assert counted


PHASES = {
    "policies": (RetryPolicies, "tick"),
    "revive": (PodCommands, "revive"),
    "clean-up": (PodDeletion, "tick"),
    "track": (StaleEventFilter, "tick"),
    "adopt": (Adopter, "continue_"),
    "hold-off": (queued_timeout.QueuedTimeout, "tick"),
    "collect": (garbage_collection.OrphanCollector, "tick"),
}


@pytest.mark.parametrize(("owner", "name"), PHASES.values(), ids=PHASES)
def test_a_phase_that_always_fails_is_the_only_one(play, monkeypatch, counted, caplog, owner, name):
    def fail(*args):
        raise OddError

    monkeypatch.setattr(owner, name, fail)
    play.queue().until_the_end()
    assert play.reported == {"success": set(range(TASKS))}
    assert len(set(counted)) == 1
    assert sum(bool(record.exc_info) for record in caplog.records) == 1


@pytest.mark.parametrize(
    ("owner", "name", "step"),
    [
        (task_instances, "read_rows", "settle"),
        (judge, "_judge_unstarted", "settle"),
        (PodDeletion, "give_up", "act"),
    ],
    ids=["row", "judge", "pod"],
)
def test_launches_that_are_not_wanted(play, poison, counted, owner, name, step):
    play.queue().answer()
    play.turn()
    for ti in play.tis.values():
        play.harness.set_state(ti, "failed")
    poison(owner, name, play.tis[BAD])
    play.turn(60)
    assert len(play.harness.runtime.take("delete")) == TASKS - 1
    for _ in range(isolation.ATTEMPTS):
        play.turn(CHECK_INTERVAL)
    assert counted == [step]
    assert play.harness.occupied(play.tis[BAD]) is (step == "settle"), "what cannot be looked at is kept"


def test_a_token_that_cannot_be_looked_at_is_none_that_has_expired(play, poison, counted):
    play.queue().answer()
    play.turn()
    poison(reconciler, "has_expired_token", play.tis[BAD])
    for launch in play.harness.registry:
        launch.was_delayed, launch.facts = True, PodFacts(launch.ref, {}, {})
    for ti in play.tis.values():
        play.harness.set_state(ti, "failed")
    play.turn(CHECK_INTERVAL)
    assert len(play.harness.runtime.take("delete")) == TASKS
    assert counted == ["token"]


@pytest.mark.parametrize("times", [isolation.ATTEMPTS - 1, isolation.ATTEMPTS])
def test_pods_that_had_ended_when_their_launches_were_called_off(play, counted, monkeypatch, times):
    """One that cannot be put away is put away later, or after some attempts not at all."""
    pods = play.queue().answer()
    play.turn()
    refusals, supersede = [OddError] * times, PodDeletion.supersede

    def fail(self, launch, *args):
        if launch.key.map_index == BAD and refusals:
            raise refusals.pop()
        supersede(self, launch, *args)

    monkeypatch.setattr(PodDeletion, "supersede", fail)
    for pod in pods:
        play.harness.parts.event_filter.receive(PodObservation(pod.become(m.evicted()).facts()))
    for ti in play.tis.values():
        play.harness.parts.deletion.cancel(ti.key)
    for _ in range(isolation.ATTEMPTS):
        play.turn(isolation.RETRY_BACKOFF.maximum)
    play.turn()
    marked = {ref for (ref,) in play.harness.runtime.take("mark_done")}
    lost = {pods[BAD].ref} if times == isolation.ATTEMPTS else set()
    assert marked == {pod.ref for pod in pods} - lost
    assert play.harness.registry.unsettled() == []
    assert counted == (["retire"] if lost else [])


@pytest.mark.parametrize("step", [(SupersededPods, "note_update"), (SupersededPods, "_delete")])
def test_what_was_heard_of_pods_whose_adoption_is_called_off(play, successor, poison, counted, step):
    pods = play.queue().answer()
    play.turn()
    heir, tis = successor(), play.tis.values()
    heir.cluster.outage = AWAY
    heir.offer(*tis)
    for pod in pods:
        pod.labels["airflow-worker"] = heir.label
        if step[1] == "_delete":
            heir.inbox.put(PodCreated(pod.launch_id, pod.facts()))
        else:
            heir.inbox.put(PodObservation(pod.become(m.succeeded()).facts()))
    heir.executor.sync()
    assert len(heir.parts.event_filter._early) == TASKS
    poison(*step, play.tis[BAD])
    for ti in tis:
        heir.executor.revoke_task(ti=ti)
    heir.executor.sync()
    heir.quiet()
    taken = heir.runtime.take("delete" if step[1] == "_delete" else "clean_up")
    assert {ref for ref, *_ in taken} == {pod.ref for pod in pods} - {pods[BAD].ref}
    assert heir.parts.event_filter._early == {}
    assert "receive" in counted


def test_the_time_in_queued(start, queued_ti, poison, counted, monkeypatch):
    harness = start(SCHEDULER__TASK_QUEUED_TIMEOUT="30")
    tis = queued_ti(mapped=TASKS)
    before = {ti.map_index: ti.queued_dttm for ti in tis}
    poison(task_instances, "refresh_queued", tis[BAD])
    harness.clock.advance(10)
    held_off = harness.parts.queued_timeout
    monkeypatch.setattr(held_off, "_waiting_on_purpose", lambda _: {str(ti.id) for ti in tis})
    held_off.tick(())
    fresh = {ti.map_index for ti in tis if harness.row(ti).queued_dttm != before[ti.map_index]}
    assert fresh == OTHERS
    assert counted == ["hold-off"]


def test_pods_that_a_dead_scheduler_left_behind(play, successor, poison, counted):
    pods = play.queue().answer()
    play.turn()
    for ti in play.tis.values():
        play.harness.set_state(ti, "failed")
    heir = successor()
    heir.executor.sync()
    heir.runtime.carry_out("OrphanCollector")
    poison(task_instances, "read_rows", play.tis[BAD])
    heir.executor.sync()
    assert {ref for ref, *_ in heir.runtime.take("delete")} == {
        pod.ref for pod in pods if int(pod.annotations["map_index"]) != BAD
    }
    assert counted == ["collect"]


def test_revoking_does_not_raise_into_the_scheduler(play, poison, counted):
    play.queue().answer()
    play.turn()
    poison(PodDeletion, "revoke", play.tis[BAD])
    for ti in play.tis.values():
        play.harness.executor.revoke_task(ti=ti)
    assert len(play.harness.runtime.take("delete")) == TASKS - 1
    assert play.harness.executor.running == set()
    assert counted == ["revoke"]


@pytest.mark.parametrize(("times", "told"), [(1, [1, 0]), (isolation.ATTEMPTS, [1])])
def test_a_callback_that_cannot_be_sent_does_not_stop_the_others(
    harness, queued_ti, error, counted, times, told
):
    """It is sent later, or after some attempts not at all."""
    refusals, sent = [error] * times, []

    class Sink:
        def send(self, request):
            if request.ti.map_index == 0 and refusals:
                raise refusals.pop()
            sent.append(request.ti.map_index)

    harness.executor.callback_sink = Sink()
    tis = queued_ti(mapped=2)
    for ti in tis:
        harness.run(ti)
    for ti in tis:
        harness.session.refresh(ti)
        harness.executor.send_callback(request_for(ti))
    assert sent == []
    harness.executor.sync()
    assert sent == [1]
    for _ in range(isolation.ATTEMPTS):
        harness.wait(isolation.RETRY_BACKOFF.maximum)
    assert (sent, harness.executor._held_callbacks) == (told, [])
    assert counted == ([] if 0 in told else ["callback"])


def test_the_end_tries_again_to_send_a_callback(harness, queued_ti, error):
    ti = queued_ti()
    harness.run(ti)
    harness.session.refresh(ti)
    refusals, sent = [error], []

    class Sink:
        def send(self, request):
            if refusals:
                raise refusals.pop()
            sent.append(request)

    harness.executor.callback_sink = Sink()
    harness.executor.send_callback(request_for(ti))
    harness.executor.sync()
    harness.executor.end()
    assert len(sent) == 1


def test_the_end_does_not_raise_and_stops_the_thread(harness, monkeypatch, counted):
    def fail(*args):
        raise OddError

    runtime = harness.runtime
    monkeypatch.setattr(PodDeletion, "finish", fail)
    harness.executor.end()
    assert not runtime.is_alive
    assert counted == ["end"]


# ---------------------------------------------------------------------------------- a row that is refused


REFUSED = f"NEW.event = 'pod launch failed' AND NEW.map_index = {BAD}"
FUNCTION = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'this row is refused' USING ERRCODE = 'data_exception'; END$$;
"""
REFUSING = {
    "postgresql": f"""{FUNCTION} CREATE TRIGGER refuse BEFORE INSERT ON log FOR EACH ROW
        WHEN ({REFUSED}) EXECUTE FUNCTION refuse()""",
    "mysql": f"""CREATE TRIGGER refuse BEFORE INSERT ON log FOR EACH ROW
        IF {REFUSED} THEN SIGNAL SQLSTATE '22000' SET MESSAGE_TEXT = 'this row is refused'; END IF""",
}
AS_BEFORE = {"postgresql": "DROP FUNCTION refuse CASCADE", "mysql": "DROP TRIGGER refuse"}


@pytest.fixture
def refusing(session):
    """Let the database refuse one task's ledger rows, whoever writes them."""
    dialect = session.get_bind().dialect.name
    session.execute(text(REFUSING[dialect]))
    session.commit()
    yield
    session.rollback()
    session.execute(text(AS_BEFORE[dialect]))
    session.commit()


def test_a_database_that_refuses_one_row(play, refusing, counted):
    play.queue().until_the_end()
    assert play.reported == {"success": OTHERS, "failed": {BAD}}
    assert "this row is refused" in play.events[BAD][1]
    assert play.left_over() == {}
    assert counted == ["settle"]


def test_the_successor_of_a_scheduler_that_met_it(play, successor, refusing):
    for pod in play.queue().answer():
        play.see(pod, m.evicted())
    play.turn()  # the pods of the others are replaced, and nothing is given up yet
    heir = Play(successor(), play.tis.values())
    replaced = play.answer()
    assert len(replaced) == TASKS - 1
    assert heir.harness.adopt(*play.tis.values()) == []
    for pod in replaced:
        heir.finish(pod)
    for _ in range(25):
        heir.turn()
    assert heir.reported == {"success": OTHERS, "failed": {BAD}}
    assert heir.left_over() == {}


# ------------------------------------------------------------------------------------------ a successor


ABSURD = {
    "no JSON": "x" * 100,
    "a list": "[1, 2]",
    "deep": "[" * 60_000,
    "a year that is none": {"due": "13000-01-01T00:00:00+00:00"},
    "the end of time": {"due": "9999-12-31T23:59:59+00:00", "action": "count"},
    "no time zone": {"due": "2026-01-01T00:00:00"},
    "a delay": {"delay": 1e30},
    "no delay": {"delay": float("nan")},
    "a launch": {"launch": float("inf")},
    "a context": {"context": "none"},
    "no cause": {"context": {"category": "TIMEOUT", "reason": "UNKNOWN", "source": "API", "metadata": {}}},
    "an action": {"action": "explode"},
}


@pytest.mark.parametrize("extra", ABSURD.values(), ids=ABSURD)
def test_a_ledger_row_that_makes_no_sense(play, successor, session, extra):
    pods = {int(pod.annotations["map_index"]): pod for pod in play.queue().answer()}
    for pod in pods.values():
        play.see(pod, m.evicted())
    play.turn()
    row = session.query(Log).filter(Log.event == "pod launch failed", Log.map_index == BAD).one()
    row.extra = extra if isinstance(extra, str) else json.dumps(json.loads(row.extra) | extra)
    session.commit()
    play.harness.runtime.take("create")  # which nobody has carried out
    heir = Play(successor(), play.tis.values())
    assert heir.harness.adopt(*play.tis.values()) == []
    for _ in range(5):
        heir.turn()
    states = {index: heir.harness.row(ti).state for index, ti in heir.tis.items()}
    assert {index for index, state in states.items() if state == "scheduled"} >= OTHERS
    assert states[BAD] == "scheduled" or heir.reported == {"failed": {BAD}}
    assert heir.left_over() == {}


@pytest.mark.parametrize(
    "annotations",
    [{"airflow-resilience/launch-number": "9" * 5000}, {"try_number": "9" * 5000}],
    ids=["launch", "try"],
)
def test_a_pod_that_makes_no_sense_is_adopted_or_left_alone(play, successor, annotations):
    pods = {int(pod.annotations["map_index"]): pod for pod in play.queue().answer()}
    play.turn()
    pods[BAD].annotations.update(annotations)
    heir = Play(successor(), play.tis.values())
    assert heir.harness.adopt(*play.tis.values()) == []
    heir.turn()
    adopted = {launch.key.map_index for launch in heir.harness.registry}
    assert adopted >= OTHERS


def test_a_launch_that_cannot_be_followed(play, successor, poison, counted):
    for pod in play.queue().answer():
        pod.become(m.evicted())
    play.turn()
    poison(situation, "find_failure", play.tis[BAD])
    heir = Play(successor(), play.tis.values())
    assert heir.harness.adopt(*play.tis.values()) == []
    for _ in range(3):
        heir.turn()
    assert {ti.map_index for ti in heir.tis.values() if heir.harness.row(ti).state == "scheduled"} == set(
        heir.tis
    )
    assert heir.left_over() == {}
    assert set(counted) == {"adopt"}


def test_a_lost_worker_that_cannot_be_judged(play, successor, poison, counted):
    """The others are held in the same turn, and the end of this one is certain."""
    for pod in play.queue().answer():
        play.harness.begin(play.tis[int(pod.annotations["map_index"])], pod)
    heir = Play(successor(KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET="1"), play.tis.values())
    heir.harness.cluster.pods.clear()
    poison(event_filter, "note_deadlines", play.tis[BAD])
    assert heir.harness.offer(*play.tis.values()) == []
    for _ in range(3):
        heir.turn()
    assert {loss["reason"] for loss in losses(heir.harness)} == {"Deleted"}
    assert len(losses(heir.harness)) == TASKS - 1
    for _ in range(isolation.ATTEMPTS):
        heir.turn(isolation.RETRY_BACKOFF.maximum)
    assert (losses(heir.harness)[-1]["reason"], len(losses(heir.harness))) == ("Unknown", TASKS)
    assert heir.left_over() == {}
    assert counted == ["track"]


def test_a_task_that_cannot_be_handed_back(play, successor, poison, counted):
    heir = Play(successor(), play.tis.values())
    poison(task_instances, "reschedule", play.tis[BAD])
    assert heir.harness.offer(*play.tis.values()) == []
    for _ in range(15):
        heir.turn()
    handed_back = {ti.map_index for ti in heir.tis.values() if heir.harness.row(ti).state == "scheduled"}
    assert handed_back == OTHERS
    assert heir.reported == {"failed": {BAD}}
    assert heir.left_over() == {}
    assert counted == ["launch"]


def test_an_adoption_that_fails_as_a_whole_is_postponed(play, successor, monkeypatch, counted):
    heir = Play(successor(), play.tis.values())

    def fail(*args):
        raise OddError

    with monkeypatch.context() as patch:
        patch.setattr(PodSearch, "look", fail)
        assert heir.harness.offer(*play.tis.values()) == []
    assert counted == ["adopt"]
    for _ in range(10):
        heir.turn(5)
        heir.harness.runtime.carry_out("PodSearch")
    assert all(heir.harness.row(ti).state == "scheduled" for ti in heir.tis.values())
    assert heir.left_over() == {}


# --------------------------------------------------------------------------------------- what was measured


def test_a_delay_of_eleven_thousand_years(start, queued_ti, monkeypatch):
    harness = start()
    ti = queued_ti()
    pod = harness.launch(ti)
    decide = policies.decide

    def absurd(*args):
        return dataclasses.replace(decide(*args), delay=99_999_999 * 3600.0)

    monkeypatch.setattr(policies, "decide", absurd)
    harness.observe(pod, m.evicted())
    (entry,) = harness.ledger(ti)
    assert entry["delay"] == 366 * 86_400
    assert harness.occupied(ti)


def test_a_task_that_is_cleared_between_two_statements(play, monkeypatch, counted):
    """As it may be where rows are not locked: ``use_row_level_locking=False``, MariaDB, SQLite."""
    read = record.read_profiles
    bad = str(play.tis[BAD].id)

    def cleared(ti_ids, *, session):
        return {ti_id: profile for ti_id, profile in read(ti_ids, session=session).items() if ti_id != bad}

    monkeypatch.setattr(record, "read_profiles", cleared)
    play.queue().until_the_end(turns=5)
    assert play.reported == {"success": OTHERS}
    play.harness.set_state(play.tis[BAD], None)
    play.until_the_end(turns=5)
    assert play.reported["success"] == OTHERS
    assert counted == []
