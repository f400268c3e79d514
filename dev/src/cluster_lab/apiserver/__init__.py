# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A small Kubernetes API server in memory, for machines without Kubernetes: the demo and fast tests.

The conformance suite in dev/tests/conformance states what it shares with kube-apiserver and runs on both.
Known differences:

* Only pods, nodes and namespaces, one by one: no PUT, no delete of collections, no dry run (400), no
  server-side apply (415). A strategic merge patch has no directives, and merges conditions and addresses
  alone by key. JSON only, whatever is accepted. No managedFields, OpenAPI, ``sendInitialEvents``, generation,
  generated names or admission.
* Validation covers names, labels, required container fields, container restarts, and pod specs, of which the
  deadline alone may be changed; unknown fields are kept, where a real server drops or reports them. Of the
  defaults of pods there are the restart policy, the grace period and the scheduler.
* There is no authorization: the one token may do everything, and a request without it is 401 (a real server
  with anonymous access answers 403). There are no quotas, disruption budgets or service accounts.
* It speaks plain HTTP, over which kubectl sends no token.
* Namespaces cannot be deleted.
* A list at a version that has yet to come fails at once with 504; a real server waits three seconds first.
* Continue tokens and versions expire after a number of changes or by ``compact()``, not after minutes.
* New nodes get no not-ready taint, and no lifecycle controller watches over their heartbeats: a node is ready
  while its Ready condition says so. Taints evict nobody.
* The scheduler knows node selectors, node affinity, taints and cordons; no resources, pod affinity or
  preemption.
* The pod garbage collector is quicker by far. It keeps all terminated pods, as a real one does up to 12,500.
* For logs, the kubelet is asked over plain HTTP, at its InternalIP first.
"""

from __future__ import annotations

from cluster_lab.apiserver.podgc import PodGcSettings
from cluster_lab.apiserver.requests import RequestInfo
from cluster_lab.apiserver.server import ApiServer

__all__ = ["ApiServer", "PodGcSettings", "RequestInfo"]
