# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A container waits for its image."""

from __future__ import annotations

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes.cause import (
    Cause,
    Predicate,
    both,
    container_message,
    container_reason,
    either,
    said,
)
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import PodFailure
from airflow.providers.cncf.kubernetes_resilience.pods.images import without_name
from airflow_resilience.context import StateChangeCategory, StateChangeReason
from airflow_resilience.outages import DependencyKind


def _words_of_node(failure: PodFailure) -> str:
    """Return the message of the container that decides without the name of its image."""
    return without_name(container_message(failure), failure.container.image if failure.container else None)


def _node_says(pattern: str) -> Predicate:
    return said(_words_of_node, pattern)


_IMAGES = "https://kubernetes.io/docs/concepts/containers/images"

_NOT_CREATED = container_reason("CreateContainerError")
_NOT_PULLED = container_reason("ErrImagePull", "ImagePullBackOff")
# Only later versions of Kubernetes repeat the runtime's message in that of an ImagePullBackOff. Without it,
# the general row applies.

_REGISTRY_IN_TROUBLE = _node_says(
    # Of Go, and of the kernel: net, and errors of connect(2)
    r"timeout|deadline exceeded|connection (re(fused|set)|timed out)|no such host|server misbehaving"
    r"|name resolution|no route to host|host is down|network is unreachable|(:|unexpected) EOF"
    # Of containerd and Docker, and of CRI-O: docker/docker_client.go and docker/errors.go of containers/image
    r"|too ?many ?requests|service unavailable|bad gateway|unexpected (http )?(status|code).*: 5\d\d"
    r"|status ?code( from registry|:| \[[^\]]*\]:) 5\d\d"
)

IMAGES = (
    Cause(
        name="image-name-invalid",
        applies=container_reason("InvalidImageName"),
        category=StateChangeCategory.APPLICATION,
        reason=StateChangeReason.IMAGE_UNAVAILABLE,
        why="The image's name is not one, wherever and whenever it is looked for.",
        url=f"{_IMAGES}/#image-names",
    ),
    Cause(
        name="image-not-on-node",
        applies=container_reason("ErrImageNeverPull"),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.IMAGE_UNAVAILABLE,
        why="The image may only be one that the node has already, and this node has not; another may.",
        url=f"{_IMAGES}/#pre-pulled-images",
    ),
    Cause(
        name="image-signature-refused",
        applies=either(
            container_reason("SignatureValidationFailed"),
            # CRI-O before it had a reason for that (containers/image, signature/policy_eval.go), and the
            # verifiers of containerd (core/transfer/local/pull.go)
            both(
                _NOT_PULLED,
                _node_says(
                    r"source image rejected|signature (was required|validation)|verifier .*blocked pull of"
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
                r"|403 forbidden|no basic auth"
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
                r"|not match the specified platform"
            ),
        ),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.IMAGE_UNAVAILABLE,
        why="The image has no variant for the platform of this node; that of another node may be another.",
        url=f"{_IMAGES}/#multi-architecture-images-with-image-indexes",
    ),
    Cause(
        name="image-store-failed",
        applies=either(
            both(
                either(_NOT_PULLED, _NOT_CREATED),
                # containerd, core/diff/apply, core/unpack and client, and Docker. What is not found had been
                # pulled, or is a part of the node.
                _node_says(
                    r"failed to (extract layer|unpack image)|error unpacking image|failed to register layer"
                    r"|content store|content digest .*not found|blob not found|extraction snapshot"
                    r"|\bsnapshotter \S+ was not found|\blease does not exist"
                ),
            ),
            # containerd, internal/cri/server/container_create.go, CRI-O with containers/storage, and Docker:
            # a container is created after its image has been pulled, or found on the node.
            both(
                _NOT_CREATED,
                _node_says(
                    r"failed to (resolve|get) image.*not found|image not known|not resolve to an image id"
                    r"|no such image"
                ),
            ),
        ),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.IMAGE_UNAVAILABLE,
        why="The node could not unpack the image that it had pulled, or has lost it: its image store is "
        "damaged or full.",
        url="https://kubernetes.io/docs/tasks/debug/debug-cluster/crictl/",
        node_bound=True,
    ),
    Cause(
        name="image-not-found",
        applies=both(
            _NOT_PULLED,
            _node_says(
                # The last two are what registries answer, which CRI-O shows: NAME_UNKNOWN, and Harbor's words
                r"manifest unknown|code = notfound|: not found|repository .*not exist"
                r"|name unknown|\b(artifact|repository) \S+ not found"
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
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.IMAGE_UNAVAILABLE,
        why="The registry could not be reached, did not answer in time, or had too much to do.",
        url=f"{_IMAGES}/#imagepullbackoff",
        dependency=DependencyKind.REGISTRY,
    ),
    Cause(
        name="image-pull-failed",
        applies=_NOT_PULLED,
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.IMAGE_UNAVAILABLE,
        why="The image could not be pulled, and nothing says that it does not exist.",
        url=f"{_IMAGES}/#imagepullbackoff",
    ),
    Cause(
        name="image-inspection-failed",
        applies=container_reason("ImageInspectError"),
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.IMAGE_UNAVAILABLE,
        why="The node's container runtime could not read an image that it has.",
        url="https://kubernetes.io/docs/tasks/debug/debug-cluster/crictl/",
        node_bound=True,
    ),
)
