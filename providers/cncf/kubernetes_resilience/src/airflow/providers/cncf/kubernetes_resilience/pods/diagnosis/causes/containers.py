# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Rows about the container that decides, whatever else is known of its pod."""

from __future__ import annotations

from signal import SIGKILL

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes.beginnings import BEGINNINGS
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes.cause import (
    NOT_STARTED,
    Cause,
    Predicate,
    both,
    container_failed,
    container_message,
    container_reason,
    container_says,
    either,
    is_container,
    of_container,
    said,
)
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    SILENT_EXIT,
    TOKEN_EXPIRED,
    UNREPORTED_END,
    PodFailure,
)
from airflow.providers.cncf.kubernetes_resilience.pods.facts import (
    STOP_SIGNALS,
    ContainerState,
    ContainerType,
)
from airflow.providers.cncf.kubernetes_resilience.pods.images import without_name
from airflow_resilience.context import StateChangeCategory, StateChangeReason
from airflow_resilience.outages import DependencyKind

_DOCS = "https://kubernetes.io/docs"
_AIRFLOW = "https://airflow.apache.org/docs/apache-airflow/stable"
_MEMORY = f"{_DOCS}/tasks/configure-pod-container/assign-memory-resource/#exceed-a-container-s-memory-limit"
_IMAGES = f"{_DOCS}/concepts/containers/images"
_STATES = f"{_DOCS}/concepts/workloads/pods/pod-lifecycle/#container-states"
_FAILURE = f"{_DOCS}/tasks/debug/debug-application/determine-reason-pod-failure/"
_SIDECARS = f"{_DOCS}/concepts/workloads/pods/sidecar-containers/"
_TERMINATION = f"{_DOCS}/concepts/workloads/pods/pod-lifecycle/#pod-termination"

_OUT_OF_MEMORY = either(
    container_reason("OOMKilled"),
    # runc (libcontainer), crun, CRI-O and Docker, of a limit that is too low to start with.
    both(
        NOT_STARTED,
        container_says(
            r"init was oom-killed|unable to set memory limit|memory limit (\d+|could be) too low"
            r"|minimum memory limit|memory\.limit_in_bytes: device or resource busy"
        ),
    ),
)


def _words_of_node(failure: PodFailure) -> str:
    """Return the message of the container that decides without the name of its image."""
    return without_name(container_message(failure), failure.container.image if failure.container else None)


def _node_says(pattern: str) -> Predicate:
    return said(_words_of_node, pattern)


_NOT_CREATED = container_reason("CreateContainerError")

_NOT_PULLED = container_reason("ErrImagePull", "ImagePullBackOff")
# Only later versions of Kubernetes repeat the runtime's message in that of an ImagePullBackOff. Without it,
# the general row applies.

_REGISTRY_IN_TROUBLE = _node_says(
    # Of Go, and of the kernel: net, and errors of connect(2)
    r"timeout|deadline exceeded|connection (re(fused|set)|timed out|lost)|no such host|server misbehaving"
    r"|name resolution|no route to host|host is down|network is unreachable|(:|unexpected) EOF"
    r"|stream error|goaway|closed network connection|broken pipe"
    # Of containerd and Docker, and of CRI-O: docker/docker_client.go and docker/errors.go of containers/image
    r"|too ?many ?requests|service unavailable|bad gateway|unexpected (http )?(status|code).*: 5\d\d"
    r"|status ?code( from registry|:| \[[^\]]*\]:) 5\d\d|parsing http 5\d\d response"
)

_OF_DISK = (
    # Of the kernel, and of containers/storage, which unpacks while it pulls
    r"no space left on device|disk quota exceeded|read-only file system|input/output error"
    r"|structure needs cleaning|overlay mount|layer not known"
)

_HAS_LOST_IMAGE = both(
    _NOT_CREATED,
    # containerd, internal/cri/server/container_create.go, CRI-O with containers/storage, and Docker:
    # a container is created after its image has been pulled, or found on the node.
    _node_says(
        r"failed to (resolve|get) image.*not found|image not known|not resolve to an image id|no such image"
    ),
)

_NOT_CONFIGURED = container_reason("CreateContainerConfigError")

_EXEC = r'exec: \\*"'
"""The executed command follows. Logs of CRI-O, and those of old runtimes, quote a quotation."""


def _words_of_runtime(failure: PodFailure) -> str:
    """Return what the runtime says before the command, which a Dag's author may have chosen."""
    return container_message(failure).partition("exec: ")[0].partition("executable ")[0]


def _runtime_says(pattern: str) -> Predicate:
    return said(_words_of_runtime, pattern)


_RUNTIME_BROKEN = _runtime_says(
    # containerd (cmd/containerd-shim-runc-v2/process/init.go): the runtime could not even write its log
    r"unable to retrieve oci runtime error|did not terminate successfully|ttrpc: closed|timing out in cri-o"
    r"|nvidia-container-cli[\w.]*: mount error|fork/exec "
    # A runtime that a runtime class names, and the node has not
    r"|binary not installed|runtime (name|handler|specified)|no runtime for"
)

_OF_ANOTHER_PROGRAM = (
    rf'{_EXEC}([^"\\]*/)?(apparmor_parser|containerd-shim[\w-]*|[\w-]+-container-runtime[\w.-]*|kata-runtime'
    r'|runc|crun|runsc|conmon|fuse-overlayfs)\\*"'
    rf"|\bhook\b.*{_EXEC}"
)

_SOCKET_AWAY = _runtime_says(r"\bdial unix|desc = error reading from server|docker daemon")
"""The kubelet cannot talk to the node's container runtime, whatever was asked for."""

_OF_ROOT_FILE_SYSTEM = (
    # containerd (cmd/containerd-shim-runc-v2), its snapshots, and CRI-O (containers/storage, drivers/overlay)
    r"mount rootfs|rootfs component|overlay mount|mount(ing)? overlay|snapshot .*(does not exist|not found)"
    r"|layer not known|failed to mount container|mount callback failed|/tmpmounts/|/snapshots/\d+/"
    r"|missing parent|preparing rootfs|process inside rootfs"
    # Mounts of the runtime's own, which have no path: proc, sysfs, cgroup, overlay
    r'|\bmount(ing)? \\*["`][^"`/\\]+\\*["`] to\b'
)


_WORKER_FAILED = container_failed(ContainerType.WORKER)


def _killed_by(*signals: int) -> Predicate:
    return of_container(lambda container: container.killed_by in signals)


def _has_untold_end(failure: PodFailure) -> bool:
    """Return whether the pod has failed, and no kubelet has said how its worker ended."""
    worker = failure.facts.worker
    if failure.facts.phase != "Failed" or (worker and worker.state is ContainerState.TERMINATED):
        return False
    return failure.container is None or not _worker_never_started(failure)


def _worker_never_started(failure: PodFailure) -> bool:
    worker = failure.facts.worker
    return worker is None or not worker.started


CONTAINERS = (
    # A container was killed for want of memory.
    #
    # ``OOMKilled`` does not say whose: the kernel counts kills for a container's own limit and those for want
    # of memory on the node as the same (``oom_kill`` of ``memory.events``). A container without a limit
    # cannot have exceeded one.
    #
    # .. seealso:: https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
    Cause(
        name="node-out-of-memory",
        applies=both(
            _OUT_OF_MEMORY,
            of_container(lambda container: container.unlimited_memory),
        ),
        reason=StateChangeReason.RESOURCE_EXHAUSTION,
        why="A container that has no memory limit was killed for want of memory, of which its node had no "
        "more.",
        url=f"{_DOCS}/concepts/scheduling-eviction/node-pressure-eviction/#node-out-of-memory-behavior",
    ),
    Cause(
        name="worker-out-of-memory",
        applies=both(_OUT_OF_MEMORY, is_container(ContainerType.WORKER)),
        category=StateChangeCategory.APPLICATION,
        reason=StateChangeReason.RESOURCE_EXHAUSTION,
        why="The worker needed more memory than its own limit allows, and most likely will again.",
        url=_MEMORY,
    ),
    Cause(
        name="init-container-out-of-memory",
        applies=both(_OUT_OF_MEMORY, is_container(ContainerType.INIT)),
        # Its limits are in the pod template, which belongs to the deployment. The task has not run.
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.RESOURCE_EXHAUSTION,
        why="An init container needed more memory than its limit allows, before anything of the task ran.",
        url=_MEMORY,
    ),
    Cause(
        name="sidecar-out-of-memory",
        applies=_OUT_OF_MEMORY,
        reason=StateChangeReason.RESOURCE_EXHAUSTION,
        why="A sidecar needed more memory than its limit allows.",
        url=_MEMORY,
    ),
    # The node, whatever the container waits for.
    Cause(
        name="runtime-failed",
        applies=either(
            both(NOT_STARTED, either(_RUNTIME_BROKEN, container_says(_OF_ANOTHER_PROGRAM))),
            both(either(NOT_STARTED, _NOT_PULLED), _SOCKET_AWAY),
        ),
        reason=StateChangeReason.START_ERROR,
        why="A program of the node's container runtime is missing or fails, whatever the container's own is.",
        url=f"{_DOCS}/setup/production-environment/container-runtimes/",
        node_bound=True,
    ),
    # A container waits for its image.
    Cause(
        name="image-name-invalid",
        applies=either(
            container_reason("InvalidImageName"),
            # CRI-O, which does not guess a registry: containers/image, pkg/shortnames
            both(
                either(_NOT_PULLED, container_reason("ImageInspectError")),
                _node_says(r"short.name (mode is enforcing|\S+ did not resolve)"),
            ),
        ),
        category=StateChangeCategory.APPLICATION,
        reason=StateChangeReason.IMAGE_UNAVAILABLE,
        why="The image's name is not one, or names no registry where the node wants one.",
        url=f"{_IMAGES}/#image-names",
    ),
    Cause(
        name="image-not-on-node",
        applies=container_reason("ErrImageNeverPull"),
        reason=StateChangeReason.IMAGE_UNAVAILABLE,
        why="The image may only be one that the node has already, and this node has not; another may.",
        url=f"{_IMAGES}/#pre-pulled-images",
    ),
    Cause(
        name="image-signature-refused",
        applies=either(
            container_reason("SignatureValidationFailed"),
            # CRI-O before it had a reason for that (containers/image, signature/policy_eval.go), the
            # verifiers of containerd (core/transfer/local/pull.go), and Harbor
            both(
                _NOT_PULLED,
                _node_says(
                    r"source image rejected|signature (was required|validation)|verifier .*blocked pull of"
                    r"|image is not signed"
                ),
            ),
        ),
        category=StateChangeCategory.APPLICATION,
        reason=StateChangeReason.ADMISSION_REFUSED,
        why="The image is not signed as the node's policy demands.",
        url=f"{_IMAGES}/",
    ),
    Cause(
        name="image-pull-denied",
        applies=both(
            _NOT_PULLED,
            _node_says(
                r"access denied|access to the resource is denied|unauthorized|authorization failed"
                r"|403 forbidden|no basic auth|(\A|[:=] )denied: "
                r"|(status ?code( from registry|:)|parsing http) 40[13]\b"
            ),
        ),
        # Not the author's: the secrets for registries belong to the deployment, and tokens are renewed.
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.IMAGE_UNAVAILABLE,
        why="The registry did not let the node have the image: a secret is missing or has expired.",
        url=f"{_IMAGES}/#using-a-private-registry",
    ),
    Cause(
        name="image-of-another-platform",
        applies=both(
            _NOT_PULLED,
            # The words of containerd, Docker and CRI-O: core/images/image.go, distribution/pull_v2.go, and
            # internal/manifest/oci_index.go of containers/image
            _node_says(
                r"no match for platform|no matching manifest for|no image found in .* for architecture"
                r"|not match the specified platform|cannot be used on this platform"
            ),
        ),
        reason=StateChangeReason.IMAGE_UNAVAILABLE,
        why="The image has no variant for the platform of this node; that of another node may be another.",
        url=f"{_IMAGES}/#multi-architecture-images-with-image-indexes",
    ),
    Cause(
        name="image-store-failed",
        applies=either(
            both(_NOT_PULLED, _node_says(_OF_DISK)),
            _HAS_LOST_IMAGE,
            both(
                either(_NOT_PULLED, _NOT_CREATED),
                # containerd, core/diff/apply, core/unpack and client, and Docker. Content that is not found
                # had been pulled, or is a part of the node.
                _node_says(
                    r"failed to (extract layer|unpack image)|error unpacking image|failed to register layer"
                    r"|content store|content digest .*not found|blob not found|extraction snapshot"
                    r"|\bsnapshotter \S+ was not found|\blease does not exist"
                ),
            ),
        ),
        reason=StateChangeReason.IMAGE_UNAVAILABLE,
        why="The node could not unpack the image that it had pulled, or has lost it: its image store is "
        "damaged or full.",
        url=f"{_DOCS}/tasks/debug/debug-cluster/crictl/",
        node_bound=True,
    ),
    Cause(
        name="image-not-found",
        applies=both(
            _NOT_PULLED,
            _node_says(
                # The last three are what registries answer, which CRI-O shows: NAME_UNKNOWN, and the words of
                # Harbor and of Quay
                r"manifest unknown|code = notfound|: not found|repository .*not exist"
                r"|name unknown|\b(artifact|repository) \S+ not found|\btag \S+ was deleted or has expired"
            ),
        ),
        category=StateChangeCategory.APPLICATION,
        reason=StateChangeReason.IMAGE_UNAVAILABLE,
        why="The registry answered that it has no such image.",
        url=f"{_IMAGES}/#image-names",
    ),
    Cause(
        name="registry-unavailable",
        applies=either(container_reason("RegistryUnavailable"), both(_NOT_PULLED, _REGISTRY_IN_TROUBLE)),
        reason=StateChangeReason.IMAGE_UNAVAILABLE,
        why="The registry could not be reached, did not answer in time, or had too much to do.",
        url=f"{_IMAGES}/#imagepullbackoff",
        dependency=DependencyKind.REGISTRY,
    ),
    Cause(
        name="image-pull-failed",
        applies=_NOT_PULLED,
        reason=StateChangeReason.IMAGE_UNAVAILABLE,
        why="The image could not be pulled, and nothing says that it does not exist.",
        url=f"{_IMAGES}/#imagepullbackoff",
    ),
    Cause(
        name="image-inspection-failed",
        applies=container_reason("ImageInspectError"),
        reason=StateChangeReason.IMAGE_UNAVAILABLE,
        why="The node's container runtime could not read an image that it has.",
        url=f"{_DOCS}/tasks/debug/debug-cluster/crictl/",
        node_bound=True,
    ),
    # A container cannot be created or started, or still waits for it.
    Cause(
        name="config-missing",
        applies=both(_NOT_CONFIGURED, container_says(r"(secret|configmap) .*not found|couldn't find key")),
        # The object may still come: many clusters copy secrets from elsewhere, after the pods that need them.
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
        applies=either(
            of_container(lambda container: container.is_not_executable),
            both(NOT_STARTED, container_says(r"exec format error")),
        ),
        reason=StateChangeReason.START_ERROR,
        why="The node cannot execute the container's program: the image is for another processor, which "
        "another node may have.",
        url=f"{_DOCS}/concepts/containers/images/#multi-architecture-images-with-image-indexes",
        launch_only=True,
    ),
    Cause(
        name="root-file-system-failed",
        applies=both(NOT_STARTED, container_says(_OF_ROOT_FILE_SYSTEM)),
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
                # Of Kata's agent, and of gVisor
                r"|the file \S+ was not found|error finding executable"
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
            either(_NOT_CONFIGURED, NOT_STARTED, container_reason("ContainerCreating", "PodInitializing")),
            container_says(
                # Not within a name of a pod, which is made of those of its Dag and its task
                r"(^|[^\w-])(sub ?path|volume ?mounts?|mountvolume|mount(ing|ed)?|volumes?"
                r"|imagevolumemountfailed)\b"
            ),
        ),
        reason=StateChangeReason.VOLUME_UNAVAILABLE,
        why="A volume, or a file or folder in one, could not be mounted into the container.",
        url=f"{_DOCS}/concepts/storage/volumes/",
        node_bound=True,
    ),
    Cause(
        name="config-refused",
        applies=_NOT_CONFIGURED,
        reason=StateChangeReason.CONFIG_UNAVAILABLE,
        why="The kubelet could not put the container's configuration together.",
        url=f"{_DOCS}/concepts/configuration/configmap/",
    ),
    Cause(
        name="create-container-error",
        applies=container_reason("CreateContainerError"),
        reason=StateChangeReason.START_ERROR,
        why="The node's container runtime could not create the container.",
        url=_STATES,
        node_bound=True,
    ),
    Cause(
        name="run-container-error",
        applies=container_reason("RunContainerError"),
        reason=StateChangeReason.START_ERROR,
        why="The node's container runtime created the container and could not start it.",
        url=_STATES,
        node_bound=True,
    ),
    Cause(
        name="start-error",
        applies=container_reason("StartError"),
        reason=StateChangeReason.START_ERROR,
        why="The container's process could not be started, and nothing says that its command is to blame.",
        url=_STATES,
        node_bound=True,
    ),
    Cause(
        name="container-cannot-run",
        applies=container_reason("ContainerCannotRun"),
        reason=StateChangeReason.START_ERROR,
        why="Docker could not start the container's process, and nothing says that its command is to blame.",
        url=_STATES,
        node_bound=True,
    ),
    Cause(
        name="post-start-hook-failed",
        applies=container_reason("PostStartHookError"),
        reason=StateChangeReason.START_ERROR,
        why="The container's postStart hook, which is a part of the pod template, failed.",
        url=f"{_DOCS}/concepts/containers/container-lifecycle-hooks/",
    ),
    Cause(
        name="start-not-prepared",
        # pkg/kubelet/kuberuntime/kuberuntime_container.go: steps of the kubelet's own
        applies=container_reason("PreCreateHookError", "PreStartHookError"),
        reason=StateChangeReason.START_ERROR,
        why="The kubelet could not give the container the processors, memory or devices meant for it.",
        url=f"{_DOCS}/concepts/policy/node-resource-managers/",
        node_bound=True,
    ),
    Cause(
        name="sandbox-not-created",
        applies=container_reason("CreatePodSandboxError", "ConfigPodSandboxError"),
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
        reason=StateChangeReason.START_ERROR,
        why="The node's container runtime could not end, remove or resize a container of the pod.",
        url=_STATES,
        node_bound=True,
    ),
    Cause(
        name="crash-loop",
        applies=container_reason("CrashLoopBackOff"),
        reason=StateChangeReason.START_ERROR,
        why="A container that is started whenever it has ended, as native sidecars are, ends each time.",
        url=f"{_DOCS}/concepts/workloads/pods/sidecar-containers/",
    ),
    Cause(
        name="init-container-running",
        applies=both(
            is_container(ContainerType.INIT),
            of_container(lambda container: container.state is ContainerState.RUNNING),
        ),
        reason=StateChangeReason.UNKNOWN,
        why="An init container still runs, and the worker has to wait for its end.",
        url=f"{_DOCS}/concepts/workloads/pods/init-containers/#detailed-behavior",
    ),
    Cause(
        name="container-creating",
        applies=container_reason("ContainerCreating", "PodInitializing"),
        reason=StateChangeReason.UNKNOWN,
        why="The node still prepares the pod: its network, volumes or images; the pod's events say which.",
        url=f"{_DOCS}/tasks/debug/debug-application/debug-pods/#my-pod-stays-waiting",
        node_bound=True,
    ),
    # A container ended without a cause from outside of the pod.
    Cause(
        name="container-status-unknown",
        # The kubelet's word, and containerd's for a container whose process it does not find any more:
        # internal/cri/server; and CRI-O's exit code without a word: server/container_status.go
        applies=either(
            container_reason("ContainerStatusUnknown", "Unknown"),
            of_container(lambda container: container.has_lost_exit_code),
            _has_untold_end,
        ),
        reason=StateChangeReason.WORKER_LOST,
        why="The node lost track of the container, as after a crash or a restart of it or of its runtime.",
        url=_STATES,
        node_bound=True,
    ),
    Cause(
        name="container-deadline-exceeded",
        applies=container_reason("DeadlineExceeded"),
        category=StateChangeCategory.TIMEOUT,
        reason=StateChangeReason.EXECUTION_TIMEOUT,
        why="The container was ended because a limit of time was over.",
        url=f"{_DOCS}/reference/kubernetes-api/workload-resources/pod-v1/#lifecycle",
    ),
    Cause(
        name="init-container-failed",
        applies=container_failed(ContainerType.INIT),
        reason=StateChangeReason.START_ERROR,
        why="An init container failed, so the worker was never started; its log says why.",
        url=f"{_DOCS}/concepts/workloads/pods/init-containers/#detailed-behavior",
    ),
    Cause(
        name="sidecar-failed-before-worker",
        applies=both(container_failed(ContainerType.SIDECAR), _worker_never_started),
        reason=StateChangeReason.START_ERROR,
        why="A sidecar failed before the worker had been started.",
        url=_SIDECARS,
    ),
    Cause(
        name="sidecar-failed",
        applies=container_failed(ContainerType.SIDECAR),
        reason=StateChangeReason.UNKNOWN,
        why="The pod failed for a sidecar; the worker beside it did not.",
        url=_SIDECARS,
    ),
    Cause(
        name="worker-forbidden-system-call",
        # CRI-O: server/container_status.go
        applies=both(_WORKER_FAILED, container_reason("seccomp killed")),
        category=StateChangeCategory.APPLICATION,
        reason=StateChangeReason.UNKNOWN,
        why="The worker made a system call that the pod's seccomp profile forbids.",
        url=f"{_DOCS}/tutorials/security/seccomp/",
    ),
    Cause(
        name="worker-terminated",
        applies=both(_WORKER_FAILED, _killed_by(*STOP_SIGNALS)),
        reason=StateChangeReason.WORKER_TERMINATION,
        why="The worker was told to go (SIGTERM, or the stop signal of its image), and neither the pod nor a "
        "condition says by whom; a node that goes down without its kubelet's knowledge looks like that.",
        url=_TERMINATION,
    ),
    Cause(
        name="worker-killed",
        applies=both(_WORKER_FAILED, _killed_by(SIGKILL)),
        reason=StateChangeReason.WORKER_LOST,
        why="The worker was killed (SIGKILL) from outside, and nobody says by whom; "
        "a node that is out of memory looks like that.",
        url=_TERMINATION,
    ),
    Cause(
        name="worker-crashed",
        applies=both(_WORKER_FAILED, of_container(lambda container: container.killed_by is not None)),
        category=StateChangeCategory.APPLICATION,
        reason=StateChangeReason.UNKNOWN,
        why="The worker's process ended by a signal that the platform does not send: it crashed, as by a "
        "segmentation fault, or a program in its container sent one, such as SIGUSR2.",
        url=_FAILURE,
    ),
    Cause(
        name="worker-token-expired",
        applies=lambda failure: failure.reason == TOKEN_EXPIRED,
        reason=StateChangeReason.START_ERROR,
        why="The worker could not report that the task starts: its pod had taken longer to start than its "
        "token was good for.",
        url=f"{_DOCS}/concepts/workloads/pods/pod-lifecycle/#pod-phase",
    ),
    *BEGINNINGS,
    Cause(
        name="worker-failed",
        applies=_WORKER_FAILED,
        category=StateChangeCategory.APPLICATION,
        reason=StateChangeReason.UNKNOWN,
        why="The worker's process ended by itself, and not well; its log says why.",
        url=_FAILURE,
    ),
    Cause(
        name="ended-without-report",
        applies=lambda failure: failure.reason == UNREPORTED_END,
        category=StateChangeCategory.APPLICATION,
        reason=StateChangeReason.UNKNOWN,
        why="The worker ended in good order and did not report how its task had ended: the process that ran "
        "the task was killed alone, for the memory that it took or by somebody.",
        url=f"{_AIRFLOW}/core-concepts/tasks.html#task-instance-heartbeat-timeout",
    ),
    Cause(
        name="exited-without-starting",
        applies=lambda failure: failure.reason == SILENT_EXIT,
        category=StateChangeCategory.APPLICATION,
        reason=StateChangeReason.START_ERROR,
        why="The worker ended well without ever reporting that the task had started; "
        "an image whose entry point does not run what it is given does that.",
        url=f"{_DOCS}/tasks/inject-data-application/define-command-argument-container/",
    ),
)
