# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import yaml
from airflow.models.log import Log
from sqlalchemy.exc import OperationalError

from airflow.providers.cncf.kubernetes_resilience.cli import explain_command
from airflow.providers.cncf.kubernetes_resilience.pods.facts import read_pod
from airflow_resilience import ledger
from airflow_resilience.retry_policy.evidence import Phase

from ...support import manifests as m
from ...support.entries import lost

EARLIER = "00000000-0000-0000-0000-000000000001"
"""A UUID that a task instance had before."""


@pytest.fixture
def explain(run, tmp_path):
    """Give a function that explains manifests of a file."""

    def command(*manifests, words=()):
        file = tmp_path / "pods.yaml"
        file.write_text(yaml.safe_dump_all(manifests))
        return run("explain", "--file", file, *words)

    return command


@pytest.fixture
def answer(explain):
    """Give a function that explains one manifest as JSON."""

    def command(manifest, *words):
        code, out, err = explain(manifest, words=[*words, "-o", "json"])
        assert err == ""
        (explained,) = json.loads(out)
        return code, explained

    return command


DELETED = m.pod("Running", [m.base(m.running())], deleted=True)


def annotated(manifest, **annotations):
    manifest["metadata"]["annotations"] |= annotations
    return manifest


def launched(number, manifest):
    return annotated(manifest, **{"airflow-resilience/launch-number": str(number)})


# ---------------------------------------------------------------------------------- what is decided, and why


def test_relaunch_is_told_with_everything_that_led_to_it(answer):
    code, told = answer(m.disrupted("EvictionByEvictionAPI"))
    assert code == 0
    assert (told["state"], told["phase"], told["policies"]) == ("failed", "launch", "built-in")
    assert told["pod"]["node"] == m.NODE
    assert told["pod"]["containers"][0] | {"name": "base", "exit_code": 143} == told["pod"]["containers"][0]
    assert {"type": "DisruptionTarget", "status": "True"}.items() <= told["pod"]["conditions"][1].items()
    assert told["context"]["category"] == "INFRASTRUCTURE"
    assert told["context"]["metadata"]["cause"] == told["cause"]["row"]
    assert told["cause"]["url"].startswith("https://kubernetes.io/")
    assert told["chain"] == [{"policy": "built-in", "why": "the default policy"}]
    assert [(step["rule"], step["matched"]) for step in told["steps"]] == [
        ("excluded", False),
        ("refused", False),
        ("preemption", False),
        ("disruption", True),
        ("pod_launch_failure_retries", False),
        ("globalMaxRetries", False),
    ]
    assert (told["decision"]["action"], told["decision"]["delay"]) == ("relaunch", 0.0)
    assert told["decision"]["explanation"].startswith("launch 1 of 2")


def test_failure_that_fails_the_task(answer, policy_file):
    manifest = m.pod("Failed", [m.base(m.terminated(1, "Error", "no space left on device"))])
    code, told = answer(manifest, "--policy", policy_file)
    assert (code, told["decision"]["action"], told["decision"]["rule"]) == (1, "fail", "disk")


def test_delay_is_a_range_where_jitter_makes_it_one(answer, explain, policy_file):
    _, told = answer(m.image_pull_error(), "--policy", policy_file)
    assert (told["decision"]["shortest_delay"], told["decision"]["delay"]) == (8.0, 10.0)
    assert "8s to 10s" in explain(m.image_pull_error(), words=["--policy", policy_file]).out


def test_earlier_launches_are_taken_to_have_failed_in_the_same_way(answer, policy_file):
    code, told = answer(launched(3, m.image_pull_error()), "--policy", policy_file)
    assert (code, told["decision"]["delay"]) == (0, 40.0)
    assert told["decision"]["explanation"].startswith("launch 3 of 4")
    code, told = answer(launched(4, m.image_pull_error()), "--policy", policy_file)
    assert (code, told["decision"]["action"]) == (1, "count")
    assert "no relaunch is left" in told["decision"]["explanation"]


def test_failure_that_counts_is_told_as_that_of_its_launch(answer):
    _, told = answer(launched(3, m.worker_error()))
    assert told["decision"]["explanation"].startswith("launch 3 of 3; the worker's own exit")


def test_minimum_backoff_is_told(answer, monkeypatch):
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES", "-1")
    _, told = answer(launched(3, m.evicted()))
    assert "minimumBackoff" not in {step["rule"] for step in told["steps"]}
    _, told = answer(launched(5, m.evicted()))
    assert (told["steps"][-1]["rule"], told["steps"][-1]["matched"]) == ("minimumBackoff", True)
    assert (told["decision"]["shortest_delay"], told["decision"]["delay"]) == (2.0, 4.0)


def test_what_others_need_too_is_named(answer, explain):
    away = m.image_pull_error(message="dial tcp: i/o timeout")
    assert answer(away)[1]["dependency"] == "registry/registry.example.com"
    assert "registry/registry.example.com: if launches of others fail for it too" in explain(away).out
    assert answer(m.evicted())[1]["dependency"] is None


def test_pod_says_of_which_dag_it_is(answer, policy_file):
    manifest = annotated(m.evicted(), dag_id="gpu_training")
    _, told = answer(manifest, "--policy", policy_file)
    assert [link["policy"] for link in told["chain"]] == ["gpu", "standard"]
    assert told["chain"][0]["why"] == "selected by DAG id gpu_*"
    assert told["decision"]["delay"] == told["decision"]["shortest_delay"] == 60.0


def test_configured_policies_and_reasons_are_used(answer, configured, monkeypatch):
    _, told = answer(m.image_pull_error())
    assert (told["policies"], told["decision"]["rule"]) == (str(configured), "registry")
    monkeypatch.setenv(
        "AIRFLOW__KUBERNETES_EXECUTOR__WORKER_POD_PENDING_FATAL_CONTAINER_STATE_REASONS", "ImagePullBackOff"
    )
    assert answer(m.image_pull_error())[0] == 3
    assert answer(m.image_pull_error("ImagePullBackOff"))[0] == 0


RELAUNCHES_ALL = """
policies:
  - name: eager
    rules:
      - {name: everything, onCategories: [INFRASTRUCTURE], action: Retry, backoff: {initialDelay: 10s}}
      - {name: other, onExitCodes: {operator: In, values: [1]}, action: Fail}
defaultPolicy: eager
"""


@pytest.fixture
def budget(monkeypatch):
    monkeypatch.setenv("AIRFLOW__KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET", "2")


@pytest.mark.parametrize(
    ("manifest", "code", "action"),
    [(m.evicted(), 0, "relaunch"), (m.worker_error(), 1, "fail")],
    ids=["retry", "fail"],
)
def test_rules_are_asked_about_a_running_task_within_its_budget(
    answer, explain, tmp_path, budget, manifest, code, action
):
    file = tmp_path / "eager.yaml"
    file.write_text(RELAUNCHES_ALL)
    words = ["--phase", "execution", "--policy", file]
    found, told = answer(manifest, *words)
    assert (found, told["phase"], told["decision"]["action"]) == (code, "execution", action)
    assert explain(manifest, words=words).code == code


def test_budget_of_running_tasks_is_told(answer, budget):
    code, told = answer(m.disrupted("EvictionByEvictionAPI"), "--phase", "execution")
    assert (code, told["decision"]["policy"], told["decision"]["delay"]) == (0, "infrastructure", 10.0)
    assert told["decision"]["explanation"].startswith("infrastructure retry 1 of 2")
    (step,) = [step for step in told["steps"] if step["rule"] == "infrastructure_retry_budget"]
    assert (step["matched"], step["why"]) == (False, "infrastructure_retry_budget: retried 0 of 2 times")
    code, told = answer(launched(3, m.disrupted("EvictionByEvictionAPI")), "--phase", "execution")
    assert (code, told["decision"]["action"]) == (1, "count")
    assert "no infrastructure retry is left" in told["decision"]["explanation"]


def test_budget_that_is_off_is_told(answer, explain):
    code, told = answer(m.evicted(), "--phase", "execution")
    assert (code, told["decision"]["action"]) == (1, "count")
    assert told["decision"]["explanation"] == (
        "infrastructure retries are off: infrastructure_retry_budget is 0"
    )
    assert "infrastructure retries are off" in explain(m.evicted(), words=["--phase", "execution"]).out


# --------------------------------------------------------------------------------- pods that have not failed


def test_pod_that_is_well(explain, answer):
    code, told = answer(m.alive())
    assert (code, told["state"]) == (3, "alive")
    assert "decision" not in told
    code, out, _ = explain(m.alive())
    assert (code, "The pod has not failed." in out) == (3, True)


def test_pod_that_waits_is_explained_for_the_case_that_it_is_given_up(answer, explain):
    manifest = m.image_pull_error("ImagePullBackOff")
    code, told = answer(manifest)
    assert (code, told["state"], told["decision"]["rule"]) == (3, "waiting", "unavailable")
    out = explain(manifest).out
    assert "the executor waits with it" in out
    assert "Why it would fail" in out


def test_pod_that_succeeded_has_failed_only_if_its_task_is_known_to_be_queued(answer):
    assert answer(m.succeeded())[0] == 3
    code, told = answer(m.succeeded(), "--phase", "launch")
    assert (code, told["state"]) == (0, "failed")


# ------------------------------------------------------------------------------------ formats, and many pods


def test_table_for_people(explain):
    code, out, _ = explain(m.disrupted("PreemptionByScheduler"))
    assert code == 0
    for part in (
        f"Pod airflow/{m.NAME}",
        "DisruptionTarget=True, PreemptionByScheduler",
        "Why it failed",
        "INFRASTRUCTURE",
        "policy built-in",
        "relaunch: another pod for the same try",
        "avoided, if there is another one",
        "The manifest alone",
    ):
        assert part in out


def test_pod_without_a_node_has_none_to_avoid(explain):
    assert "avoided" not in explain(m.pod("Failed", node=None, reason="Evicted")).out


def test_yaml_says_the_same_as_json(explain):
    as_yaml = yaml.safe_load(explain(m.evicted(), words=["-o", "yaml"]).out)
    assert as_yaml == explain(m.evicted(), words=["-o", "json"]).data


def test_plain_has_a_line_for_each_value(explain):
    lines = explain(m.evicted(), words=["-o", "plain"]).out.splitlines()
    assert ["decision.action", "relaunch"] in [line.split() for line in lines]


@pytest.mark.parametrize(
    ("manifests", "code"),
    [
        ([m.evicted(), m.evicted()], 0),
        ([m.evicted(), m.alive()], 3),
        ([m.evicted(), m.alive(), m.worker_error()], 1),
    ],
)
def test_each_of_many_pods_is_explained(explain, manifests, code):
    outcome = explain(*manifests, words=["-o", "json"])
    assert (outcome.code, len(outcome.data)) == (code, len(manifests))
    assert explain(*manifests).out.count(f"Pod airflow/{m.NAME}") == len(manifests)


@pytest.mark.parametrize("words", [[], ["pod", "-f", "pod.yaml"], ["-", "-f", "pod.yaml"]])
def test_what_is_asked_about_has_to_be_named_once(run, words):
    code, _, err = run("explain", *words)
    assert code == 2
    assert err == "one of both is needed: a name, of which - is standard input, or --file\n"


def test_namespace_is_not_for_manifests(explain):
    code, _, err = explain(m.evicted(), words=["-n", "airflow"])
    assert code == 2
    assert "--namespace is for a pod of the cluster" in err


def test_policy_file_that_cannot_be_used(explain, policy_file):
    policy_file.write_text("policies: []\n")
    code, out, err = explain(m.evicted(), words=["--policy", policy_file])
    assert (code, out) == (2, "")
    assert f"{policy_file}:1: policies" in err


# ------------------------------------------------------------------------------ the cluster and the database


@pytest.fixture
def lost_pod(queued_ti, session, monkeypatch):
    """A task instance that asks for a policy, and the manifest of its third launch, in the cluster."""
    ti = queued_ti("gpu_training")
    ti.queue, ti.executor_config = "gpu", {"retry_policies": ["built-in"]}
    session.commit()
    manifest = launched(3, m.evicted())
    annotated(
        manifest,
        dag_id=ti.dag_id,
        task_id=ti.task_id,
        run_id=ti.run_id,
        try_number="1",
        **{"airflow-resilience/task-instance-id": str(ti.id)},
    )
    monkeypatch.setattr(
        explain_command, "from_cluster", lambda name, namespace, kube_config: read_pod(manifest)
    )
    return ti, manifest


def decided(session, ti, uid, rule, metadata=None, policy="standard", **fields):
    entry = lost(ti_id=str(ti.id), worker_uid=uid, worker_name=uid, **{"reason": "Evicted", **fields})
    entry = replace(
        entry,
        context=replace(entry.context, metadata=metadata or {}),
        decision=replace(entry.decision, policy=policy, rule=rule),
    )
    ledger.record([(ti.key, entry)], session=session)
    session.commit()


def test_pod_of_the_cluster_is_explained_with_its_task_and_its_ledger(run, lost_pod, session, configured):
    ti, manifest = lost_pod
    decided(session, ti, "first", "registry")
    decided(session, ti, manifest["metadata"]["uid"], "registry")  # this very pod
    decided(session, ti, "later", "registry")
    code, out, _ = run("explain", "lost", "-o", "json")
    (told,) = json.loads(out)
    assert code == 0
    assert [link["policy"] for link in told["chain"]] == ["gpu", "built-in", "standard"]
    assert told["decision"]["explanation"].startswith("launch 2 of 11")
    assert "from the metadata database" in told["circumstances"]


def test_failed_launch_is_explained_as_it_was_decided_though_its_task_has_started_since(
    run, lost_pod, session, configured
):
    ti, manifest = lost_pod
    for uid in ("first", "second", manifest["metadata"]["uid"]):
        decided(session, ti, uid, "registry")
    session.add(Log(event="running", task_instance=ti.key))
    ti.state = "running"
    session.commit()
    (told,) = run("explain", "lost", "-o", "json").data
    assert told["phase"] == "launch"
    assert told["decision"]["explanation"].startswith("launch 3 of 11")


def test_task_instance_that_is_not_there_any_more(run, lost_pod, session):
    session.delete(lost_pod[0])
    session.commit()
    (told,) = run("explain", "lost", "-o", "json").data
    assert "not in the metadata database any more" in told["circumstances"]
    assert (
        told["decision"]["explanation"].startswith("launch 3 of 2") or told["decision"]["action"] == "count"
    )


def test_database_that_does_not_answer(run, lost_pod, monkeypatch):
    def fail(*args, **kwargs):
        raise OperationalError("SELECT", {}, Exception("no such table"))

    monkeypatch.setattr(explain_command, "read_profiles", fail)
    (told,) = run("explain", "lost", "-o", "json").data
    assert "The metadata database does not answer (OperationalError)" in told["circumstances"]


@pytest.mark.parametrize("ti_id", ["", "no UUID"])
def test_pod_of_another_executor(run, lost_pod, ti_id):
    annotated(lost_pod[1], **{"airflow-resilience/task-instance-id": ti_id, "try_number": "2"})
    (told,) = run("explain", "lost", "-o", "json").data
    assert "does not say which task instance it is of" in told["circumstances"]


@pytest.mark.parametrize("words", [[], ["--phase", "execution"]])
def test_pod_of_a_running_task_is_explained_with_its_infrastructure_retries(
    run, lost_pod, session, budget, words
):
    ti, _ = lost_pod
    ti.state = "running"
    decided(session, ti, "queued then", "registry")
    earlier = {"phase": Phase.EXECUTION, "next_ti_id": str(ti.id)}
    decided(session, SimpleNamespace(id="earlier", key=ti.key), "first", "infrastructure", **earlier)
    code, out, _ = run("explain", "lost", *words, "-o", "json")
    (told,) = json.loads(out)
    assert (code, told["phase"]) == (0, "execution")
    assert told["decision"]["explanation"].startswith("infrastructure retry 2 of 2")


def test_pod_whose_task_runs_again_is_explained_as_it_was_decided(run, lost_pod, session, budget):
    ti, manifest = lost_pod
    uid = manifest["metadata"]["uid"]
    lost = {"phase": Phase.EXECUTION, "next_ti_id": str(ti.id)}
    decided(session, SimpleNamespace(id=EARLIER, key=ti.key), uid, "infrastructure", **lost)
    annotated(manifest, **{"airflow-resilience/task-instance-id": EARLIER})
    (told,) = run("explain", "lost", "-o", "json").data
    assert told["phase"] == "execution"
    assert told["decision"]["explanation"].startswith("infrastructure retry 1 of 2")
    assert "built-in" in [link["policy"] for link in told["chain"]], "what its task asks for is known"
    assert "from the metadata database" in told["circumstances"]


@pytest.mark.parametrize(
    ("hostname", "was", "phase"),
    [
        ("its-replacement", "Pending", "launch"),
        (m.NAME, "Pending", "execution"),
        (m.NAME, "Failed", "launch"),
    ],
)
def test_pod_that_was_given_up_is_a_launch_unless_its_task_runs_in_it(
    run, lost_pod, session, budget, hostname, was, phase
):
    ti, manifest = lost_pod
    ti.state, ti.hostname = "running", hostname
    decided(session, ti, manifest["metadata"]["uid"], "built-in", metadata={"phase": was})
    assert run("explain", "lost", "-o", "json").data[0]["phase"] == phase


@pytest.mark.parametrize(
    ("manifest", "reason", "phase", "cause"),
    [
        (m.succeeded(), "EndedWithoutReport", Phase.EXECUTION, "ended-without-report"),
        (DELETED, "DeletionOverdue", Phase.EXECUTION, "deletion-overdue"),
        (m.pod("Pending", [], deleted=True), "DeletionOverdue", Phase.LAUNCH, "deletion-overdue"),
    ],
)
def test_pod_has_failed_if_the_ledger_says_so(run, lost_pod, session, budget, manifest, reason, phase, cause):
    ti, told = lost_pod
    told["status"], told["spec"] = manifest["status"], manifest["spec"]
    told["metadata"] = manifest["metadata"] | {"annotations": told["metadata"]["annotations"]}
    decided(session, ti, told["metadata"]["uid"], "infrastructure", reason=reason, phase=phase)
    (told,) = run("explain", "lost", "-o", "json").data
    assert (told["state"], told["phase"], told["cause"]["row"]) == ("failed", phase, cause)


def test_pod_that_failed_in_an_outage_is_explained_as_it_was_decided(run, lost_pod, session, monkeypatch):
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES", "0")
    ti, manifest = lost_pod
    decided(session, ti, manifest["metadata"]["uid"], "outage", policy="-")
    code, out, _ = run("explain", "lost", "-o", "json")
    (told,) = json.loads(out)
    assert (code, told["decision"]["action"], told["decision"]["rule"]) == (0, "relaunch", "outage")
    assert [(step["rule"], step["matched"]) for step in told["steps"]] == [("outage", True)]


def test_phase_that_is_asked_for_is_the_phase(run, lost_pod, session, budget):
    lost_pod[0].state = "running"
    session.commit()
    assert run("explain", "lost", "--phase", "launch", "-o", "json").data[0]["phase"] == "launch"


def test_pod_of_a_task_that_was_cleared_since_is_not_one_of_its_own(run, lost_pod, budget):
    annotated(lost_pod[1], **{"airflow-resilience/task-instance-id": EARLIER})
    (told,) = run("explain", "lost", "-o", "json").data
    assert "not in the metadata database any more" in told["circumstances"]
