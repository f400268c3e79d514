# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A container cannot be created or started, or still waits for it."""

from __future__ import annotations

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes.cause import (
    NOT_STARTED,
    Cause,
    both,
    container_reason,
    container_says,
    either,
)
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import PodFailure
from airflow.providers.cncf.kubernetes_resilience.pods.facts import ContainerState, ContainerType
from airflow_resilience.context import StateChangeCategory, StateChangeReason

_DOCS = "https://kubernetes.io/docs"
_STATES = f"{_DOCS}/concepts/workloads/pods/pod-lifecycle/#container-states"

_NOT_CONFIGURED = container_reason("CreateContainerConfigError")


_EXEC = r'exec: \\*"'
"""What is executed follows. Logs of CRI-O, and those of old runtimes, quote a quotation."""

_OF_ANOTHER_PROGRAM = (
    # containerd (cmd/containerd-shim-runc-v2/process/init.go): the runtime could not even write its log
    r"unable to retrieve oci runtime error"
    rf'|{_EXEC}([^"\\]*/)?(apparmor_parser|containerd-shim[\w-]*|[\w-]+-container-runtime[\w.-]*|kata-runtime'
    r'|runc|crun|runsc)\\*"'
    rf"|\bhook\b.*{_EXEC}|nvidia-container-cli[\w.]*: mount error"
)
_OF_ROOT_FILE_SYSTEM = (
    # containerd (cmd/containerd-shim-runc-v2), its snapshots, and CRI-O (containers/storage, drivers/overlay)
    r"mount rootfs|rootfs component|overlay mount|mounting overlay|snapshot .*(does not exist|not found)"
    r"|layer not known|mount callback failed|/tmpmounts/|/snapshots/\d+/|missing parent"
    # Mounts of the runtime's own, which have no path: proc, sysfs, cgroup, overlay
    r'|\bmount(ing)? \\*["`][^"`/\\]+\\*["`] to\b'
)


def _is_not_for_the_node(failure: PodFailure) -> bool:
    return failure.container is not None and failure.container.is_not_executable


def _waits_for_init(failure: PodFailure) -> bool:
    container = failure.container
    return (
        container is not None
        and container.type is ContainerType.INIT
        and container.state is ContainerState.RUNNING
    )


STARTUP = (
    Cause(
        name="config-missing",
        applies=both(
            _NOT_CONFIGURED,
            container_says(r"(secret|configmap) .*not found|couldn't find key"),
        ),
        # It may still come: many clusters copy secrets from elsewhere, after the pods that need them.
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.CONFIG_UNAVAILABLE,
        why="A secret or config map, or a key in one, that the container's environment names is not there.",
        url=f"{_DOCS}/concepts/configuration/secret/#restriction-secret-must-exist",
    ),
    Cause(
        name="root-user-refused",
        applies=both(_NOT_CONFIGURED, container_says(r"runasnonroot|non-root")),
        category=StateChangeCategory.APPLICATION,
        reason=StateChangeReason.ADMISSION_REFUSED,
        why="The image would run as root, or does not say as whom, and the pod forbids that.",
        url=f"{_DOCS}/tasks/configure-pod-container/security-context/",
    ),
    Cause(
        name="user-not-in-image",
        applies=both(
            NOT_STARTED,
            # containerd (pkg/oci/spec_opts.go), and runc and CRI-O (moby/sys/user)
            container_says(r": no (users|groups) found|no matching entries in (passwd|group) file"),
        ),
        category=StateChangeCategory.APPLICATION,
        reason=StateChangeReason.START_ERROR,
        why="The container is to run as a user, or in a group, which its image does not have.",
        url=f"{_DOCS}/tasks/configure-pod-container/security-context/",
    ),
    Cause(
        name="wrong-architecture",
        applies=either(_is_not_for_the_node, both(NOT_STARTED, container_says(r"exec format error"))),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.START_ERROR,
        why="The node cannot execute the container's program: the image is for another processor, which "
        "another node may have.",
        url=f"{_DOCS}/concepts/containers/images/#multi-architecture-images-with-image-indexes",
        launch_only=True,
    ),
    Cause(
        name="runtime-failed",
        applies=both(NOT_STARTED, container_says(_OF_ANOTHER_PROGRAM)),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.START_ERROR,
        why="A program of the node's container runtime is missing or fails, whatever the container's own is.",
        url=f"{_DOCS}/setup/production-environment/container-runtimes/",
        node_bound=True,
    ),
    Cause(
        name="root-file-system-failed",
        applies=both(NOT_STARTED, container_says(_OF_ROOT_FILE_SYSTEM)),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.START_ERROR,
        why="The node could not mount the container's root file system, which is made of its image.",
        url=f"{_DOCS}/tasks/debug/debug-cluster/crictl/",
        node_bound=True,
    ),
    Cause(
        name="command-not-runnable",
        applies=both(
            NOT_STARTED,
            # runc quotes the command if it has looked for it, crun does not.
            container_says(
                rf"{_EXEC}|process: exec /|executable file .*not found|open executable|no command specified"
            ),
        ),
        category=StateChangeCategory.APPLICATION,
        reason=StateChangeReason.START_ERROR,
        why="The container's command is not in its image, or is not one that can be run.",
        url=f"{_DOCS}/tasks/inject-data-application/define-command-argument-container/",
    ),
    Cause(
        name="volume-unavailable",
        applies=both(
            either(
                either(_NOT_CONFIGURED, NOT_STARTED),
                container_reason("ContainerCreating", "PodInitializing"),
            ),
            container_says(
                r"\b(sub ?path|volume ?mounts?|mountvolume|mount(ing|ed)?|volumes?|imagevolumemountfailed)\b"
            ),
        ),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.VOLUME_UNAVAILABLE,
        why="A volume, or a file or folder in one, could not be mounted into the container.",
        url=f"{_DOCS}/concepts/storage/volumes/",
        node_bound=True,
    ),
    Cause(
        name="config-refused",
        applies=_NOT_CONFIGURED,
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.CONFIG_UNAVAILABLE,
        why="The kubelet could not put the container's configuration together.",
        url=f"{_DOCS}/concepts/configuration/configmap/",
    ),
    Cause(
        name="create-container-error",
        applies=container_reason("CreateContainerError"),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.START_ERROR,
        why="The node's container runtime could not create the container.",
        url=_STATES,
        node_bound=True,
    ),
    Cause(
        name="run-container-error",
        applies=container_reason("RunContainerError"),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.START_ERROR,
        why="The node's container runtime created the container and could not start it.",
        url=_STATES,
        node_bound=True,
    ),
    Cause(
        name="start-error",
        applies=container_reason("StartError"),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.START_ERROR,
        why="The container's process could not be started, and nothing says that its command is to blame.",
        url=_STATES,
        node_bound=True,
    ),
    Cause(
        name="container-cannot-run",
        applies=container_reason("ContainerCannotRun"),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.START_ERROR,
        why="Docker could not start the container's process, and nothing says that its command is to blame.",
        url=_STATES,
        node_bound=True,
    ),
    Cause(
        name="post-start-hook-failed",
        applies=container_reason("PostStartHookError"),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.START_ERROR,
        why="The container's postStart hook, which is a part of the pod template, failed.",
        url=f"{_DOCS}/concepts/containers/container-lifecycle-hooks/",
    ),
    Cause(
        name="start-not-prepared",
        # pkg/kubelet/kuberuntime/kuberuntime_container.go: steps of the kubelet's own
        applies=container_reason("PreCreateHookError", "PreStartHookError"),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.START_ERROR,
        why="The kubelet could not give the container the processors, memory or devices meant for it.",
        url=f"{_DOCS}/concepts/policy/node-resource-managers/",
        node_bound=True,
    ),
    Cause(
        name="sandbox-not-created",
        applies=container_reason("CreatePodSandboxError", "ConfigPodSandboxError"),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.START_ERROR,
        why="The node could not set up the pod's sandbox, most often its network.",
        url=_STATES,
        node_bound=True,
    ),
    Cause(
        name="container-not-changed",
        # pkg/kubelet/container/sync_result.go
        applies=container_reason(
            "KillContainerError", "KillPodSandboxError", "RemoveContainerError", "ResizePodInPlaceError"
        ),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.START_ERROR,
        why="The node's container runtime could not end, remove or resize a container of the pod.",
        url=_STATES,
        node_bound=True,
    ),
    Cause(
        name="crash-loop",
        applies=container_reason("CrashLoopBackOff"),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.START_ERROR,
        why="A container that is started whenever it has ended, as native sidecars are, ends each time.",
        url=f"{_DOCS}/concepts/workloads/pods/sidecar-containers/",
    ),
    Cause(
        name="init-container-running",
        applies=_waits_for_init,
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.UNKNOWN,
        why="An init container still runs, and the worker has to wait for its end.",
        url=f"{_DOCS}/concepts/workloads/pods/init-containers/#detailed-behavior",
    ),
    Cause(
        name="container-creating",
        applies=container_reason("ContainerCreating", "PodInitializing"),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.UNKNOWN,
        why="The node still prepares the pod: its network, volumes or images; the pod's events say which.",
        url=f"{_DOCS}/tasks/debug/debug-application/debug-pods/#my-pod-stays-waiting",
        node_bound=True,
    ),
)
