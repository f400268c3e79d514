# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Worker pods as the API server shows them, one function for each way in which they live and die.

.. seealso::
    https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#PodStatus
    https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

AIRFLOW_UNREACHABLE = (
    'File "/airflow/sdk/api/client.py", line 1, in request\n'
    'File "/httpx/default.py", line 2, in map_httpcore_exceptions\n'
    "    raise mapped_exc(message) from exc\n"
    "httpx.ConnectError: [Errno -2] Name or service not known\n"
)
"""What the supervisor of a worker prints that could not reach Airflow's API server, on Airflow 3.1."""

NAME = "sales-load-x7k2m9qa"
NODE = "node-1"
IMAGE = "registry.example.com/airflow:3.3.2"
CREATED = "2026-03-01T08:00:00Z"
DELETION_ENDS = "2026-03-01T08:01:00Z"


# ------------------------------------------------------------------------------------------------- containers


def waiting(reason: str, message: str | None = None) -> Json:
    return {"waiting": {"reason": reason} | ({"message": message} if message else {})}


def running() -> Json:
    return {"running": {"startedAt": "2026-03-01T08:00:09Z"}}


def terminated(exit_code: int, reason: str | None = None, message: str | None = None, **more: Any) -> Json:
    optional = {"reason": reason, "message": message, **more}
    return {
        "terminated": {
            "exitCode": exit_code,
            "startedAt": "2026-03-01T08:00:09Z",
            "finishedAt": "2026-03-01T08:00:31Z",
            "containerID": "containerd://5f1c",
            **{key: value for key, value in optional.items() if value is not None},
        }
    }


COMPLETED = terminated(0, "Completed")
LOST = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": None}}
"""As ``lastState`` of a container that was running, and that the kubelet does not find any more."""
PREPARING = waiting("PodInitializing")
CREATING = waiting("ContainerCreating")


def status_of(name: str, state: Json, **more: Any) -> Json:
    """One entry of ``containerStatuses`` or ``initContainerStatuses``."""
    is_running = "running" in state
    return {
        "name": name,
        "image": IMAGE,
        "imageID": "registry.example.com/airflow@sha256:9d2f" if is_running else "",
        "ready": is_running,
        "started": is_running,
        "restartCount": 0,
        "lastState": {},
        "state": state,
        **more,
    }


def base(state: Json) -> Json:
    return status_of("base", state)


# ------------------------------------------------------------------------------------------------- conditions


def condition(
    type_: str, status: str = "True", reason: str | None = None, message: str | None = None
) -> Json:
    optional = {"reason": reason, "message": message}
    return {
        "type": type_,
        "status": status,
        "lastProbeTime": None,
        "lastTransitionTime": "2026-03-01T08:00:30Z",
        **{key: value for key, value in optional.items() if value is not None},
    }


def disruption(reason: str | None, status: str = "True", message: str | None = None) -> Json:
    return condition("DisruptionTarget", status, reason, message)


PLACED = condition("PodScheduled")
NO_NODE = condition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available")

# ------------------------------------------------------------------------------------------------------- pods


def pod(
    phase: str | None = "Pending",
    containers: list[Json] | None = None,
    *,
    init: list[Json] | None = None,
    native_sidecars: tuple[str, ...] = (),
    conditions: tuple[Json, ...] = (),
    node: str | None = NODE,
    deleted: bool = False,
    **status: Any,
) -> Json:
    """
    A worker pod.

    :param native_sidecars: names of those in ``init`` that restart ``Always``
    :param deleted: whether its deletion has been asked for
    :param status: more fields of the status
    """
    containers = [] if containers is None else containers
    init = [] if init is None else init
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(deleted=deleted),
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 30,
            "schedulerName": "default-scheduler",
            "serviceAccountName": "airflow-worker",
            "initContainers": [
                {"name": item["name"], "image": IMAGE}
                | ({"restartPolicy": "Always"} if item["name"] in native_sidecars else {})
                for item in init
            ],
            "containers": [{"name": "base", "image": IMAGE, "args": ["python", "-m", "airflow"]}],
            **({"nodeName": node} if node else {}),
        },
        "status": {
            "qosClass": "Burstable",
            "conditions": [PLACED if node else NO_NODE, *conditions],
            **({"phase": phase} if phase else {}),
            **({"hostIP": "10.0.0.4", "podIP": "10.244.1.7", "startTime": CREATED} if node else {}),
            **({"initContainerStatuses": init} if init else {}),
            **({"containerStatuses": containers} if containers else {}),
            **status,
        },
    }


def _metadata(*, deleted: bool) -> Json:
    deletion = {"deletionTimestamp": DELETION_ENDS, "deletionGracePeriodSeconds": 30} if deleted else {}
    return {
        "name": NAME,
        "namespace": "airflow",
        "uid": "2f4d6c1e-7d0b-4a55-9f38-9a51f1a7d001",
        "resourceVersion": "48213",
        "creationTimestamp": CREATED,
        "labels": {
            "airflow-worker": "7",
            "kubernetes_executor": "True",
            "dag_id": "sales",
            "task_id": "load",
        },
        "annotations": {
            "dag_id": "sales",
            "task_id": "load",
            "run_id": "manual__2026-03-01T08:00:00+00:00",
            "try_number": "1",
            "airflow-resilience/launch-id": "c0ffee",
            "airflow-resilience/launch-number": "1",
            "airflow-resilience/task-instance-id": "01954f1e-4c5b-7d2a-8f57-5a4f1c6b0001",
        },
        **deletion,
    }


# --------------------------------------------------------------------------------------------- alive and well


def unscheduled() -> Json:
    return pod(node=None)


def starting() -> Json:
    return pod(containers=[base(CREATING)])


def alive() -> Json:
    return pod("Running", [base(running())])


def beside_a_sidecar_without_image(worker: Json) -> Json:
    """A pod is Pending for as long as one of its containers has never run, whatever its worker does."""
    return pod(
        "Pending", [base(worker), status_of("statsd", waiting("ImagePullBackOff", "Back-off pulling"))]
    )


def beside_a_sidecar_that_runs(worker: Json) -> Json:
    """A pod is Running once one of its containers does: a native sidecar begins before the worker."""
    init = [status_of("proxy", running())]
    return pod("Running", [base(worker)], init=init, native_sidecars=("proxy",))


def succeeded() -> Json:
    return pod("Succeeded", [base(COMPLETED)])


# --------------------------------------------------------------------------------------- containers that fail


def start_error() -> Json:
    message = 'failed to create containerd task: exec: "/entrypoint": permission denied: unknown'
    return pod("Failed", [base(terminated(128, "StartError", message))])


def status_unknown() -> Json:
    message = "The container could not be located when the pod was terminated"
    return pod("Failed", [base(terminated(137, "ContainerStatusUnknown", message))])


def out_of_memory() -> Json:
    return pod("Failed", [base(terminated(137, "OOMKilled"))])


def worker_error(exit_code: int = 1, **more: Any) -> Json:
    return pod("Failed", [base(terminated(exit_code, "Error", **more))])


def api_unreachable() -> Json:
    return pod("Failed", [base(terminated(1, "Error", AIRFLOW_UNREACHABLE))])


def init_error() -> Json:
    init = [status_of("git-sync", terminated(1, "Error", "fatal: unable to access the repository"))]
    return pod("Failed", [base(PREPARING)], init=init)


def sidecar_error() -> Json:
    return pod("Failed", [base(COMPLETED), status_of("statsd", terminated(2, "Error"))])


# ---------------------------------------------------------------------------------------- pods that are taken


def evicted() -> Json:
    message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 43Mi."
    return pod("Failed", reason="Evicted", message=message)


def evicted_by_kubelet() -> Json:
    """As newer kubelets do it: with the condition, and with the container's status."""
    return pod(
        "Failed",
        [base(terminated(137, "Error"))],
        reason="Evicted",
        message="The node was low on resource: ephemeral-storage.",
        conditions=(disruption("TerminationByKubelet"),),
    )


def node_shutdown() -> Json:
    message = "Pod was terminated in response to imminent node shutdown."
    return pod("Failed", [base(terminated(143, "Error"))], reason="NodeShutdown", message=message)


def node_lost() -> Json:
    return pod("Failed", [base(running())], reason="NodeLost", message="Node node-1 is unresponsive")


def not_admitted() -> Json:
    message = "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices gpu"
    return pod("Failed", reason="UnexpectedAdmissionError", message=message)


def deadline_exceeded() -> Json:
    message = "Pod was active on the node longer than the specified deadline"
    return pod("Failed", [base(terminated(137, "Error"))], reason="DeadlineExceeded", message=message)


def disrupted(reason: str, exit_code: int = 143) -> Json:
    """Drain, preemption and taint eviction look the same but for the condition's reason."""
    return pod(
        "Failed", [base(terminated(exit_code, "Error"))], conditions=(disruption(reason),), deleted=True
    )


def evicted_by_kueue(reason: str = "WorkloadEvictedDueToPreempted", *, deleted: bool = True) -> Json:
    """Kueue sets a condition of its own, and then deletes."""
    target = condition("TerminationTarget", "True", reason, "Preempted to accommodate a workload")
    return pod("Failed", [base(terminated(137, "Error"))], conditions=(target,), deleted=deleted)


def provider_failed(phase: str) -> Json:
    """As a virtual kubelet leaves a pod that its provider could not create."""
    message = "quota of container groups exceeded"
    return pod(phase, [base(CREATING)], reason="ProviderFailed", message=message)


# --------------------------------------------------------------------------------------------- pods that hang


def not_startable() -> Json:
    return pod(containers=[base(waiting("RunContainerError", "the runtime does not answer"))])


def unschedulable(
    message: str = "0/3 nodes are available: 3 Insufficient cpu.", reason: str = "Unschedulable"
) -> Json:
    manifest = pod(node=None)
    manifest["status"]["conditions"] = [condition("PodScheduled", "False", reason, message)]
    return manifest


def gated() -> Json:
    manifest = pod(node=None)
    manifest["status"]["conditions"] = [condition("PodScheduled", "False", "SchedulingGated", "waits")]
    return manifest


def lingering(
    worker: Json | None = None, sidecar: Json | None = None, *, restart_policy: str = "Never", **more: Any
) -> Json:
    """A pod whose worker has failed and whose ordinary sidecar runs on."""
    statuses = [base(worker or terminated(1, "Error")), status_of("statsd", sidecar or running())]
    manifest = pod(more.pop("phase", "Running"), statuses, **more)
    manifest["spec"]["restartPolicy"] = restart_policy
    return manifest


def image_pull_error(reason: str = "ErrImagePull", message: str | None = "manifest unknown") -> Json:
    return pod(containers=[base(waiting(reason, message))])
