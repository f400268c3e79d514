# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from airflow.models.dag import DagTag
from airflow.models.serialized_dag import SerializedDagModel
from sqlalchemy.orm.attributes import flag_modified


@pytest.fixture
def define(session, queued_ti):
    """Give a function that defines a task in the metadata database."""

    def make(dag_id="dag", *, tags=(), **fields):
        queued_ti(dag_id)
        session.add_all(DagTag(name=tag, dag_id=dag_id) for tag in tags)
        row = SerializedDagModel.get(dag_id, session=session)
        data = row.data
        data["dag"]["tasks"][0]["__var"].update(fields)
        row._data = data
        flag_modified(row, "_data")
        session.commit()

    return make


def names(data):
    return [(policy["name"], policy["why"]) for policy in data["policies"]]


def test_without_a_file_the_built_in_policy_is_in_force(run, monkeypatch):
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES", "-1")
    data = run("policy", "show", "-o", "json").data
    assert (data["origin"], data["defaultPolicy"], data["globalMaxRetries"]) == ("built-in", "built-in", -1)
    (policy,) = data["policies"]
    assert (policy["name"], policy["why"]) == ("built-in", "the default policy")
    assert (policy["retryLimit"], policy["pod_launch_failure_retries"]) == (None, -1)
    assert policy["rules"][0]["conditions"][1] == "the worker container ended on its own, reason Error"


def test_all_policies_and_who_they_are_for(run, configured):
    data = run("policy", "show", "-o", "json").data
    assert (data["origin"], data["globalMaxRetries"], data["task"]) == (str(configured), 10, None)
    assert names(data) == [
        ("standard", "the default policy"),
        ("gpu", "for selected tasks"),
        ("built-in", "for tasks that ask for it"),
    ]
    assert [policy["origin"] for policy in data["policies"]] == [str(configured)] * 2 + ["built-in"]
    assert data["selection"] == [
        {"policy": "gpu", "queues": ["gpu"], "dagTags": ["training"]},
        {"policy": "gpu", "dagIds": ["gpu_*"]},
    ]
    assert data["policies"][0]["rules"][1] == {
        "name": "disk",
        "conditions": ["onTerminationMessage 'no [space]+ left' of base"],
        "action": "Fail",
        "retryLimit": None,
        "backoff": None,
        "avoidNode": None,
        "mutate": None,
    }


def test_table_for_people(run, configured):
    code, out, _ = run("policy", "show")
    assert code == 0
    assert "standard: the default policy" in out
    assert "queues: gpu; dagTags: training" in out
    assert "10s times 2 up to 5m, jitter 0.2" in out
    assert "'no [space]+ left'" in out, "brackets are not taken for markup"
    assert "unlimited" in out


def test_task_without_anything_of_its_own_has_the_default_policy(run, configured, define):
    define()
    data = run("policy", "show", "--dag", "dag", "--task", "task", "-o", "json").data
    assert names(data) == [("standard", "the default policy")]
    assert data["task"]["queue"] == "default"
    assert data["task"]["pool"] == "default_pool"


def test_task_is_selected_by_what_the_database_knows_of_it(run, configured, define):
    define(tags=["training", "nightly"], queue="gpu")
    data = run("policy", "show", "--dag", "dag", "--task", "task", "-o", "json").data
    assert names(data) == [
        ("gpu", "selected by queue gpu and DAG tag training"),
        ("standard", "the default policy"),
    ]
    assert data["task"]["dag_tags"] == ["nightly", "training"]


def test_mapped_task_is_selected_by_its_one_definition(run, configured, queued_ti):
    queued_ti("gpu_training", mapped=2)
    data = run("policy", "show", "--dag", "gpu_training", "--task", "task", "-o", "json").data
    assert names(data)[0] == ("gpu", "selected by DAG id gpu_*")
    assert data["task"]["pool"] == "default_pool"


def test_options_of_a_task_and_what_is_wrong_with_them(run, configured, define):
    options = {"retry_policies": ["gpu", "gone", 7], "pod_launch_failure_retries": 5}
    define(executor_config={"__type": "dict", "__var": options})
    data = run("policy", "show", "--dag", "dag", "--task", "task", "-o", "json").data
    assert names(data)[0] == ("gpu", "the task asks for it")
    assert data["unknownPolicies"] == ["gone"]
    assert data["task"]["pod_launch_failure_retries"] == 5
    (problem,) = data["task"]["problems"]
    assert "got 7" in problem
    out = run("policy", "show", "--dag", "dag", "--task", "task").out
    assert "there is no policy gone" in out
    assert problem in out
    assert "5, in place of the limit of a policy" in out


def test_infrastructure_budget_is_shown(run, monkeypatch):
    assert "0 (off)" in run("policy", "show").out
    section = "AIRFLOW__KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY"
    for key, value in {"BUDGET": "-1", "DELAY": "90", "REASONS": "WORKER_LOST,START_ERROR"}.items():
        monkeypatch.setenv(f"{section}_{key}", value)
    assert run("policy", "show", "-o", "json").data["infrastructure"] == {
        "infrastructure_retry_budget": -1,
        "infrastructure_retry_delay": 90.0,
        "infrastructure_retry_reasons": ["START_ERROR", "WORKER_LOST"],
        "infrastructure_retry_limit": None,
    }
    out = run("policy", "show").out
    for shown in ("unlimited", "1m30s", "START_ERROR, WORKER_LOST"):
        assert shown in out
    monkeypatch.setenv(f"{section}_REASONS", "")
    assert "none but those of rules" in run("policy", "show").out


@pytest.mark.parametrize(
    ("options", "budget", "shown"),
    [
        ({"infrastructure_retry_enabled": True}, 3, "3, in place of infrastructure_retry_budget"),
        ({"infrastructure_retry_limit": 7}, 7, "7, in place of infrastructure_retry_budget"),
        ({"infrastructure_retry_enabled": False}, 0, "0 (off), in place of infrastructure_retry_budget"),
    ],
)
def test_infrastructure_budget_of_a_task_is_shown(run, define, options, budget, shown):
    define(executor_config={"__type": "dict", "__var": options})
    words = ("policy", "show", "--dag", "dag", "--task", "task")
    assert run(*words, "-o", "json").data["infrastructure"]["infrastructure_retry_limit"] == budget
    assert shown in run(*words).out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--dag", "dag"], "--dag and --task are needed together"),
        (["--task", "task"], "--dag and --task are needed together"),
        (["--dag", "gone", "--task", "task"], "there is no Dag gone"),
        (["--dag", "dag", "--task", "gone"], "Dag dag has no task gone; it has task"),
    ],
)
def test_what_cannot_be_shown(run, define, words, said):
    define()
    code, out, err = run("policy", "show", *words)
    assert (code, out) == (2, "")
    assert said in err


def test_configuration_that_cannot_be_used(run, monkeypatch):
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES", "often")
    code, _, err = run("policy", "show")
    assert code == 2
    assert "pod_launch_failure_retries = 'often' cannot be used" in err
