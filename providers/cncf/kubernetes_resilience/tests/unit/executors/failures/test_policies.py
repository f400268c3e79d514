# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Retry policies, as the executor follows them."""

from __future__ import annotations

import logging
from textwrap import dedent

import pytest
from airflow.configuration import conf
from airflow.exceptions import AirflowConfigException

from airflow.providers.cncf.kubernetes_resilience.executors.failures import policies
from airflow.providers.cncf.kubernetes_resilience.executors.failures.policies import (
    CHECK_INTERVAL,
    RetryPolicies,
)
from airflow.providers.cncf.kubernetes_resilience.executors.settings import read_settings
from airflow_resilience.context import StateChangeReason
from airflow_resilience.metrics import stats
from airflow_resilience.retry_policy.rule import InfrastructureBudget

from ....support import manifests as m

GIVEN_UP = {"KUBERNETES_EXECUTOR__WORKER_POD_PENDING_FATAL_CONTAINER_STATE_REASONS": "ErrImagePull"}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "policies.yaml"


@pytest.fixture
def start_with(start, file):
    """Give a function that starts an executor with a policy file."""

    def make(text: str, **config: str):
        file.write_text(dedent(text))
        return start(KUBERNETES_RESILIENCE__RETRY_POLICY_FILE=str(file), **config)

    return make


@pytest.fixture
def counted(monkeypatch):
    """Give the names of the counters that are incremented."""
    names = []
    monkeypatch.setattr(stats(), "incr", lambda name, **_: names.append(name))
    return names


def with_options(harness, ti, **executor_config):
    harness.set_state(ti, "queued", executor_config=executor_config)
    return ti


def rules(harness, ti):
    return [(entry["policy"], entry["rule"], entry["action"]) for entry in harness.ledger(ti)]


# ------------------------------------------------------------------------------------------- what is built in


def test_the_wait_survives_the_death_of_the_scheduler(start, successor, queued_ti):
    harness = start(**GIVEN_UP)
    ti = queued_ti()
    first = harness.launch(ti)
    harness.observe(first, m.image_pull_error())
    harness.cluster.remove(first)

    heir = successor(**GIVEN_UP)
    heir.take_over(ti)
    assert heir.row(ti).state == "scheduled"
    heir.requeue(ti)
    assert heir.runtime.take("create") == []
    assert heir.occupied(ti)
    heir.wait(15)
    assert heir.runtime.take("create") == []
    heir.wait(15.1)
    second = heir.created()
    assert second.launch_number == 2
    assert second.manifest["spec"]["affinity"]
    assert len(heir.ledger(ti)) == 1


# --------------------------------------------------------------------------------------------------- the file

FAIL_ON_START_ERROR = """
    policies:
      - name: strict
        rules:
          - name: image-is-broken
            onReasons: [StartError]
            action: Fail
    defaultPolicy: strict
"""


def test_fail_takes_the_retries(start_with, queued_ti):
    harness = start_with(FAIL_ON_START_ERROR)
    ti = queued_ti(retries=3)
    harness.observe(harness.launch(ti), m.start_error())
    state, info = harness.events()[ti.key]
    assert state == "failed"
    assert "image-is-broken" in info
    assert rules(harness, ti) == [("strict", "image-is-broken", "fail")]
    assert not harness.row(ti).is_eligible_to_retry()


def test_a_node_is_excluded_on_request(start_with, queued_ti):
    harness = start_with(
        """
        policies:
          - name: strict
            avoidNode: require
            rules: [{onReasons: [Evicted], action: Retry}]
        defaultPolicy: strict
        """
    )
    harness.observe(harness.launch(queued_ti()), m.evicted())
    (term,) = harness.created().manifest["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "NotIn", "values": ["node-1"]}]


SELECTED = """
    policies:
      - name: patient
        rules: [{name: wait, onCategories: [INFRASTRUCTURE], action: Retry, retryLimit: 4}]
      - name: hasty
        rules: [{name: give-up, onCategories: [INFRASTRUCTURE], action: Count}]
    selection:
      - {policy: patient, pools: [slow]}
"""


@pytest.mark.parametrize(
    ("pool", "options", "policy"),
    [
        ("slow", [], "patient"),
        ("slow", ["hasty"], "patient"),
        ("default_pool", ["hasty"], "hasty"),
        ("default_pool", [], "built-in"),
    ],
    ids=["by pool", "the operator's first", "asked for", "else what is built in"],
)
def test_which_policy_decides(start_with, queued_ti, pool, options, policy):
    harness = start_with(SELECTED)
    ti = queued_ti()
    harness.set_state(ti, "queued", pool=pool, executor_config={"retry_policies": options})
    harness.observe(harness.launch(ti), m.evicted())
    (entry,) = harness.ledger(ti)
    assert entry["policy"] == policy


def test_a_policy_that_does_not_exist_is_told_and_left_out(start_with, queued_ti, caplog, capsys):
    harness = start_with(SELECTED)
    ti = with_options(harness, queued_ti(), retry_policies=["patiant"], pod_launch_failure_retries="many")
    harness.observe(harness.launch(ti), m.evicted())
    said = caplog.text + capsys.readouterr().out
    assert "'patiant'" in said
    assert "'many'" in said
    assert rules(harness, ti)[0][0] == "built-in"
    assert harness.created().launch_number == 2


@pytest.mark.parametrize(("limit", "launches"), [(0, 1), (2, 3), (-1, 4)])
def test_a_task_sets_its_own_limit(harness, queued_ti, limit, launches):
    ti = with_options(harness, queued_ti(), pod_launch_failure_retries=limit)
    pod = harness.launch(ti)
    for _ in range(launches - 1):
        harness.observe(pod, m.evicted())
        pod = harness.created()
    harness.observe(pod, m.evicted())
    reported = harness.events()
    assert bool(reported) is (limit != -1)


def test_the_file_may_change_while_tasks_run(start_with, queued_ti, file):
    harness = start_with(FAIL_ON_START_ERROR)
    ti = queued_ti()
    pod = harness.launch(ti)
    file.write_text(dedent(SELECTED))
    harness.wait(CHECK_INTERVAL)
    harness.observe(pod, m.start_error())
    assert rules(harness, ti) == [("built-in", "launch-failure", "relaunch")]


def test_an_invalid_change_is_said_once_and_changes_nothing(start_with, queued_ti, file, caplog, counted):
    harness = start_with(FAIL_ON_START_ERROR)
    ti = queued_ti()
    pod = harness.launch(ti)
    file.write_text(dedent(FAIL_ON_START_ERROR).replace("Fail", "Explode"))
    with caplog.at_level(logging.ERROR, logger=policies.__name__):
        for _ in range(3):
            harness.wait(CHECK_INTERVAL)
    (said,) = [record.getMessage() for record in caplog.records if record.name == policies.__name__]
    for part in (f"{file}:7", "policies[0].rules[0].action", "Explode", "Retry", "Fail", "Count"):
        assert part in said
    assert counted == ["kubernetes_executor.retry_policy_file_errors"]
    harness.observe(pod, m.start_error())
    assert rules(harness, ti) == [("strict", "image-is-broken", "fail")]
    file.write_text(dedent(SELECTED))
    harness.wait(CHECK_INTERVAL)
    assert harness.parts.policies.current.default == "built-in"


@pytest.mark.parametrize("text", ["policies: [", "policies: [{name: a, rules: [{action: Retry}]}]"])
def test_an_invalid_file_stops_the_scheduler_at_its_start(start_with, file, text):
    with pytest.raises(AirflowConfigException) as refused:
        start_with(text)
    for part in ("[kubernetes_resilience] retry_policy_file", str(file), f"{file}:1"):
        assert part in str(refused.value)


def test_a_file_that_is_not_there_stops_the_scheduler_at_its_start(start, tmp_path):
    missing = str(tmp_path / "nowhere.yaml")
    with pytest.raises(AirflowConfigException, match="nowhere"):
        start(KUBERNETES_RESILIENCE__RETRY_POLICY_FILE=missing)


# ------------------------------------------------------------------------------------------------ the context


def test_metrics_carry_the_context(harness, queued_ti, monkeypatch):
    counts = []
    monkeypatch.setattr(stats(), "incr", lambda name, **more: counts.append((name, more.get("tags"))))
    harness.observe(harness.launch(queued_ti()), m.disrupted("EvictionByEvictionAPI"))
    (tags,) = [tags for name, tags in counts if name == "kubernetes_executor.pod_launch_failures"]
    assert (tags["action"], tags["category"], tags["reason"]) == (
        "relaunch",
        "INFRASTRUCTURE",
        "WORKER_TERMINATION",
    )
    assert tags["cause"]


def test_the_audit_log_carries_the_context(harness, launched):
    ti, pod = launched
    harness.observe(pod, m.init_error())
    (entry,) = harness.ledger(ti)
    context = entry["context"]
    assert context["source"] == "EXECUTOR"
    assert (context["category"], context["reason"]) == ("INFRASTRUCTURE", "START_ERROR")
    known = context["metadata"]
    assert (known["pod"], known["uid"], known["node"], known["launch"]) == (
        pod.name,
        pod.ref.uid,
        "node-1",
        1,
    )
    assert (known["container"], known["container_type"], known["exit_code"]) == ("git-sync", "init", 1)


# ----------------------------------------------------------------------------------- warnings

MISSPELT = """\
    policies:
    - {name: p, rules: [{action: Fail, onReasons: [%s]}]}
    """


def test_what_can_have_no_effect_is_told_once_for_each_content(start_with, file, caplog):
    harness = start_with(MISSPELT % "OOMKiled")
    harness.wait(2 * CHECK_INTERVAL)
    file.write_text(dedent(MISSPELT % "Evictd"))
    harness.wait(CHECK_INTERVAL + 1)
    harness.wait(CHECK_INTERVAL + 1)
    told = [record.message for record in caplog.records if "has warnings" in record.message]
    assert len(told) == 2
    assert f"{file}:2: warning: policies[0].rules[0].onReasons[0]: got 'OOMKiled'" in told[0]
    assert "(did you mean Evicted?)" in told[1]


def init_out_of_memory():
    containers = [m.base(m.waiting("PodInitializing"))]
    init = [m.status_of("git-sync", m.terminated(137, "OOMKilled"))]
    return m.pod("Failed", containers, init=init)


def test_excluded_reason_that_is_not_known_is_told_once_at_the_start(start, caplog):
    harness = start(
        KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_EXCLUDED_CONTAINER_REASONS="Error,OomKilled,OutOfcpu,Evicted"
    )
    harness.wait(2 * CHECK_INTERVAL)
    told = [record.message for record in caplog.records if "excluded_container_reasons" in record.message]
    assert told == [
        (
            "[kubernetes_executor] pod_launch_failure_excluded_container_reasons: got 'OomKilled', which is"
            " no reason that is known (did you mean OOMKilled?)"
        )
    ]


@pytest.mark.parametrize(
    ("excluded", "ended"),
    [
        ("ErrImagePull", m.image_pull_error),
        ("Error, Evicted", m.evicted),
        ("OOMKilled", init_out_of_memory),
    ],
)
def test_excluded_reason_is_not_relaunched_wherever_it_is_shown(start, queued_ti, excluded, ended):
    harness = start(**GIVEN_UP, KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_EXCLUDED_CONTAINER_REASONS=excluded)
    ti = queued_ti()
    harness.observe(harness.launch(ti), ended())
    assert rules(harness, ti) == [("built-in", "excluded-reason", "count")]
    assert harness.runtime.take("create") == []


def test_infrastructure_budget_is_in_force_with_every_content_of_the_file(file, monkeypatch):
    section = "AIRFLOW__KUBERNETES_RESILIENCE"
    monkeypatch.setenv(f"{section}__INFRASTRUCTURE_RETRY_BUDGET", "4")
    monkeypatch.setenv(f"{section}__INFRASTRUCTURE_RETRY_DELAY", "3")
    monkeypatch.setenv(f"{section}__INFRASTRUCTURE_RETRY_REASONS", "START_ERROR")
    budget = InfrastructureBudget(budget=4, delay=3.0, reasons=frozenset({StateChangeReason.START_ERROR}))
    now = [0.0]
    assert RetryPolicies(read_settings(conf), lambda: now[0]).current.infrastructure == budget
    monkeypatch.setenv(f"{section}__RETRY_POLICY_FILE", str(file))
    file.write_text("policies: [{name: first, defaultAction: Count}]")
    in_force = RetryPolicies(read_settings(conf), lambda: now[0])
    assert in_force.current.infrastructure == budget
    file.write_text("policies: [{name: second, defaultAction: Count}]")
    now[0] = CHECK_INTERVAL
    in_force.tick()
    assert "second" in in_force.current.policies
    assert in_force.current.infrastructure == budget
