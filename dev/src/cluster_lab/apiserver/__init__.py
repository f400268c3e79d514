# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A small Kubernetes API server in memory, for machines without Kubernetes: the demo and fast tests.

The conformance suite in dev/tests/conformance states what it shares with kube-apiserver and runs on both.
Known differences:

* Only pods, nodes and namespaces, one by one: no PUT, no delete of collections, no dry run, no server-side
  apply (415). A strategic merge patch has no directives, and merges conditions and addresses alone by key.
  JSON only, whatever is sent and accepted. No managedFields, OpenAPI, health checks, ``sendInitialEvents``,
  generation, generated names, finalizers or admission. A deleted node answers with itself.
* Validation covers names, labels, required container fields, and pod specs, of which the deadline alone may
  be changed; unknown fields are kept, where a real server drops or reports them, and what is malformed is
  a 500. Kind, version and namespace are those of the URL, whatever a body says, and a patch may
  be about an older version. Of the defaults of pods there are the restart policy, the grace period and the
  scheduler.
* There is no authorization: the one token may do everything, and a request without it is 401 (a real server
  with anonymous access answers 403). There are no quotas, disruption budgets or service accounts. An eviction
  is a deletion, and says nothing of itself, as before Kubernetes 1.26.
* It speaks plain HTTP, over which kubectl sends no token.
* A method that a resource does not have is a 500, a pod without a namespace is not found, and a namespace
  goes without its pods. Selectors have no other form than those that are sent, and a Status no details but
  the seconds of ``Retry-After``.
* A list at a version says nothing of a version that has yet to come, and an expired list has to begin anew.
* Continue tokens and versions expire by ``compact()``, not after minutes.
* No controller watches over nodes or pods: new nodes get no not-ready taint, a node is ready while its Ready
  condition says so, taints mean nothing, and a pod stays when its node is gone.
* The scheduler knows node selectors, affinity to nodes by name, and cordons; no resources, taints, pod
  affinity or preemption.
* For logs, the kubelet is asked over HTTPS at its InternalIP.
"""

from __future__ import annotations

from cluster_lab.apiserver.requests import RequestInfo
from cluster_lab.apiserver.server import ApiServer, running_server

__all__ = ["ApiServer", "RequestInfo", "running_server"]
