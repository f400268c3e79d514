# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What retry policies change in a pod."""

from __future__ import annotations

import pytest
from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator
from kubernetes.client import models as k8s

from airflow.providers.cncf.kubernetes_resilience.executors.creation.mutations import mutate
from airflow.providers.cncf.kubernetes_resilience.executors.failures.record import REPORT_GRACE
from airflow_resilience.mutation import MemoryIncrease, Mutation

from ....support import manifests as m

LIMITS = ("requests", "limits")


def changed(mutations, resources=None, /, **spec):
    """Return a pod's spec with changes."""
    worker = {"name": "base", **({"resources": resources} if resources else {})}
    pod = PodGenerator.deserialize_model_dict({"spec": {"containers": [worker], **spec}})
    mutate(pod, pod.spec.containers[0], mutations)
    return PodGenerator.serialize_pod(pod)["spec"]


def memory(factor, limit, times=1):
    return [Mutation(memory=MemoryIncrease(factor, limit))] * times


@pytest.mark.parametrize(
    ("stated", "mutations", "asked"),
    [
        (("1Gi", "2Gi"), memory(1.5, "16Gi"), ("1536Mi", "3072Mi")),
        (("1Gi", "2Gi"), memory(1.5, "16Gi", times=3), ("3456Mi", "6912Mi")),
        (("1Gi", "2Gi"), memory(8, "4Gi"), ("4Gi", "4Gi")),
        (("1Gi", "8Gi"), memory(2, "4Gi"), ("2048Mi", "8Gi")),
        (("500M", "1G"), memory(1.1, "16G"), ("525Mi", "1050Mi")),
        (("100", "1e3"), memory(2, "1Gi"), ("1Mi", "1Mi")),
        ((None, "1Gi"), memory(2, "4Gi"), (None, "2048Mi")),
        (("1Gi", None), memory(2, "4Gi"), ("2048Mi", None)),
        ((None, None), memory(2, "4Gi"), (None, None)),
        (("1Gi", "1Gi"), [*memory(2, "2Gi"), *memory(2, "3Gi")], ("3Gi", "3Gi")),
        (("1Gi", "1Gi"), memory(1e300, "4Gi"), ("4Gi", "4Gi")),
    ],
)
def test_memory_is_raised_where_it_is_stated_and_up_to_the_limit(stated, mutations, asked):
    resources = {
        name: {"cpu": "1", "memory": amount} if amount else {"cpu": "1"}
        for name, amount in zip(LIMITS, stated, strict=True)
    }
    after = changed(mutations, resources)["containers"][0]["resources"]
    assert tuple(after[name].get("memory") for name in LIMITS) == asked
    assert {after[name]["cpu"] for name in LIMITS} == {"1"}


@pytest.mark.parametrize(
    "resources",
    [None, {"limits": {"cpu": "1"}}, {"limits": {"memory": None}}, {"requests": {"memory": "1Gi"}}],
)
def test_a_container_that_states_less_is_given_no_more(resources):
    after = changed(memory(2, "4Gi"), resources)["containers"][0].get("resources", {})
    assert {*after} == {*(resources or ())}


def test_no_container_has_more_than_its_pod():
    whole = {"limits": {"memory": "1536Mi"}}
    spec = changed(memory(2, "4Gi"), {"limits": {"memory": "1Gi"}}, resources=whole)
    assert spec["containers"][0]["resources"]["limits"]["memory"] == "1536Mi"


def test_labels_tolerations_and_priority_join_those_of_the_pod():
    own = {"key": "own", "operator": "Exists"}
    more = {
        "key": "pool",
        "operator": "Equal",
        "value": "large",
        "effect": "NoExecute",
        "tolerationSeconds": 9,
    }
    mutations = [
        Mutation(node_selector={"zone": "b", "pool": "large"}, tolerations=(more,)),
        Mutation(node_selector={"pool": "huge"}, tolerations=(more,), priority_class_name="high"),
    ]
    spec = changed(
        mutations,
        nodeSelector={"zone": "a", "arch": "arm64"},
        tolerations=[own],
        priority=3,
        priorityClassName="low",
        preemptionPolicy="Never",
    )
    assert spec["nodeSelector"] == {"zone": "b", "arch": "arm64", "pool": "huge"}
    assert spec["tolerations"] == [own, more]
    assert spec["priorityClassName"] == "high"
    assert {"priority", "preemptionPolicy"}.isdisjoint(spec)
    assert changed(mutations)["tolerations"] == [more]
    assert "tolerations" not in changed(memory(2, "4Gi"))


POLICIES = """
policies:
  - name: memory
    rules:
      - name: killed
        onReasons: [OOMKilled]
        action: Retry
        retryLimit: 3
        mutate:
          resources:
            memory: {factor: 2, limit: 1Gi}
selection:
  - {policy: memory, dagIds: ["*"]}
"""


@pytest.fixture
def config(with_policies):
    return with_policies(POLICIES) | {"KUBERNETES_RESILIENCE__INFRASTRUCTURE_RETRY_BUDGET": "4"}


@pytest.fixture
def needs_memory(queued_ti, session):
    """Give a task instance whose worker has a limit of 256Mi, and is killed by that."""
    resources = k8s.V1ResourceRequirements(limits={"memory": "256Mi"})
    spec = k8s.V1PodSpec(containers=[k8s.V1Container(name="base", resources=resources)])
    ti = queued_ti()
    ti.executor_config = {"pod_override": k8s.V1Pod(spec=spec)}
    session.commit()
    return ti


def limit(pod):
    return pod.base["resources"]["limits"]["memory"]


def test_each_launch_has_what_the_one_before_had_and_what_was_decided_since(start, config, needs_memory):
    harness = start(**config)
    first = harness.launch(needs_memory)
    harness.observe(first, m.out_of_memory())
    second = harness.created()
    harness.observe(second, m.evicted())  # another rule, which changes nothing
    third = harness.created()
    harness.begin(needs_memory, third)
    harness.observe(third, m.out_of_memory())
    harness.wait(REPORT_GRACE)
    harness.wait(10.0)
    fourth = harness.created()
    assert [limit(pod) for pod in (first, second, third, fourth)] == ["256Mi", "512Mi", "512Mi", "1Gi"]
    explanations = [entry["explanation"] for entry in harness.ledger(needs_memory)]
    assert "; the next launch has memory times 2, 1Gi at most" in explanations[0]


def test_a_successor_launches_with_what_was_decided(start, config, needs_memory, successor):
    harness = start(**config)
    first = harness.launch(needs_memory)
    first.become(m.out_of_memory())
    heir = successor(**config)
    heir.take_over(needs_memory)
    heir.set_state(needs_memory, "queued", queued_by_job_id=heir.executor.job_id)
    assert limit(heir.launch(needs_memory)) == "512Mi"
