# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Which row of the table each way to die leads to, and what is noted about it."""

from __future__ import annotations

import re
from signal import SIGPIPE, SIGSEGV, SIGUSR1, SIGUSR2

import pytest

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes import TABLE, UNKNOWN_CAUSE
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes.pods import REFUSALS
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.classify import classify
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    HEARTBEAT_TIMEOUT,
    OWN_REASONS,
    PodFailure,
    find_failure,
    find_obstacle,
    find_unreported_end,
)
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.last_words import MESSAGE_LIMIT
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.vocabulary import VOCABULARY
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts, PodRef, read_pod
from airflow_resilience.context import ContextSource, MetadataKey
from airflow_resilience.context import StateChangeCategory as Category
from airflow_resilience.context import StateChangeReason as Reason
from airflow_resilience.retry_policy.evidence import Phase

from ....support import manifests as m
from ....support.pod_fixtures import ALL, PodFixture, read_fixture, read_worker_log

ROWS = {cause.name: cause for cause in TABLE}
pods = pytest.mark.parametrize("pod", ALL, ids=lambda pod: pod.name)


def failure_of(manifest: m.Json) -> PodFailure:
    failure = find_failure(read_pod(manifest))
    assert failure is not None
    return failure


def row_of(failure: PodFailure | None, phase: Phase = Phase.LAUNCH) -> str:
    assert failure is not None
    return classify(failure, phase=phase).cause.name


# -------------------------------------------------------------------------------------------------- the table


@pods
def test_pod_is_explained_by_the_row_that_its_file_names(pod: PodFixture) -> None:
    container = pod.failure.container
    assert row_of(pod.failure, pod.phase) == pod.expects
    assert (container.name if container else None) == pod.container


def test_every_row_is_reached_by_a_pod_and_none_is_hidden_by_an_earlier_one() -> None:
    assert {row_of(pod.failure, pod.phase) for pod in ALL} == set(ROWS)


def test_names_are_unique_and_can_be_tags_of_metrics() -> None:
    assert len(ROWS) == len(TABLE)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", name) for name in ROWS)


@pytest.mark.parametrize("cause", TABLE, ids=lambda cause: cause.name)
def test_row_says_why_in_one_sentence_and_where_that_is_documented(cause: object) -> None:
    row = ROWS[getattr(cause, "name", "")]
    assert re.fullmatch(r"[A-Z\d][^\n]+\.", row.why)
    assert ". " not in row.why
    hosts = r"(kubernetes|virtual-kubelet)\.io|kueue\.sigs\.k8s\.io|airflow\.apache\.org"
    assert re.match(rf"https://({hosts})/docs/\S+$", row.url)


def test_last_row_is_for_everything_else() -> None:
    assert TABLE[-1] is UNKNOWN_CAUSE
    assert UNKNOWN_CAUSE.applies(PodFailure("", PodFacts(PodRef("", "", ""), {}, {})))


CLASSES = {
    "evicted-by-device-taint": (Category.INFRASTRUCTURE, Reason.WORKER_TERMINATION),
    "evicted-by-api": (Category.INFRASTRUCTURE, Reason.WORKER_TERMINATION),
    "evicted-by-kueue": (Category.INFRASTRUCTURE, Reason.WORKER_TERMINATION),
    "kueue-time-exceeded": (Category.TIMEOUT, Reason.EXECUTION_TIMEOUT),
    "node-gone": (Category.INFRASTRUCTURE, Reason.WORKER_LOST),
    "evicted-by-node-pressure": (Category.INFRASTRUCTURE, Reason.RESOURCE_EXHAUSTION),
    "evicted-over-own-limit": (Category.APPLICATION, Reason.RESOURCE_EXHAUSTION),
    "refused-out-of-resources": (Category.INFRASTRUCTURE, Reason.ADMISSION_REFUSED),
    "refused-by-kubelet": (Category.INFRASTRUCTURE, Reason.ADMISSION_REFUSED),
    "not-admitted-again": (Category.INFRASTRUCTURE, Reason.WORKER_LOST),
    "active-deadline-exceeded": (Category.TIMEOUT, Reason.EXECUTION_TIMEOUT),
    "deleted": (Category.INFRASTRUCTURE, Reason.WORKER_TERMINATION),
    "vanished": (Category.INFRASTRUCTURE, Reason.WORKER_LOST),
    "unschedulable-volume": (Category.INFRASTRUCTURE, Reason.VOLUME_UNAVAILABLE),
    "image-name-invalid": (Category.APPLICATION, Reason.IMAGE_UNAVAILABLE),
    "image-signature-refused": (Category.APPLICATION, Reason.ADMISSION_REFUSED),
    "image-of-another-platform": (Category.INFRASTRUCTURE, Reason.IMAGE_UNAVAILABLE),
    "image-store-failed": (Category.INFRASTRUCTURE, Reason.IMAGE_UNAVAILABLE),
    "wrong-architecture": (Category.INFRASTRUCTURE, Reason.START_ERROR),
    "runtime-failed": (Category.INFRASTRUCTURE, Reason.START_ERROR),
    "root-file-system-failed": (Category.INFRASTRUCTURE, Reason.START_ERROR),
    "worker-forbidden-system-call": (Category.APPLICATION, Reason.UNKNOWN),
    "image-not-on-node": (Category.INFRASTRUCTURE, Reason.IMAGE_UNAVAILABLE),
    "registry-unavailable": (Category.INFRASTRUCTURE, Reason.IMAGE_UNAVAILABLE),
    "service-account-missing": (Category.INFRASTRUCTURE, Reason.CONFIG_UNAVAILABLE),
    "config-missing": (Category.INFRASTRUCTURE, Reason.CONFIG_UNAVAILABLE),
    "user-not-in-image": (Category.APPLICATION, Reason.START_ERROR),
    "command-not-runnable": (Category.APPLICATION, Reason.START_ERROR),
    "node-out-of-memory": (Category.INFRASTRUCTURE, Reason.RESOURCE_EXHAUSTION),
    "worker-out-of-memory": (Category.APPLICATION, Reason.RESOURCE_EXHAUSTION),
    "init-container-out-of-memory": (Category.INFRASTRUCTURE, Reason.RESOURCE_EXHAUSTION),
    "init-container-failed": (Category.INFRASTRUCTURE, Reason.START_ERROR),
    "worker-terminated": (Category.INFRASTRUCTURE, Reason.WORKER_TERMINATION),
    "airflow-api-unreachable": (Category.INFRASTRUCTURE, Reason.DB_CONNECTION_ERROR),
    "worker-import-failed": (Category.APPLICATION, Reason.START_ERROR),
    "worker-failed": (Category.APPLICATION, Reason.UNKNOWN),
    "unknown": (Category.INFRASTRUCTURE, Reason.UNKNOWN),
}


@pytest.mark.parametrize("name", CLASSES)
def test_row_has_the_category_and_reason_on_which_policies_rely(name: str) -> None:
    pod = next(pod for pod in ALL if pod.expects == name)
    context = classify(pod.failure, phase=pod.phase).context
    assert (context.category, context.reason) == CLASSES[name]
    assert context.source is ContextSource.EXECUTOR


# ----------------------------------------------------------------------------------------------- by message

IMAGE = "registry.example.com/data/airflow:3.1.2"
RUNC = "OCI runtime create failed: runc create failed: unable to start container process: "
QUOTED = (
    'container create failed: time="2026-03-01T08:00:09Z" level=error msg="runc create failed: '
    "unable to start container process: "
)
NO_RUNTIME = "OCI runtime create failed: unable to retrieve OCI runtime error (open log.json: no such file): "
SHIM = "failed to create containerd task: failed to start shim: "
SOURCE = f"initializing source docker://{IMAGE}: "
UNPACK = f'code = NotFound desc = failed to pull and unpack image "{IMAGE}": '
CONTAINERD = "failed to create containerd container: "
SOCKET = [
    'desc = "transport: dial unix /run/containerd/containerd.sock: connect: connection refused"',
    "rpc error: code = Unavailable desc = error reading from server: EOF",
    "Cannot connect to the Docker daemon at unix:///var/run/docker.sock",
]
"""The socket of the node's runtime, whose words are those of a registry's."""
BUSY = "failed to mount rootfs component &{overlay overlay [workdir=/a]}: device or resource busy"
MESSAGES = {
    ("ErrImagePull", "image-pull-denied"): [
        "pull access denied, repository does not exist or may require 'docker login'",
        f"reading manifest in {IMAGE}: unauthorized: authentication required",
        f"unexpected status from HEAD request to {IMAGE}: 403 Forbidden",
        f"{SOURCE}reading manifest: denied: User: arn:aws:sts::1 is not authorized to perform this",
        f'{SOURCE}reading manifest: denied: Permission "artifactregistry.downloadArtifacts" denied',
        f"{SOURCE}reading manifest: Requesting bearer token: invalid status code from registry 403",
        f'{SOURCE}reading manifest: StatusCode: 403, "<html>"',
        f'{SOURCE}reading manifest: StatusCode: 401, "<html>"',
        f"{SOURCE}reading manifest: error parsing HTTP 403 response body: invalid character '<'",
        "reading manifest 3.1 in registry.example.com: denied: requested access to the resource is denied",
    ],
    ("ErrImagePull", "image-not-found"): [
        f"{IMAGE}: not found",
        "manifest unknown",
        "example.com/nydus-snapshotter/release:1: not found",
        f"{SOURCE}reading manifest: name unknown: repository name not known to registry",
        f"{SOURCE}reading manifest: unknown: artifact data/airflow:3.1.2 not found",
        f"{SOURCE}reading manifest: unknown: repository data/airflow not found",
        f"{SOURCE}reading manifest: unknown: Tag 3.1.2 was deleted or has expired. To pull, revive",
    ],
    ("ErrImagePull", "registry-unavailable"): [
        f"unexpected status from HEAD request to {IMAGE}: 503 Service Unavailable",
        "toomanyrequests: You have reached your pull rate limit",
        "dial tcp 203.0.113.9:443: connect: connection refused",
        "dial tcp: lookup registry.example.com: no such host",
        "dial tcp: lookup registry.example.com on 169.254.20.10:53: server misbehaving",
        "net/http: TLS handshake timeout",
        "error parsing HTTP 502 response body: unexpected end",
        f"{SOURCE}reading manifest 3 in registry: received unexpected HTTP status: 500 Internal Server Error",
        (
            f"{SOURCE}unexpected http code: 500 (Internal Server Error), URL: "
            "https://registry.example.com/v2/auth"
        ),
        f"{SOURCE}pinging container registry: invalid status code from registry 500 (Internal Server Error)",
        f'{SOURCE}pinging container registry: StatusCode: 504, "<html>"',
        (
            f"{SOURCE}pulling from host registry failed with status code [manifests 3]: "
            "500 Internal Server Error"
        ),
        f"{SOURCE}dial tcp 203.0.113.9:443: connect: connection timed out",
        f"{SOURCE}dial tcp 203.0.113.9:443: connect: network is unreachable",
        f"{SOURCE}dial tcp 203.0.113.9:443: connect: host is down",
        f"{SOURCE}dial tcp: lookup registry.example.com: Temporary failure in name resolution",
        f"{SOURCE}httpReadSeeker: failed open: unexpected EOF",
        f"{SOURCE}reading manifest: stream error: stream ID 67; INTERNAL_ERROR; received from peer",
        f"{SOURCE}reading manifest: http2: server sent GOAWAY and closed the connection",
        f"{SOURCE}reading manifest: http2: client connection lost",
    ],
    ("ErrImagePull", "image-pull-failed"): [
        f'{SOURCE}reading manifest: StatusCode: 302, "500"',
        f"{SOURCE}reading manifest: open /var/lib/a: permission denied: unknown",
        None,
        f'failed to resolve image "{IMAGE}": {IMAGE} not found',
    ],
    ("ErrImagePull", "image-signature-refused"): [
        f"{SOURCE}reading manifest: denied: The image is not signed by cosign.",
        "Source image rejected: A signature was required, but no signature exists",
        f"{UNPACK}image verifier bindir blocked pull of {IMAGE} with digest sha256:7b for reason: rejected",
    ],
    ("ErrImagePull", "image-store-failed"): [
        "write layer.tar: no space left on device",
        "writing blob: storing blob to file: write /var/tmp/storage1/2: no space left on device",
        "committing the finished image: creating overlay mount to /a/merged: no such file or directory",
        "writing blob: adding layer: unpacking failed (exit status 1; output: layer not known)",
        "mkdir /var/lib/containerd/ingest: read-only file system",
        "failed to extract layer sha256:7d: failed to get reader from content store: digest: not found",
        (
            f'{UNPACK}failed to prepare extraction snapshot "extract-1 sha256:9": parent snapshot sha256:0 '
            "does not exist: not found"
        ),
        f"{UNPACK}failed to extract layer sha256:7d: failed to get reader from content store: not found",
        f"{UNPACK}snapshotter nydus was not found: not found",
        f"{UNPACK}failed to commit: lease does not exist: not found",
    ],
    ("ErrImagePull", "runtime-failed"): [*SOCKET],
    ("ErrImagePull", "image-of-another-platform"): [
        'image operating system "windows" cannot be used on this platform: not supported',
        f'failed to pull and unpack image "{IMAGE}": no match for platform in manifest: not found',
        "no matching manifest for linux/arm64/v8 in the manifest list entries",
        'choosing image instance: no image found in image index for architecture "arm64", variant "v8"',
        f"image with reference {IMAGE} was found but does not match the specified platform: wanted arm64",
    ],
    # CRI-O that does not guess a registry. The node's image store is in order.
    ("ErrImagePull", "image-name-invalid"): [
        f'short-name "{IMAGE}" did not resolve to an alias and no unqualified-search registries are defined'
    ],
    ("ImageInspectError", "image-name-invalid"): [
        f"short name mode is enforcing, but image name {IMAGE} returns ambiguous list"
    ],
    ("ImageInspectError", "image-inspection-failed"): ["layer not known", None],
    ("ImagePullBackOff", "runtime-failed"): [*SOCKET],
    ("ImagePullBackOff", "image-store-failed"): [
        "failed to get reader from content store: blob sha256:9e expected at /a: blob not found: not found"
    ],
    ("CreateContainerError", "runtime-failed"): [
        *SOCKET,
        # containerd, that could not even make the container: whatever it executes there is the node's
        (
            f'{CONTAINERD}get apparmor_parser version: exec: "apparmor_parser": executable file not found '
            "in $PATH"
        ),
        # The logs of CRI-O and of old runtimes quote a quotation
        rf'{QUOTED}error running hook #0: exec: \"/usr/bin/hook\": executable file not found"',
        # CRI-O that has too much to do, whichever stage it has come to
        (
            "Kubelet may be retrying requests that are timing out in CRI-O due to system load. Currently at "
            "stage container volume configuration: context deadline exceeded: error reserving ctr name"
        ),
    ],
    ("CreateContainerError", "create-container-error"): [
        'failed to reserve container name "base_load-volumes-x7k2_airflow_9f_0": name is reserved for "4d"',
        "context deadline exceeded",
    ],
    ("CreateContainerError", "root-file-system-failed"): [
        "mount overlay:/var/lib/containers/storage/overlay/a/merged, flags: 0x4: input/output error",
        "failed to mount container k8s_base(4d): readlink /var/lib/containers/storage/overlay: invalid",
        BUSY,
        "creating overlay mount to /var/lib/containers/storage/overlay/25/merged: invalid argument",
        "failed to stat parent: parent snapshot sha256:25 does not exist: not found",
        (
            f"{CONTAINERD}failed to stat parent: stat "
            "/io.containerd.snapshotter.v1.overlayfs/snapshots/2/fs: no file"
        ),
        (
            f"{CONTAINERD}mount callback failed on /tmpmounts/containerd-mount1: read /etc/passwd: "
            "input/output error"
        ),
        f"{CONTAINERD}failed to mount /tmpmounts/containerd-mount1: no such file or directory",
        f'{CONTAINERD}create snapshot: missing parent "k8s.io/2/sha256:50" bucket: not found',
    ],
    ("CreateContainerError", "command-not-runnable"): [
        "no command specified",
        rf'{QUOTED}exec: \"/entrypoint\": permission denied"',
        f'{QUOTED}exec /entrypoint: permission denied"',
    ],
    ("CreateContainerError", "volume-unavailable"): [
        'failed to apply OCI options: failed to mkdir: volume "dags" is read-only',
        "ImageVolumeMountFailed: no such file",
    ],
    ("CreateContainerError", "wrong-architecture"): [f"{RUNC}exec format error: unknown"],
    ("CreateContainerError", "image-store-failed"): [
        "error unpacking image: failed to extract layer sha256:25: content digest sha256:74: not found",
        f'failed to get image from containerd "sha256:7d": image "{IMAGE}": not found',
        'failed to resolve image "sha256:7d": not found',
        'reading image "7d": locating image with ID "7d": image not known',
        f'reference "[overlay@/var/lib/containers/storage]{IMAGE}" does not resolve to an image ID',
        "Error response from daemon: No such image: sha256:7d",
        f"{CONTAINERD}snapshotter nydus was not found: not found",
    ],
    ("CreateContainerError", "user-not-in-image"): [
        "mount callback failed on /tmpmounts/mount1: no users found",
        "mount callback failed on /tmpmounts/mount1: no groups found",
        "unable to find group data: no matching entries in group file",
    ],
    ("StartError", "runtime-failed"): [
        f'{SHIM}runtime "io.containerd.kata.v2" binary not installed "containerd-shim-kata-v2"',
        f"{SHIM}fork/exec /usr/bin/containerd-shim-runc-v2: exec format error",
        "OCI runtime create failed: runsc did not terminate successfully: exit status 128: unknown",
        "Error response from daemon: unknown or invalid runtime name: nvidia",
        "Unknown runtime specified nvidia",
        "failed to create containerd task: failed to create shim task: ttrpc: closed: unknown",
        "failed to find runtime handler kata from runtime list map[crun:0xc0]",
        'no runtime for "gvisor" is configured',
        "container create failed: fork/exec /usr/bin/conmon: no such file or directory",
        'exec: "fuse-overlayfs": executable file not found in $PATH',
        f'{NO_RUNTIME}exec: "nvidia-container-runtime": executable file not found in $PATH: unknown',
        f"{NO_RUNTIME}fork/exec /usr/bin/nvidia-container-runtime: no such file or directory: unknown",
        'failed to start shim: exec: "containerd-shim-runc-v2": executable file not found in $PATH',
        f'{RUNC}error running prestart hook #0: exec: "/usr/bin/hook": stat: no such file: unknown',
        'exec: "/opt/toolkit/nvidia-container-runtime.cdi": executable file not found',
        'failed to start shim: exec: "kata-runtime": executable file not found',
        (
            f"{RUNC}error running hook #0: error running hook: exit status 1, stdout: , stderr: "
            "nvidia-container-cli: mount error: no device filters attached to the cgroup: unknown"
        ),
    ],
    ("StartError", "root-file-system-failed"): [
        f"{RUNC}error preparing rootfs: permission denied: unknown",
        f"{RUNC}error jailing process inside rootfs: pivot_root .",
        BUSY,
        f'{RUNC}error mounting "proc" to rootfs at "/proc": no space left',
        "mount `proc` to `proc`: Operation not permitted",
    ],
    ("StartError", "command-not-runnable"): [
        # Words of runtimes in the command
        f'{RUNC}exec: "ps docker daemon": executable file not found in $PATH: unknown',
        f'{RUNC}exec: "start --runtime name": executable file not found in $PATH: unknown',
        "executable file `/bin/fork/exec it` not found in $PATH: No such file or directory",
        # The command, in the words of Kata's agent and of gVisor
        "failed to create shim task: the file airflow was not found",
        'error finding executable "airflow" in PATH [/bin]: no such file',
        f'{RUNC}exec: "truncate": executable file not found in $PATH',
        "executable file `airflow` not found in $PATH: No such file",
    ],
    ("StartError", "wrong-architecture"): ["exec /entrypoint: exec format error"],
    ("StartError", "start-error"): [f"{RUNC}the user is not known: unknown"],
    ("StartError", "volume-unavailable"): [
        f'{RUNC}error mounting "/var/lib/kubelet/pods/9f/volume-subpaths/config/base/2" to rootfs at "/a"',
        (
            f'{RUNC}error during container init: error mounting "/var/lib/kubelet/pods/9f/volume-subpaths/a" '
            'to rootfs at "/opt/airflow/airflow.cfg": not a directory: unknown'
        ),
    ],
    ("StartError", "user-not-in-image"): [
        f"{RUNC}unable to find user etl: no matching entries in passwd file: unknown"
    ],
    ("RunContainerError", "runtime-failed"): [
        *SOCKET,
        f"{NO_RUNTIME}crun did not terminate successfully: exit status 127: error while loading libraries",
    ],
    ("RunContainerError", "command-not-runnable"): ['exec: "/entrypoint": permission denied'],
    ("RunContainerError", "root-file-system-failed"): [BUSY],
    ("RegistryUnavailable", "registry-unavailable"): [None],
    ("CreateContainerConfigError", "config-missing"): [
        'configmap "airflow-env" not found',
        "couldn't find key AIRFLOW__CORE__FERNET_KEY in ConfigMap airflow/airflow-env",
        'secret "volume-mount" not found',
    ],
    ("CreateContainerConfigError", "root-user-refused"): [
        "container has runAsNonRoot and image has non-numeric user"
    ],
    ("CreateContainerConfigError", "config-refused"): [None],
    ("SignatureValidationFailed", "image-signature-refused"): [None],
    ("ContainerCannotRun", "runtime-failed"): [
        r"OCI runtime create failed: exec: \"nvidia-container-runtime\": executable file not found in $PATH"
    ],
    ("PostStartHookError", "post-start-hook-failed"): [None],
    ("PreStartHookError", "start-not-prepared"): [None],
    ("PreCreateHookError", "start-not-prepared"): [None],
    ("CreatePodSandboxError", "sandbox-not-created"): ["failed to set up the sandbox's network"],
    ("KillContainerError", "container-not-changed"): [None],
    ("ContainerCreating", "volume-unavailable"): ["MountVolume.SetUp failed"],
    ("ContainerCreating", "container-creating"): [None],
    ("Odd", "unknown"): [None],
}


@pytest.mark.parametrize(
    ("reason", "message", "row"),
    [(reason, message, row) for (reason, row), messages in MESSAGES.items() for message in messages],
)
def test_message_of_the_container_tells_more_than_its_reason(
    reason: str, message: str | None, row: str
) -> None:
    assert row_of(find_obstacle(read_pod(m.image_pull_error(reason, message)))) == row


SCHEDULER = [
    ("0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.", "unschedulable-volume"),
    ("0/3 nodes are available: 3 node(s) had volume node affinity conflict.", "unschedulable-volume"),
    ('running PreBind plugin "VolumeBinding": binding volumes: timed out', "unschedulable-volume"),
    ("0/3 nodes are available: 3 node(s) did not have enough free storage.", "unschedulable-volume"),
    ("3 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)", "unschedulable-volume"),
    ("0/3 nodes are available: 3 node(s) had no available disk.", "unschedulable-volume"),
    ("0/3 nodes are available: 3 cannot allocate all claims.", "unschedulable-resources"),
    ("0/3 nodes are available: 3 Too many pods.", "unschedulable-resources"),
    ("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", "unschedulable-resources"),
    ("0/3 nodes are available: 3 node(s) had untolerated taint {a: b}.", "unschedulable"),
    (None, "unschedulable"),
]


@pytest.mark.parametrize(("message", "row"), SCHEDULER)
def test_message_of_the_scheduler_says_what_is_missing(message: str | None, row: str) -> None:
    manifest = m.pod(node=None)
    manifest["status"]["conditions"] = [m.condition("PodScheduled", "False", "Unschedulable", message)]
    assert row_of(find_obstacle(read_pod(manifest))) == row


EVICTIONS = [
    (
        "Pod ephemeral local storage usage exceeds the total limit of containers 2Gi. ",
        None,
        "evicted-over-own-limit",
    ),
    ("Container base was using 20Ki, which exceeds its request of 0. ", None, "evicted-by-node-pressure"),
    (
        "Container base was using 36Ki, request is 0, has larger consumption of ephemeral-storage. ",
        None,
        "evicted-by-node-pressure",
    ),
    (None, None, "evicted-by-node-pressure"),
    (
        'Usage of EmptyDir volume "a" exceeds the limit "2Gi". ',
        "TerminationByKubelet",
        "evicted-by-node-pressure",
    ),
    ('Usage of EmptyDir volume "a" exceeds the limit "2Gi". ', "EvictionByEvictionAPI", "evicted-by-api"),
]


@pytest.mark.parametrize(("message", "condition", "row"), EVICTIONS)
def test_pod_over_its_own_limit_was_not_disrupted(
    message: str | None, condition: str | None, row: str
) -> None:
    conditions = (m.disruption(condition),) if condition else ()
    manifest = m.pod("Failed", conditions=conditions, reason="Evicted", message=message)
    assert row_of(failure_of(manifest)) == row


@pytest.mark.parametrize("deleted", [True, False])
@pytest.mark.parametrize(
    ("reason", "row"),
    [
        ("StoppedByKueue", "evicted-by-kueue"),
        ("WorkloadDeleted", "evicted-by-kueue"),
        ("WorkloadEvictedDueToPodsReadyTimeout", "evicted-by-kueue"),
        ("WorkloadEvictedDueToDeactivatedDueToRequeuingLimitExceeded", "evicted-by-kueue"),
        ("WorkloadEvictedDueToDeactivatedDueToMaximumExecutionTimeExceeded", "kueue-time-exceeded"),
    ],
)
def test_condition_of_kueue_says_why_it_has_deleted_a_pod(reason: str, row: str, deleted: bool) -> None:
    failure = failure_of(m.evicted_by_kueue(reason, deleted=deleted))
    assert (failure.reason, failure.worker_exited_by_itself, row_of(failure)) == (reason, False, row)
    metadata = classify(failure).context.metadata
    assert (metadata["condition"], metadata["condition_reason"]) == ("TerminationTarget", reason)
    assert metadata["message"] == "Preempted to accommodate a workload"


def test_shutdown_of_a_node_on_which_the_worker_ran_is_no_refusal() -> None:
    assert row_of(failure_of(m.node_shutdown())) == "node-shutdown"


@pytest.mark.parametrize(
    "reason", [*sorted(REFUSALS), "OutOfcpu", "SMTAlignmentError", "OutOfnvidia.com/gpu", "NodeShutdown"]
)
def test_running_worker_that_a_restarted_kubelet_does_not_admit_was_taken(reason: str) -> None:
    failure = failure_of(m.pod("Failed", reason=reason))
    launch, execution = classify(failure), classify(failure, phase=Phase.EXECUTION)
    assert launch.context.reason is Reason.ADMISSION_REFUSED
    assert execution.context.reason in (Reason.WORKER_LOST, Reason.WORKER_TERMINATION)
    assert {launch.context.category, execution.context.category} == {Category.INFRASTRUCTURE}


@pytest.mark.parametrize("phase", Phase)
def test_worker_that_a_virtual_kubelet_does_not_find_any_more_was_lost(phase: Phase) -> None:
    ended = m.terminated(-137, "NotFound", "Container was not found and was likely deleted")
    failure = failure_of(m.pod("Failed", [m.base(ended)], reason="NotFound"))
    assert classify(failure, phase=phase).context.reason is Reason.WORKER_LOST


@pytest.mark.parametrize("init", [True, False])
@pytest.mark.parametrize(
    ("exit_code", "reason"), [(255, "Unknown"), (137, "ContainerStatusUnknown"), (-1, "Error")]
)
def test_container_of_unknown_end_was_lost(exit_code: int, reason: str, init: bool) -> None:
    ended = m.terminated(exit_code, reason)
    manifest = m.pod(
        "Failed", [m.base(m.PREPARING if init else ended)], init=[m.status_of("a", ended)] * init
    )
    assert row_of(failure_of(manifest)) == "container-status-unknown"


@pytest.mark.parametrize("phase", ["Pending", "Running", "Failed"])
@pytest.mark.parametrize("state", [m.CREATING, m.PREPARING])
def test_container_that_the_kubelet_does_not_find_any_more_was_lost(phase: str, state: m.Json) -> None:
    failure = failure_of(m.pod(phase, [m.base(state) | {"lastState": m.LOST}]))
    assert row_of(failure, Phase.EXECUTION) == "container-status-unknown"


@pytest.mark.parametrize(
    "containers",
    [
        [],
        [m.base({})],
        [m.base(m.CREATING)],
        [m.base(m.running())],
        [m.base(m.running()), m.status_of("statsd", m.running())],
        [m.base(m.running()), m.status_of("statsd", m.terminated(143, "Error"))],
    ],
    ids=["no status", "no state", "created", "running", "running sidecar", "stopped sidecar"],
)
def test_worker_whose_end_no_kubelet_has_told_was_lost(containers: list[m.Json]) -> None:
    failure = find_failure(read_pod(m.pod("Failed", containers)))
    assert row_of(failure, Phase.EXECUTION) == "container-status-unknown"


PROGRAM_REFUSED = [
    "exec /usr/bin/dumb-init: exec format error\n",
    'standard_init_linux.go:211: exec user process caused "exec format error"',
    "standard_init_linux.go:228: exec user process caused: exec format error",
    "[FATAL tini (7)] exec /entrypoint failed: Exec format error",
    "Fatal glibc error: CPU does not support x86-64-v2\n" * 2,
    '{"msg":"exec container process `/entrypoint`: Exec format error","level":"error","time":"2026-03-01"}\n',
]


@pytest.mark.parametrize("init", [True, False])
@pytest.mark.parametrize("message", PROGRAM_REFUSED)
def test_program_that_the_node_cannot_execute_is_for_another_processor(message: str, init: bool) -> None:
    ended = m.terminated(255, "Error", message)
    manifest = m.pod(
        "Failed", [m.base(m.PREPARING if init else ended)], init=[m.status_of("a", ended)] * init
    )
    failure = failure_of(manifest)
    assert (row_of(failure), failure.worker_exited_by_itself) == ("wrong-architecture", False)


@pytest.mark.parametrize(
    ("exit_code", "message"),
    [
        (0, "exec a: exec format error"),
        (1, "exec a: exec format error\nby the way"),
        (1, '{"event":"Exec format error","level":"error"}'),
        (1, "Fatal glibc error: CPU does not support x86-64-v2\nby the way"),
    ],
)
def test_worker_that_only_speaks_of_such_a_program_was_executed(exit_code: int, message: str) -> None:
    (worker,) = read_pod(m.pod("Failed", [m.base(m.terminated(exit_code, "Error", message))])).containers
    assert not worker.is_not_executable


@pytest.mark.parametrize("signal", [1, 2, 3, 15])
def test_worker_that_a_stop_signal_has_ended_did_not_crash(signal: int) -> None:
    failure = failure_of(m.worker_error(128 + signal))
    assert (row_of(failure), failure.worker_exited_by_itself) == ("worker-terminated", False)


@pytest.mark.parametrize("field", [True, False])
@pytest.mark.parametrize("signal", [SIGUSR1, SIGUSR2, SIGPIPE, SIGSEGV])
def test_signal_that_the_platform_does_not_send_is_of_the_workers_own_container(
    signal: int, field: bool
) -> None:
    ended = m.terminated(255, "Error", signal=signal) if field else m.terminated(128 + signal, "Error")
    failure = failure_of(m.pod("Failed", [m.base(ended)]))
    cause = classify(failure).cause
    assert (cause.name, failure.worker_exited_by_itself) == ("worker-crashed", True)
    assert "a program in its container sent one, such as SIGUSR2" in cause.why


TOO_LITTLE_TO_START = [
    "runc create failed: container init was OOM-killed (memory limit too low?): unknown",
    "set memory limit 1048576 too low; should be at least 12582912 bytes",
    "Error response from daemon: Minimum memory limit allowed is 6MB",
    'failed to write "4194304": write /sys/fs/cgroup/a/memory.limit_in_bytes: device or resource busy',
    "unable to set memory limit to 4194304 (current usage: 4980736, peak usage: 5242880)",
    "read from sync socket: OOM: the memory limit could be too low",
]


@pytest.mark.parametrize("limits", [{"memory": "1Gi"}, {"cpu": "1"}, {}])
@pytest.mark.parametrize(
    "ended", [("OOMKilled", None), *(("StartError", message) for message in TOO_LITTLE_TO_START)]
)
def test_only_a_container_with_a_limit_can_have_exceeded_it(
    limits: m.Json, ended: tuple[str, str | None]
) -> None:
    manifest = m.pod("Failed", [m.base(m.terminated(137, *ended))])
    manifest["spec"]["containers"][0]["resources"] = {"limits": limits}
    row = "worker-out-of-memory" if "memory" in limits else "node-out-of-memory"
    assert row_of(failure_of(manifest)) == row


@pytest.mark.parametrize(
    ("reason", "limits", "row"),
    [
        ("OOMKilled", {}, "node-out-of-memory"),
        ("OOMKilled", {"memory": "1Gi"}, "worker-out-of-memory"),
        ("Completed", {}, "ended-without-report"),
    ],
)
def test_process_of_a_task_that_was_killed_alone_for_want_of_memory(
    reason: str, limits: m.Json, row: str
) -> None:
    manifest = m.pod("Succeeded", [m.base(m.terminated(0, reason))])
    manifest["spec"]["containers"][0]["resources"] = {"limits": limits}
    assert row_of(find_unreported_end(read_pod(manifest)), Phase.EXECUTION) == row


# ------------------------------------------------------------------------------------- by words of platforms

OF_GENERAL_ROWS = {"Completed", "Error", "Unschedulable"}
GENERAL_ROWS = {"unknown", "other-pod-reason", "disrupted", "unschedulable", "worker-failed"}


def manifests_that_show(reason: str) -> list[m.Json]:
    """As a reason of the pod, of its disruption, of its scheduling, and of its container."""
    return [
        m.pod("Failed", reason=reason),
        m.evicted_by_kueue(reason),
        m.pod("Failed", conditions=(m.disruption(reason),)),
        m.unschedulable("a", reason),
        m.image_pull_error(reason, None),
        m.pod("Failed", [m.base(m.terminated(1, reason))]),
    ]


@pytest.mark.parametrize("reason", sorted(VOCABULARY.reasons - OWN_REASONS - OF_GENERAL_ROWS))
def test_every_word_of_the_platform_has_a_row_of_its_own(reason: str) -> None:
    facts = map(read_pod, manifests_that_show(reason))
    assert {row_of(find_failure(pod) or find_obstacle(pod)) for pod in facts} - GENERAL_ROWS


# -------------------------------------------------------------------------------------- by the worker's log

WORKER_LOGS = [
    ("airflow-3.1-name-unknown", "airflow-api-unreachable"),
    ("airflow-3.1-refused", "airflow-api-unreachable"),
    ("airflow-3.1-no-answer", "airflow-api-unreachable"),
    ("airflow-3.1-answer-503-html", "airflow-api-unreachable"),
    ("airflow-3.1-answer-500-json", "worker-failed"),
    ("airflow-3.1-answer-401", "worker-failed"),
    ("airflow-3.1-secrets-backend-missing", "worker-import-failed"),
    ("airflow-3.2-refused", "airflow-api-unreachable"),
    ("airflow-3.2-answer-500-json", "airflow-api-unreachable"),
    ("airflow-3.2-answer-401", "worker-failed"),
    ("airflow-3.2-secrets-backend-missing", "worker-import-failed"),
    ("airflow-3.3-name-unknown", "airflow-api-unreachable"),
    ("airflow-3.3-refused", "airflow-api-unreachable"),
    ("airflow-3.3-no-answer", "airflow-api-unreachable"),
    ("airflow-3.3-certificate-refused", "airflow-api-unreachable"),
    ("airflow-3.3-answer-500-json", "airflow-api-unreachable"),
    ("airflow-3.3-answer-503-html", "airflow-api-unreachable"),
    ("airflow-3.3-answer-401", "worker-failed"),
    ("airflow-3.3-secrets-backend-missing", "worker-import-failed"),
    ("airflow-3.3-settings-import-missing", "worker-import-failed"),
]


def worker_that_said(
    message: str, exit_code: int = 1, reason: str = "Error", phase: str = "Failed"
) -> PodFailure:
    return failure_of(m.pod(phase, [m.base(m.terminated(exit_code, reason, message))]))


@pytest.mark.parametrize(("log", "row"), WORKER_LOGS)
def test_end_of_the_log_of_a_real_worker_says_why_it_did_not_begin(log: str, row: str) -> None:
    assert row_of(worker_that_said(read_worker_log(log))) == row


@pytest.mark.parametrize("log", [log for log, row in WORKER_LOGS if row != "worker-failed"])
def test_log_of_a_worker_whose_task_had_begun_says_nothing_of_its_beginning(log: str) -> None:
    failure = worker_that_said(read_worker_log(log))
    assert classify(failure, phase=Phase.EXECUTION).cause.name == "worker-failed"


OF_OTHERS = [
    "psycopg2.OperationalError: connection to server at 10.0.0.9 failed: Connection refused",
    """Traceback (most recent call last):
  File "/usr/lib/python3/site-packages/httpx/_transports/default.py", line 118, in map_httpcore_exceptions
    raise mapped_exc(message) from exc
httpx.ConnectError: [Errno 111] Connection refused
""",
    "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://example.com",
    """{"level":"error","event":"Task failed with exception","error_detail":[{
"exc_type":"ConnectionRefusedError","exc_value":"[Errno 111] Connection refused",
"frames":[{"filename":"dags/a.py","lineno":7,"name":"t"}],"is_group":false,"exceptions":[]}]}
""",
    """ImportError: a
Traceback (most recent call last):
ValueError: b
""",
    "",
]


@pytest.mark.parametrize("message", OF_OTHERS)
def test_trouble_of_anything_but_airflow_itself_is_not_taken_for_airflows(message: str) -> None:
    assert row_of(worker_that_said(message)) == "worker-failed"


@pytest.mark.parametrize(
    ("exit_code", "reason", "row"),
    [
        (137, "OOMKilled", "worker-out-of-memory"),
        (137, "Error", "worker-killed"),
        (143, "Error", "worker-terminated"),
        (1, "DeadlineExceeded", "container-deadline-exceeded"),
    ],
)
def test_log_counts_only_if_the_worker_ended_by_itself(exit_code: int, reason: str, row: str) -> None:
    assert row_of(worker_that_said(read_worker_log("airflow-3.3-refused"), exit_code, reason)) == row


# ------------------------------------------------------------------------- texts that are made to take long

MADE_TO_TAKE_LONG = [
    '"name":"reraise"}' * 60
    + 'airflow/sdk/api/client.py""name":"raise_on_4xx_5xx"}' * 10
    + "\t" * 2600
    + "x",
    'airflow/sdk/api/client.py", line 1, in request\n' * 25 + "in map_httpcore_exceptions\n\nhttpx.a: " * 25,
    'airflow/sdk/api/client.py", line 1, in raise_on_4xx_5xx\n' * 70,
    '"exc_type":"ImportError"' * 170,
    "ImportError: a\n" * 270,
    "a." * 2048 + "AirflowConfigException",
    '"exc_type":"a","exc_value":"' + "\\\\" * 2000,
    '  File "' + "A" * 4000,
    'exceptions":[]}]}' * 20 + "\n" * 3700 + "x",
    "repository " * 370,
    "unexpected status " * 230,
    "secret configmap " * 240,
    "exceeds " * 500,
    "sub path " * 450,
    "\n" * 4096,
    "\x00" * 4096,
]
REASONS_THAT_ARE_LOOKED_INTO = [
    *("Error", "ErrImagePull", "CreateContainerConfigError", "StartError", "ContainerCreating", None)
]


@pytest.mark.parametrize("said", MADE_TO_TAKE_LONG, ids=lambda text: repr(text[:20]))
def test_text_that_makes_an_engine_go_back_and_forth_is_classified(said: str) -> None:
    # Python's own engine takes a quarter of a minute for some.
    manifests = [
        *(m.pod("Failed", [m.base(m.terminated(1, item, said))]) for item in REASONS_THAT_ARE_LOOKED_INTO),
        m.pod("Failed", reason="Evicted", message=said),
        m.unschedulable(said),
    ]
    for manifest in manifests:
        failure = find_failure(facts := read_pod(manifest)) or find_obstacle(facts)
        assert failure is not None
        assert classify(failure).cause in TABLE
        assert str(failure)


# --------------------------------------------------------------------------------------------------- metadata


def test_metadata_of_an_eviction_name_pod_condition_and_container() -> None:
    pod = read_fixture("evicted-by-memory-pressure")
    assert classify(pod.failure, launch_number=2).context.metadata == {
        "pod": pod.facts.ref.name,
        "namespace": pod.facts.ref.namespace,
        "uid": pod.facts.ref.uid,
        "node": pod.facts.node,
        "phase": "Failed",
        "pod_reason": "Evicted",
        "pod_message": pod.facts.message,
        "condition": "DisruptionTarget",
        "condition_reason": "TerminationByKubelet",
        "container": "base",
        "container_type": "worker",
        "container_reason": "Error",
        "exit_code": 137,
        "signal": 9,
        "message": "The node was low on resource: memory. Threshold quantity: 100Mi, available: 41Mi. ",
        "launch": 2,
        "cause": "evicted-by-node-pressure",
    }


def test_metadata_of_a_failed_init_container_have_its_own_message() -> None:
    metadata = classify(read_fixture("git-sync-dns").failure).context.metadata
    assert (metadata["container"], metadata["container_type"], metadata["exit_code"]) == (
        "git-sync",
        "init",
        1,
    )
    assert "Could not resolve host" in metadata["message"]
    assert metadata.keys().isdisjoint({"signal", "condition", "pod_reason", "launch"})


def test_metadata_of_a_pod_without_a_node_quote_the_scheduler() -> None:
    metadata = classify(read_fixture("unschedulable-selector").failure).context.metadata
    assert (metadata["condition"], metadata["condition_reason"]) == ("PodScheduled", "Unschedulable")
    assert "node affinity/selector" in metadata["message"]
    assert "node" not in metadata


def test_metadata_count_launches_and_runs_of_a_try() -> None:
    failure = read_fixture("evicted-by-memory-pressure").failure
    metadata = classify(failure, launch_number=1, infrastructure_attempt=3).context.metadata
    assert (metadata[MetadataKey.LAUNCH], metadata[MetadataKey.INFRASTRUCTURE_ATTEMPT]) == (1, 3)


def test_the_scheduler_notices_silence_and_the_executor_what_becomes_of_pods() -> None:
    facts = read_pod(m.pod("Running", [m.base(m.running())]))
    silent = PodFailure(HEARTBEAT_TIMEOUT, facts, alive=True)
    assert classify(silent, phase=Phase.EXECUTION).context.source is ContextSource.SCHEDULER
    evicted = read_fixture("evicted-by-memory-pressure").failure
    assert classify(evicted).context.source is ContextSource.EXECUTOR


@pytest.mark.parametrize(
    ("manifest", "key"),
    [
        (m.pod("Failed", [m.base(m.terminated(128, "StartError", "x" * 5000))]), "message"),
        (m.pod("Failed", conditions=(m.disruption("Odd", message="x" * 5000),)), "message"),
        (m.pod("Failed", reason="Evicted", message="x" * 5000), "pod_message"),
    ],
)
def test_long_messages_are_cut_in_the_metadata(manifest: m.Json, key: str) -> None:
    failure = failure_of(manifest)
    assert classify(failure).context.metadata[key] == "x" * MESSAGE_LIMIT + "…"
