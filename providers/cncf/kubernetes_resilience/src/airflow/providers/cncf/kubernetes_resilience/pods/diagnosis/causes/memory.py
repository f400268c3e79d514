# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
A container was killed for want of memory.

``OOMKilled`` does not say whose: the kernel counts kills for a container's own limit and those for want of
memory on the node as the same (``oom_kill`` of ``memory.events``). A container without a limit cannot have
exceeded one.

.. seealso:: https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
"""

from __future__ import annotations

from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.causes.cause import (
    NOT_STARTED,
    Cause,
    both,
    container_reason,
    container_says,
    either,
    is_container,
)
from airflow.providers.cncf.kubernetes_resilience.pods.facts import ContainerType
from airflow_resilience.context import StateChangeCategory, StateChangeReason

_DOCS = "https://kubernetes.io/docs"
_MEMORY = f"{_DOCS}/tasks/configure-pod-container/assign-memory-resource/#exceed-a-container-s-memory-limit"

_OUT_OF_MEMORY = either(
    container_reason("OOMKilled"),
    # runc (libcontainer), crun, CRI-O and Docker, of a limit that is too low to start with.
    both(
        NOT_STARTED,
        container_says(
            r"init was oom-killed|unable to set memory limit|memory limit (\d+|could be) too low"
            r"|minimum memory limit"
        ),
    ),
)

MEMORY = (
    Cause(
        name="node-out-of-memory",
        applies=both(
            _OUT_OF_MEMORY,
            lambda failure: failure.container is not None and failure.container.unlimited_memory,
        ),
        category=StateChangeCategory.INFRASTRUCTURE,
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
        category=StateChangeCategory.INFRASTRUCTURE,
        reason=StateChangeReason.RESOURCE_EXHAUSTION,
        why="A sidecar needed more memory than its limit allows.",
        url=_MEMORY,
    ),
)
