# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What a worker pod is made of: the deployment's template, the task's override, and what is ours."""

from __future__ import annotations

import shlex

import pytest
import yaml
from airflow.models.log import Log
from kubernetes.client import models as k8s

from airflow.providers.cncf.kubernetes_resilience.executors.reconciler import BUILD_BUDGET
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import PodConflictError
from airflow_resilience.termination.environment import GRACE_PERIOD

from ....support import manifests as m
from ....support.cluster import TEMPLATE

POLICY = "terminationMessagePolicy"


def override(**metadata) -> k8s.V1Pod:
    container = k8s.V1Container(name="base", image="special", env=[k8s.V1EnvVar(name="A", value="1")])
    return k8s.V1Pod(metadata=k8s.V1ObjectMeta(**metadata), spec=k8s.V1PodSpec(containers=[container]))


@pytest.fixture
def make(harness, queued_ti):
    """Give a function that queues a task instance with an executor_config."""

    def make(**executor_config):
        ti = queued_ti()
        ti.executor_config = executor_config
        harness.session.commit()
        return ti

    return make


def test_a_pod_says_which_launch_it_is(harness, launched):
    ti, pod = launched
    assert pod.annotations["airflow-resilience/task-instance-id"] == str(ti.id)
    assert pod.launch_number == 1
    assert pod.labels["airflow-worker"] == harness.label
    assert pod.labels["kubernetes_executor"] == "True"
    assert pod.manifest["metadata"]["namespace"] == "default"
    assert pod.workload["ti"]["id"] == str(ti.id)


def test_a_pod_override_is_kept_through_relaunches(harness, make):
    ti = make(pod_override=override(labels={"team": "data"}, annotations={"note": "x"}))
    pod = harness.launch(ti)
    for number in (1, 2):
        assert pod.base["image"] == "special"
        assert {"name": "A", "value": "1"} in pod.base["env"]
        assert (pod.labels["team"], pod.annotations["note"]) == ("data", "x")
        assert pod.launch_number == number
        if number == 1:
            harness.observe(pod, m.start_error())
            pod = harness.created()


def test_a_pinned_name_is_not_used_twice(start, queued_ti, session):
    harness = start(KUBERNETES_EXECUTOR__POD_LAUNCH_FAILURE_RETRIES="3")
    ti = queued_ti()
    ti.executor_config = {"pod_override": override(name="always-the-same")}
    session.commit()
    pod = harness.launch(ti)
    names = [pod.name]
    for _ in range(3):
        harness.observe(pod, m.start_error())
        pod = harness.created()
        names.append(pod.name)
    assert names[0] == "always-the-same"
    assert len(set(names)) == 4
    assert all(name.startswith("always-the-same") for name in names)


def test_a_pinned_name_is_not_used_twice_by_a_successor(harness, make, successor):
    ti = make(pod_override=override(name="always-the-same"))
    harness.launch(ti).become(m.start_error())
    heir = successor()
    heir.take_over(ti)
    heir.set_state(ti, "queued", queued_by_job_id=heir.executor.job_id)
    assert heir.launch(ti).name != "always-the-same"


def test_a_pinned_name_that_the_pod_of_an_earlier_phase_still_has(harness, make):
    ti = make(pod_override=override(name="always-the-same"))
    first = harness.launch(ti)
    harness.begin(ti, first)
    harness.set_state(ti, "queued")  # it deferred, and its trigger fired
    harness.hand_over(ti)
    harness.refuse(
        PodConflictError("exists and belongs to another launch", status=409, reason="AlreadyExists")
    )
    second = harness.created()
    assert second.name != first.name
    harness.begin(ti, second)
    harness.set_state(ti, "success")
    harness.observe(second, m.succeeded())
    assert not harness.occupied(ti)


def test_a_task_that_runs_in_the_launch_with_the_pinned_name(harness, make):
    ti = make(pod_override=override(name="always-the-same"))
    first = harness.launch(ti)
    harness.observe(first, m.node_lost())
    second = harness.created()
    harness.begin(ti, first)
    harness.observe(second, m.worker_error())
    assert harness.events() == {}


def test_a_template_of_its_own(harness, make, tmp_path):
    path = tmp_path / "gpu.yaml"
    template = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "nodeSelector": {"gpu": "yes"}, "priority": 5}}
    path.write_text(yaml.safe_dump(template))
    ti = make(pod_template_file=str(path))
    pod = harness.launch(ti)
    assert pod.manifest["spec"]["nodeSelector"] == {"gpu": "yes"}
    harness.observe(pod, m.start_error())
    assert harness.created().manifest["spec"]["nodeSelector"] == {"gpu": "yes"}


def test_a_broken_template_fails_its_task_and_no_other(harness, make, queued_ti, tmp_path):
    path = tmp_path / "broken.yaml"
    path.write_text("{not: [yaml")
    ti, other = make(pod_template_file=str(path)), queued_ti("other")
    harness.queue(ti)
    assert harness.launch(other)
    ((key, (state, info)),) = harness.events().items()
    assert (key, state) == (ti.key, "failed")
    assert "Pod could not be built" in info
    assert not harness.occupied(ti)


def test_what_a_hook_says_when_it_fails_can_be_written_down(harness, queued_ti, monkeypatch):
    """The scheduler writes it into the audit log, and would end with the database's exception."""

    def hook(pod):
        raise ValueError("a\0b")

    monkeypatch.setattr("airflow.settings.pod_mutation_hook", hook)
    ti = queued_ti()
    harness.hand_over(ti)
    ((_, info),) = harness.events().values()
    harness.session.add(Log(event="state mismatch", extra=info, task_instance=ti.key))
    harness.session.commit()


def test_building_many_pods_does_not_keep_the_scheduler(harness, queued_ti):
    def slow_clock():
        harness.clock.advance(0.45 * BUILD_BUDGET)
        return harness.clock.now

    harness.parts.reconciler._clock = slow_clock
    harness.hand_over(*queued_ti(mapped=7))
    per_turn = [len(harness.runtime.take("create"))]
    while per_turn[-1]:
        harness.executor.sync()
        per_turn.append(len(harness.runtime.take("create")))
    assert per_turn == [3, 3, 1, 0]


def test_a_pod_mutation_hook_sees_each_launch_and_may_send_it_anywhere(harness, queued_ti, monkeypatch):
    seen = []

    def hook(pod):
        number = pod.metadata.annotations["airflow-resilience/launch-number"]
        seen.append((pod.metadata.name, number, pod.spec.affinity is not None))
        pod.spec.affinity = None
        if number != "1":
            pod.spec.node_selector = {"karpenter.sh/capacity-type": "on-demand"}

    monkeypatch.setattr("airflow.settings.pod_mutation_hook", hook)
    first = harness.launch(queued_ti())
    harness.observe(first, m.evicted())
    second = harness.created()
    assert seen == [(first.name, "1", False), (second.name, "2", True)]
    spec = second.manifest["spec"]
    assert (spec.get("affinity"), list(spec["nodeSelector"].values())) == (None, ["on-demand"])


@pytest.mark.parametrize(("budget", "told"), [("0", []), ("3", ["600"])])
def test_a_worker_is_told_of_the_grace_period_that_a_hook_has_set(start, make, monkeypatch, budget, told):
    """A guard that takes it for Kubernetes' own 30 seconds lets go long before the worker is killed."""

    def hook(pod):
        pod.spec.termination_grace_period_seconds = 600
        pod.spec.containers[0].env.append({"name": "A", "value": "1"})

    monkeypatch.setattr("airflow.settings.pod_mutation_hook", hook)
    harness = start(KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET=budget)
    variables = harness.launch(make()).base["env"]
    assert [item["value"] for item in variables if item["name"] == GRACE_PERIOD] == told


def test_a_pod_mutation_hook_may_leave_anything_that_can_be_sent(harness, queued_ti, monkeypatch):
    def hook(pod):
        pod.metadata.annotations = pod.metadata.labels = None
        pod.spec.containers.insert(0, {"name": "proxy", "image": "proxy"})

    monkeypatch.setattr("airflow.settings.pod_mutation_hook", hook)
    ti = queued_ti()
    harness.hand_over(ti)
    ((_, body),) = harness.runtime.take("create")
    assert body["metadata"]["annotations"]["airflow-resilience/task-instance-id"] == str(ti.id)
    assert list(body["metadata"]["labels"]) == ["airflow-resilience/executor"]
    assert [item["name"] for item in body["spec"]["containers"]] == ["proxy", "base"]


@pytest.mark.parametrize(
    "sidecars", [[], [k8s.V1Container(name="proxy", image="proxy")]], ids=["alone", "beside"]
)
def test_a_pod_mutation_hook_may_leave_the_worker_as_a_dictionary(start, make, monkeypatch, sidecars):
    def hook(pod):
        worker = {"name": "task", "image": "own", "args": pod.spec.containers[0].args}
        pod.spec.containers = [*sidecars, worker]

    monkeypatch.setattr("airflow.settings.pod_mutation_hook", hook)
    pod = start().launch(make())
    assert pod.annotations["airflow-resilience/worker-container"] == "task"


def test_a_pod_mutation_hook_may_have_a_shell_run_the_workload(start, make, monkeypatch):
    """To read secrets from a file first, for example."""

    def hook(pod):
        (worker,) = pod.spec.containers
        worker.name, worker.args = "task", ["sh", "-c", f". /secrets && exec {shlex.join(worker.args)}"]
        pod.spec.containers = [k8s.V1Container(name="proxy", image="proxy"), worker]

    monkeypatch.setattr("airflow.settings.pod_mutation_hook", hook)
    assert start().launch(make()).facts().worker_name == "task"


@pytest.mark.parametrize(("name", "is_in_shell"), [("task", False), ("base", True)])
def test_a_sidecar_that_looks_for_the_worker_is_not_the_worker(start, make, monkeypatch, name, is_in_shell):
    def hook(pod):
        (worker,) = pod.spec.containers
        worker.name = name
        if is_in_shell:
            worker.args = ["sh", "-c", shlex.join(worker.args)]
        wait = ["sh", "-c", "while pgrep -f -- --json-string; do sleep 1; done"]
        pod.spec.containers = [k8s.V1Container(name="proxy", image="proxy", args=wait), worker]

    monkeypatch.setattr("airflow.settings.pod_mutation_hook", hook)
    assert start().launch(make()).facts().worker_name == name


@pytest.mark.parametrize(
    ("reason", "is_avoided"), [("EvictionByEvictionAPI", True), ("DeletionByPodGC", False)]
)
def test_a_node_that_is_gone_need_not_be_avoided(harness, queued_ti, reason, is_avoided):
    first = harness.launch(queued_ti())
    harness.observe(first, m.disrupted(reason))
    assert ("affinity" in harness.created().manifest["spec"]) is is_avoided


@pytest.fixture
def named_etl(start, make):
    """Give the pod of a task whose override, which is merged by position, has renamed its worker."""
    harness = start(KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET="3")
    container = k8s.V1Container(name="etl", env=[k8s.V1EnvVar(name="A", value="1")])
    ti = make(pod_override=k8s.V1Pod(spec=k8s.V1PodSpec(containers=[container])))
    return harness, ti, harness.launch(ti)


def test_a_worker_of_another_name_is_built_like_any_other(named_etl, harness, queued_ti):
    _, _, pod = named_etl
    (worker,) = pod.manifest["spec"]["containers"]
    (other,) = harness.launch(queued_ti()).manifest["spec"]["containers"]
    assert (worker["name"], worker[POLICY]) == ("etl", other[POLICY])
    assert {"AIRFLOW_RESILIENCE_INFRASTRUCTURE_RETRY", "A"} <= {item["name"] for item in worker["env"]}


def test_the_exit_of_a_worker_of_another_name_is_its_own(named_etl):
    harness, ti, pod = named_etl
    harness.observe(pod, m.pod("Failed", [m.status_of("etl", m.terminated(1, "Error"))]))
    (info,) = harness.ledger(ti)
    metadata = info["context"]["metadata"]
    assert (info["action"], metadata["cause"], metadata["container_type"]) == (
        "count",
        "worker-failed",
        "worker",
    )


def test_a_worker_of_another_name_is_known_to_a_successor(named_etl, successor):
    harness, ti, pod = named_etl
    harness.observe(pod, m.pod("Running", [m.status_of("etl", m.running())]))
    harness.begin(ti, pod)
    heir = successor()
    heir.adopt(ti)
    assert pod.facts().worker_name == "etl"
    assert pod.facts().started


def test_an_executor_config_that_cannot_be_used(harness, make):
    ti = make(pod_override="not a pod")
    harness.hand_over(ti)
    ((state, info),) = harness.events().values()
    assert (state, info) == ("failed", "Invalid executor_config passed")
    assert not harness.occupied(ti)


def test_the_namespace_of_an_override(harness, make):
    ti = make(pod_override=override(namespace="other"))
    pod = harness.launch(ti)
    assert pod.ref.namespace == "other"
    harness.observe(pod, m.start_error())
    assert harness.created().ref.namespace == "other"


def test_last_lines_of_a_worker_that_fails_are_kept_by_the_kubelet(harness, make):
    ti = make(pod_override=override())
    pod = harness.launch(ti)
    assert pod.base[POLICY] == "FallbackToLogsOnError"
    harness.observe(pod, m.start_error())
    assert harness.created().base[POLICY] == "FallbackToLogsOnError"


def test_containers_beside_the_worker_are_left_as_they_are(harness, make, tmp_path):
    path = tmp_path / "sidecar.yaml"
    containers = [*TEMPLATE["spec"]["containers"], {"name": "statsd", "image": "statsd"}]
    init = [{"name": "git-sync", "image": "git-sync"}]
    spec = {**TEMPLATE["spec"], "containers": containers, "initContainers": init}
    path.write_text(yaml.safe_dump({**TEMPLATE, "spec": spec}))
    spec = harness.launch(make(pod_template_file=str(path))).manifest["spec"]
    stated = {item["name"]: item.get(POLICY) for item in spec["containers"] + spec["initContainers"]}
    assert stated == {"base": "FallbackToLogsOnError", "statsd": None, "git-sync": None}


@pytest.mark.parametrize("value", ["File", "FallbackToLogsOnError"])
def test_policy_of_a_template_is_kept(harness, make, tmp_path, value):
    path = tmp_path / "template.yaml"
    worker, *others = TEMPLATE["spec"]["containers"]
    spec = {**TEMPLATE["spec"], "containers": [{**worker, POLICY: value}, *others]}
    path.write_text(yaml.safe_dump({**TEMPLATE, "spec": spec}))
    assert harness.launch(make(pod_template_file=str(path))).base[POLICY] == value


def test_policy_of_an_override_is_kept(harness, make):
    pod = override()
    pod.spec.containers[0].termination_message_policy = "File"
    assert harness.launch(make(pod_override=pod)).base[POLICY] == "File"


@pytest.mark.parametrize("value", ["File", None])
def test_pod_mutation_hook_has_the_last_word_about_the_policy(harness, queued_ti, monkeypatch, value):
    def hook(pod):
        (worker,) = (item for item in pod.spec.containers if item.name == "base")
        worker.termination_message_policy = value

    monkeypatch.setattr("airflow.settings.pod_mutation_hook", hook)
    assert harness.launch(queued_ti()).base.get(POLICY) == value


def test_a_hook_changes_the_policy_of_one_pod_and_not_of_the_next(harness, queued_ti, monkeypatch):
    first, second = queued_ti(mapped=2)

    def hook(pod):
        pod.spec.containers[0].termination_message_policy = "File"

    with monkeypatch.context() as patch:
        patch.setattr("airflow.settings.pod_mutation_hook", hook)
        assert harness.launch(first).base[POLICY] == "File"
    assert harness.launch(second).base[POLICY] == "FallbackToLogsOnError"


def test_nothing_is_stated_where_that_is_switched_off(start, queued_ti):
    harness = start(KUBERNETES_RESILIENCE__WORKER_LOG_AS_TERMINATION_MESSAGE="False")
    assert POLICY not in harness.launch(queued_ti()).base
