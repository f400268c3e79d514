# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What a manifest says, whatever state it is in."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow.providers.cncf.kubernetes_resilience.pods.api.projection import POD_EVENT, decode
from airflow.providers.cncf.kubernetes_resilience.pods.facts import (
    ContainerState,
    ContainerType,
    MalformedPodError,
    PodRef,
    Texts,
    read_pod,
)

from ...support import manifests as m

UID = "2f4d6c1e-7d0b-4a55-9f38-9a51f1a7d001"


def changed(manifest: m.Json, path: str, value: Any) -> m.Json:
    """Return the manifest with the field at a dotted path replaced."""
    manifest = copy.deepcopy(manifest)
    *parents, last = path.split(".")
    place = manifest
    for name in parents:
        place = place[name]
    place[last] = value
    return manifest


def containers(manifest: m.Json) -> list[tuple[str, ContainerType, bool]]:
    return [(item.name, item.type, item.before_worker) for item in read_pod(manifest).containers]


# ---------------------------------------------------------------------------------------------------- the pod


def test_texts_are_a_mapping() -> None:
    texts = Texts((("dag_id", "sales"), ("task_id", "load")))
    assert texts == {"dag_id": "sales", "task_id": "load"}
    assert (len(texts), list(texts), repr(texts)) == (2, ["dag_id", "task_id"], repr(dict(texts)))
    assert texts["task_id"] == texts.get("task_id") == "load"
    assert texts.get("run_id", "none") == "none"
    assert "run_id" not in texts
    with pytest.raises(KeyError, match="run_id"):
        texts["run_id"]


def test_pod_that_was_evicted_by_the_api_is_read_completely() -> None:
    facts = read_pod(m.disrupted("EvictionByEvictionAPI"))
    assert facts.ref == PodRef("airflow", m.NAME, UID)
    assert str(facts.ref) == f"airflow/{m.NAME}"
    assert facts.labels["airflow-worker"] == "7"
    assert facts.annotations["airflow-resilience/launch-number"] == "1"
    assert facts.created == datetime(2026, 3, 1, 8, 0, tzinfo=UTC)
    assert facts.deletion_timestamp == datetime(2026, 3, 1, 8, 1, tzinfo=UTC)
    assert (facts.node, facts.phase, facts.deletion_grace_seconds) == (m.NODE, "Failed", 30)
    assert (facts.reason, facts.message) == (None, None)
    assert [condition.type for condition in facts.conditions] == ["PodScheduled", "DisruptionTarget"]
    assert (facts.worker.state, facts.worker.exit_code) == (ContainerState.TERMINATED, 143)


def test_pod_that_was_evicted_by_the_kubelet_has_a_reason_of_its_own() -> None:
    facts = read_pod(m.evicted())
    assert facts.reason == "Evicted"
    assert facts.message.startswith("The node was low on resource")
    assert facts.worker is None


@pytest.mark.parametrize(
    ("phase", "terminal"),
    [
        ("Pending", False),
        ("Running", False),
        ("Unknown", False),
        ("Succeeded", True),
        ("Failed", True),
        ("Melting", False),
        (None, False),
    ],
)
def test_only_a_pod_that_succeeded_or_failed_is_terminal(phase: str | None, terminal: bool) -> None:
    assert read_pod(m.pod(phase)).is_terminal is terminal


@pytest.mark.parametrize(
    ("manifest", "may_start"),
    [
        (m.starting(), True),
        (m.unscheduled(), True),
        (m.pod(None), True),
        (m.beside_a_sidecar_that_runs(m.CREATING), True),
        (m.beside_a_sidecar_without_image(m.CREATING), True),
        (m.beside_a_sidecar_without_image(m.running()), False),
        (m.beside_a_sidecar_without_image(m.COMPLETED), False),
        (m.alive(), False),
        (m.pod("Running"), False),
        (m.pod("Unknown"), False),
        (m.evicted(), False),
        (m.succeeded(), False),
    ],
)
def test_a_worker_may_start_as_its_own_status_says(manifest: m.Json, may_start: bool) -> None:
    pod = read_pod(manifest)
    assert pod.may_start is may_start
    assert pod.resource_version == ("48213" if may_start else None)


@pytest.mark.parametrize(("seconds", "read"), [(0, 0), (600, 600), (None, 30), ("90", 30), (True, 30)])
def test_grace_period_is_that_of_kubernetes_where_none_is_set(seconds: Any, read: int) -> None:
    manifest = changed(m.alive(), "spec.terminationGracePeriodSeconds", seconds)
    assert read_pod(manifest).deletion_grace_seconds == read


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-03-01T08:00:00Z", datetime(2026, 3, 1, 8, 0, tzinfo=UTC)),
        ("2026-03-01T08:00:00.250000Z", datetime(2026, 3, 1, 8, 0, 0, 250_000, tzinfo=UTC)),
        ("2026-03-01T08:00:00+02:00", datetime(2026, 3, 1, 8, 0, tzinfo=timezone(timedelta(hours=2)))),
        ("2026-03-01T08:00:00", datetime(2026, 3, 1, 8, 0, tzinfo=UTC)),
        ("yesterday", None),
        (1_772_352_000, None),
        (None, None),
    ],
)
def test_times_have_a_time_zone_or_are_not_known(text: Any, time: datetime | None) -> None:
    assert read_pod(changed(m.alive(), "metadata.creationTimestamp", text)).created == time


# ------------------------------------------------------------------------------------------------- containers


def test_worker_is_the_container_named_base_wherever_it_stands() -> None:
    statuses = [m.status_of("statsd", m.running()), m.base(m.terminated(1, "Error"))]
    facts = read_pod(m.pod("Running", statuses))
    assert facts.worker.exit_code == 1
    assert containers(m.pod("Running", statuses)) == [
        ("statsd", ContainerType.SIDECAR, False),
        ("base", ContainerType.WORKER, False),
    ]


def test_init_containers_come_first_and_native_sidecars_are_told_apart() -> None:
    manifest = m.pod(
        containers=[m.base(m.PREPARING), m.status_of("statsd", m.PREPARING)],
        init=[m.status_of("git-sync", m.COMPLETED), m.status_of("proxy", m.running())],
        native_sidecars=("proxy",),
    )
    assert containers(manifest) == [
        ("git-sync", ContainerType.INIT, True),
        ("proxy", ContainerType.SIDECAR, True),
        ("base", ContainerType.WORKER, False),
        ("statsd", ContainerType.SIDECAR, False),
    ]


def test_init_container_named_base_is_not_the_worker() -> None:
    manifest = m.pod(init=[m.base(m.COMPLETED)], containers=[m.status_of("statsd", m.PREPARING)])
    assert read_pod(manifest).worker is None


@pytest.mark.parametrize(
    ("state", "read"),
    [
        (m.waiting("ImagePullBackOff", "Back-off pulling image"), ContainerState.WAITING),
        ({"waiting": {}}, ContainerState.WAITING),
        (m.running(), ContainerState.RUNNING),
        ({"running": {}}, ContainerState.RUNNING),
        (m.COMPLETED, ContainerState.TERMINATED),
        (m.COMPLETED | {"running": None, "waiting": None}, ContainerState.TERMINATED),
        ({}, ContainerState.UNKNOWN),
        ({"running": None}, ContainerState.UNKNOWN),
        ({"frozen": {}}, ContainerState.UNKNOWN),
        (None, ContainerState.UNKNOWN),
        ("running", ContainerState.UNKNOWN),
    ],
)
def test_state_of_a_container_is_the_one_that_is_there(state: Any, read: ContainerState) -> None:
    worker = read_pod(m.pod(containers=[m.base(state or {}) | {"state": state}])).worker
    assert worker.state is read


def test_details_of_a_container_come_from_its_present_state_only() -> None:
    crashed_before = m.base(m.waiting("CrashLoopBackOff", "back-off 10s")) | {
        "lastState": m.terminated(1, "Error")
    }
    worker = read_pod(m.pod(containers=[crashed_before])).worker
    assert (worker.reason, worker.message, worker.exit_code) == ("CrashLoopBackOff", "back-off 10s", None)


@pytest.mark.parametrize(
    ("state", "failed"),
    [
        (m.COMPLETED, False),
        (m.terminated(1, "Error"), True),
        ({"terminated": {"reason": "Error"}}, True),
        (m.running(), False),
        (m.waiting("ErrImagePull"), False),
        ({}, False),
    ],
)
def test_container_has_failed_if_it_ended_without_exit_code_zero(state: m.Json, failed: bool) -> None:
    worker = read_pod(m.pod(containers=[m.base(state)])).worker
    assert worker.failed is failed


NEVER_STARTED = m.terminated(128, "StartError", startedAt="1970-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("state", "last", "started"),
    [
        (m.CREATING, {}, False),
        (m.running(), {}, True),
        (m.COMPLETED, {}, True),
        (NEVER_STARTED, {}, False),
        ({"terminated": {"exitCode": 137, "startedAt": None}}, {}, False),
        (m.waiting("CrashLoopBackOff"), m.terminated(1, "Error"), True),
        (m.waiting("CrashLoopBackOff"), NEVER_STARTED, False),
        (m.CREATING, None, False),
        (m.CREATING, m.LOST, True),
        (m.PREPARING, m.LOST, True),
        (m.waiting("CrashLoopBackOff"), m.LOST, True),
    ],
)
def test_container_has_started_if_a_process_of_it_has_ever_run(
    state: m.Json, last: Any, started: bool
) -> None:
    worker = read_pod(m.pod(containers=[m.base(state) | {"lastState": last}])).worker
    assert worker.started is started


@pytest.mark.parametrize("state", [m.running(), m.COMPLETED])
def test_times_of_the_worker_are_read(state: m.Json) -> None:
    sidecar = m.status_of("statsd", {"running": {"startedAt": "2026-03-01T07:59:00Z"}})
    manifest = m.pod(containers=[sidecar, m.base(state)])
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-03-01T08:00:05Z"}
    manifest["status"]["conditions"] = [{"type": "Ready", "status": "True"}, scheduled]
    facts = read_pod(manifest)
    assert facts.scheduled == datetime(2026, 3, 1, 8, 0, 5, tzinfo=UTC)
    assert facts.started == datetime.fromisoformat(next(iter(state.values()))["startedAt"])


@pytest.mark.parametrize("state", [NEVER_STARTED, m.CREATING, m.waiting("CrashLoopBackOff")])
def test_a_worker_that_has_not_started_has_no_time_of_it(state: m.Json) -> None:
    manifest = m.pod("Pending", containers=[m.base(state)])
    manifest["status"]["conditions"] = [{"type": "PodScheduled", "status": "False"}]
    facts = read_pod(manifest)
    assert (facts.scheduled, facts.started) == (None, None)


@pytest.mark.parametrize(
    ("exit_code", "signal", "killed_by"),
    [
        *((0, None, None), (1, None, None), (128, None, None), (129, None, 1), (137, None, 9)),
        *((143, None, 15), (192, None, 64), (193, None, None), (255, None, None), (255, 9, 9)),
        *((137, 0, 9), (None, None, None)),
    ],
)
def test_signal_is_told_in_its_field_or_in_the_exit_code(
    exit_code: int | None, signal: int | None, killed_by: int | None
) -> None:
    state = {"terminated": {"exitCode": exit_code, "signal": signal}}
    worker = read_pod(m.pod("Failed", [m.base(state)])).worker
    assert worker.killed_by == killed_by


# ------------------------------------------------------------------------------------------------- conditions


@pytest.mark.parametrize(
    ("status", "holds"), [("True", True), ("False", False), ("Unknown", False), (None, False), (True, False)]
)
def test_condition_holds_with_status_true_only(status: Any, holds: bool) -> None:
    manifest = m.pod(conditions=(m.disruption("DeletionByTaintManager") | {"status": status},))
    assert (read_pod(manifest).condition("DisruptionTarget") is not None) is holds


@pytest.mark.parametrize(
    ("manifest", "unscheduled"),
    [(m.unscheduled(), True), (m.starting(), False), (m.pod("Failed", node=None), False)],
)
def test_only_a_pending_pod_waits_for_the_scheduler(manifest: m.Json, unscheduled: bool) -> None:
    assert (read_pod(manifest).unscheduled is not None) is unscheduled


# --------------------------------------------------------------------------------------------- malformed pods


@pytest.mark.parametrize("field", ["name", "namespace", "uid"])
@pytest.mark.parametrize("value", [None, "", 7, ["x"]])
def test_pod_without_identity_is_refused(field: str, value: Any) -> None:
    with pytest.raises(MalformedPodError, match=f"{field}={None!r}"):
        read_pod(changed(m.alive(), f"metadata.{field}", value))


@pytest.mark.parametrize("manifest", [{}, {"metadata": None}, {"metadata": []}, None, [], "pod"])
def test_what_is_not_a_pod_is_refused(manifest: Any) -> None:
    with pytest.raises(MalformedPodError):
        read_pod(manifest)


@pytest.mark.parametrize("part", ["metadata.labels", "metadata.annotations", "spec", "status"])
@pytest.mark.parametrize("value", [None, [], "text", 0])
def test_part_that_is_missing_or_wrong_reads_as_not_known(part: str, value: Any) -> None:
    facts = read_pod(changed(m.start_error(), part, value))
    assert facts.ref.name == m.NAME
    known = {
        "labels": facts.labels,
        "annotations": facts.annotations,
        "spec": facts.node,
        "status": facts.phase,
    }
    assert not known[part.rpartition(".")[2]]


@pytest.mark.parametrize("field", ["conditions", "containerStatuses", "initContainerStatuses"])
@pytest.mark.parametrize("value", [None, {}, "text", [None, 3, "text", [], {}]])
def test_list_that_is_missing_or_wrong_loses_nothing_else(field: str, value: Any) -> None:
    facts = read_pod(changed(m.start_error(), f"status.{field}", value))
    assert (facts.phase, facts.node) == ("Failed", m.NODE)


def test_identity_is_that_of_an_earlier_reading_if_it_is_the_same() -> None:
    first = read_pod(m.pod())
    assert read_pod(m.pod("Running"), {first.ref.uid: first}).ref is first.ref
    renamed = changed(m.pod(), "metadata.name", "another")
    assert read_pod(renamed, {first.ref.uid: first}).ref.name == "another"


def test_names_that_are_no_text_do_not_make_a_native_sidecar() -> None:
    manifest = m.pod(init=[m.status_of("git-sync", m.running())], native_sidecars=("git-sync",))
    for item in (manifest["spec"]["initContainers"][0], manifest["status"]["initContainerStatuses"][0]):
        item["name"] = ["git-sync"]
    assert [item.name for item in read_pod(manifest).containers] == ["unknown"]


def test_labels_and_annotations_keep_text_only() -> None:
    facts = read_pod(
        changed(
            m.alive(),
            "metadata.annotations",
            {"dag_id": "1", "task_id": None, "run_id": 3, "map_index": "", "other": "x"},
        )
    )
    assert facts.annotations == {"dag_id": "1", "map_index": ""}


# ------------------------------------------------------------------------------------------------- properties

FIELDS = st.sampled_from(
    [
        *("name", "namespace", "uid", "labels", "annotations", "creationTimestamp", "deletionTimestamp"),
        *("nodeName", "initContainers", "restartPolicy", "terminationGracePeriodSeconds", "podIP", "phase"),
        *("reason", "message", "conditions", "type", "status", "initContainerStatuses", "containerStatuses"),
        *("state", "waiting", "running", "terminated", "exitCode", "signal"),
    ]
)
WORDS = st.sampled_from(["base", "Always", "Failed", "Pending", "True", "2026-03-01T08:00:00Z", "24:00", ""])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30) | WORDS
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(FIELDS, JSON, max_size=5)
IDENTITY = {"name": "n", "namespace": "ns", "uid": "u"}


@given(metadata=OBJECTS, spec=JSON | OBJECTS, status=JSON | OBJECTS)
def test_every_object_with_an_identity_can_be_read(metadata: m.Json, spec: Any, status: Any) -> None:
    manifest = {"metadata": metadata | IDENTITY, "spec": spec, "status": status}
    before = copy.deepcopy(manifest)
    facts = read_pod(manifest)
    assert facts.ref == PodRef("ns", "n", "u")
    assert repr(facts) == repr(read_pod(before)), "the same manifest reads the same, and is left as it was"


@given(metadata=OBJECTS, spec=JSON | OBJECTS, status=JSON | OBJECTS)
def test_the_decoder_skips_nothing_that_is_read(metadata: m.Json, spec: Any, status: Any) -> None:
    manifest = {"metadata": metadata | IDENTITY, "spec": spec, "status": status}
    projected = decode(msgspec.json.encode({"type": "ADDED", "object": manifest}), POD_EVENT)["object"]
    assert repr(read_pod(projected)) == repr(read_pod(json.loads(msgspec.json.encode(manifest))))


@given(manifest=JSON | st.fixed_dictionaries({"metadata": JSON | OBJECTS, "status": JSON}))
def test_no_other_error_than_malformed_pod_is_raised(manifest: Any) -> None:
    with suppress(MalformedPodError):
        assert read_pod(manifest).ref.uid


@pytest.mark.parametrize(
    ("resources", "of_pod", "unlimited"),
    [
        ({}, None, True),
        ({"requests": {"memory": "1Gi"}, "limits": {"cpu": "1"}}, None, True),
        ({"limits": {"memory": "0"}}, None, True),
        ({"limits": None}, {"limits": {"cpu": "1"}}, True),
        ({"limits": {"memory": "1Gi"}}, None, False),
        ({}, {"limits": {"memory": "1Gi"}}, False),
        (None, None, True),
    ],
)
def test_memory_is_limited_by_the_container_or_by_its_pod(
    resources: Any, of_pod: Any, unlimited: bool
) -> None:
    init = [m.status_of("a", m.COMPLETED)]
    manifest = m.pod("Running", [m.base(m.running()), m.status_of("b", m.running())], init=init)
    for containers in ("initContainers", "containers"):
        manifest["spec"][containers][0]["resources"] = resources
    manifest["spec"]["resources"] = of_pod
    first, worker, unknown = read_pod(manifest).containers
    assert (first.unlimited_memory, worker.unlimited_memory) == (unlimited, unlimited)
    assert not unknown.unlimited_memory


@pytest.mark.parametrize(
    ("own", "of_pod", "is_lost", "is_done"),
    [
        (None, "Never", True, True),
        (None, "OnFailure", False, True),
        ("Never", "Always", True, True),
        ("OnFailure", "Never", False, True),
        ("Always", "Never", False, False),
    ],
)
def test_a_worker_ends_for_good_as_its_own_restart_policy_says(
    own: str | None, of_pod: str, is_lost: bool, is_done: bool
) -> None:
    """A container's policy takes the place of its pod's, from Kubernetes 1.34 on."""
    failed, done = m.lingering(restart_policy=of_pod), m.lingering(m.COMPLETED, restart_policy=of_pod)
    for manifest in (failed, done):
        manifest["spec"]["containers"] = [
            {"name": "statsd", "restartPolicy": "Always"},
            {"name": "base", "restartPolicy": own},
        ]
    assert (read_pod(failed).has_lost_worker, read_pod(done).has_done_worker) == (is_lost, is_done)


def test_container_whose_resources_are_not_shown_may_have_a_limit() -> None:
    (worker,) = read_pod(m.pod("Running", [m.base(m.running())])).containers
    assert not worker.unlimited_memory
