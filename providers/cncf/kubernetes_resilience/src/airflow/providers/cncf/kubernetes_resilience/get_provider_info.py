# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""What Airflow reads about this provider.

Generated from provider.yaml: change that, then run ``./breeze release-management generate-provider-info``.
"""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Give Airflow the contents of provider.yaml that it uses at run time."""
    return {
        "package-name": "airflow-provider-cncf-kubernetes-resilience",
        "name": "Kubernetes Resilience",
        "description": "A KubernetesExecutor that tells infrastructure failures from task failures and heals the former\nwithout costing the user a retry.\n",
        "versions": ["0.1.0"],
        "executors": [
            "airflow.providers.cncf.kubernetes_resilience.executors.kubernetes_executor.KubernetesExecutor"
        ],
        "cli": ["airflow.providers.cncf.kubernetes_resilience.cli.definition.get_cli_commands"],
        "config": {
            "kubernetes_resilience": {
                "description": "Options of the KubernetesExecutor of this provider. Those in the section ``kubernetes_executor``,\namong them ``pod_launch_failure_retries`` and ``pod_launch_failure_excluded_container_reasons``, keep\ntheir names, section and meaning, but for those without effect that the scheduler names at its start.\n",
                "options": {
                    "api_concurrency": {
                        "description": "How many requests that change something (create, delete or patch a pod) may be under way to the\nKubernetes API server at the same time, for each scheduler. At least 1. An eighth of them may delete\nor label pods that have ended.\n",
                        "version_added": "0.1.0",
                        "type": "integer",
                        "example": None,
                        "default": "32",
                    },
                    "infrastructure_retry_budget": {
                        "description": 'How often a task that was running is launched again in the same try, if the infrastructure has taken\nits worker pod: a drained, preempted or lost node, an eviction, a deleted pod. That costs none of\nthe task\'s own retries, and nobody is told of a failure. The task begins anew, as with a retry of\nits own, so it has to be idempotent. A worker that could not reach Airflow\'s API server, before its\ntask had begun, is launched again as often, which is counted by itself. The budget is for each try.\n0 switches it off, and a running task whose pod is lost is reported as failed; -1 is no limit. A task may ask for another\nbudget: ``executor_config={"infrastructure_retry_enabled": True}``, which is 3 times where this\noption is 0, or ``{"infrastructure_retry_limit": 7}``.\n',
                        "version_added": "0.1.0",
                        "type": "integer",
                        "example": "3",
                        "default": "0",
                    },
                    "infrastructure_retry_delay": {
                        "description": "Seconds between the loss of a running task's worker pod and its next launch, where no retry policy has\na backoff for that. From the fourth relaunch of a try on it may be longer.\n",
                        "version_added": "0.1.0",
                        "type": "float",
                        "example": None,
                        "default": "10",
                    },
                    "infrastructure_retry_reasons": {
                        "description": "After which losses a running task is launched again without a rule of a retry policy: reasons, with\ncommas between them, of failures that are classified as ``INFRASTRUCTURE``. A container that exceeds\nits own memory limit is classified as ``APPLICATION``, so it is not meant by\n``RESOURCE_EXHAUSTION``. Empty leaves all of it to the rules.\n",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "WORKER_TERMINATION,WORKER_LOST",
                        "default": "WORKER_TERMINATION,WORKER_LOST,RESOURCE_EXHAUSTION,DB_CONNECTION_ERROR",
                    },
                    "node_suspect_timeout": {
                        "description": "Seconds for which launches prefer other nodes after a launch has failed on a node that is suspect. A node\nis suspect if launches of two task instances have failed on it within ten minutes for a reason that\nlies with the node, and another launch has started elsewhere. A launch that starts on it ends that. No\nnode is excluded. 0 suspects none.\n",
                        "version_added": "0.1.0",
                        "type": "float",
                        "example": None,
                        "default": "900",
                    },
                    "outage_max_wait": {
                        "description": "Seconds for which launches are held back at most while an image registry, the quota of a namespace, its\nadmission webhooks or Airflow's API server is away. After that, launches are made again, and retry\npolicies decide about their failures, until one gets through.\n",
                        "version_added": "0.1.0",
                        "type": "float",
                        "example": None,
                        "default": "3600",
                    },
                    "outage_threshold": {
                        "description": "How many task instances have to fail within five minutes because an image registry cannot be reached, or\nthe quota of a namespace is used up, for it to count as away, if no launch that needs it gets through\nmeanwhile. For Airflow's API server that is how many Dags. Launches that need it are then held back\nuntil it is there again, apart from one probe at a time, and their failures count against no limit.\n0 leaves all failures to retry policies.\n",
                        "version_added": "0.1.0",
                        "type": "integer",
                        "example": None,
                        "default": "3",
                    },
                    "pending_timeout": {
                        "description": "Seconds for which the worker in a pod may not start, before the pod is given up on: deleted, and decided\nabout like any other failed launch, with the reason that ``airflow kubernetes-resilience explain`` shows.\nThat is for an init container that hangs, a volume that is not mounted, an image that does not come, and\nfor unschedulable pods too, but not for those that a scheduling gate holds back. The time counts from when\nthis scheduler has seen the pod first. It should be less than ``[scheduler] task_queued_timeout``, after\nwhich Airflow takes the task back without asking a policy. 0 waits for as long as that.\n",
                        "version_added": "0.1.0",
                        "type": "float",
                        "example": "480",
                        "default": "0",
                    },
                    "retry_policy_file": {
                        "description": "Path of a file with retry policies: rules that say, for each way in which a worker pod can fail,\nwhether it is launched again, how often, how soon and on which nodes. It may be a mounted ConfigMap:\nit is read again when it changes, and an invalid change is refused and leaves the policies that were\nin force. At start an invalid file stops the scheduler. Empty for the policy that is built in, which\ndoes what ``[kubernetes_executor] pod_launch_failure_retries`` and\n``pod_launch_failure_excluded_container_reasons`` say.\n",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "/opt/airflow/config/retry-policies.yaml",
                        "default": "",
                    },
                    "scheduling_gate_timeout": {
                        "description": "Seconds, from when Airflow has scheduled a task instance, in which its pod may wait behind a scheduling\ngate, as that of Kueue, without using up ``[scheduler] task_queued_timeout``. The pod is replaced when\nits worker's token expires: after ``[scheduler] task_queued_timeout``, or on Airflow 3.1 after\n``[execution_api] jwt_expiration_time``. With 0 the time behind a gate counts like any other.\n",
                        "version_added": "0.1.0",
                        "type": "float",
                        "example": "604800",
                        "default": "86400",
                    },
                    "unschedulable_timeout": {
                        "description": "Seconds for which a worker pod may stay unschedulable, before it is given up on: deleted, and decided\nabout like any other failed launch. That is for pods which no node suits (too little CPU or memory,\ntaints, a volume that is not there), and not for those that a scheduling gate holds back. They count\nfrom when this scheduler sees the pod's condition ``PodScheduled`` with the reason ``Unschedulable``.\nIt should be more than the cluster's autoscaler needs for a new node, and less than\n``[scheduler] task_queued_timeout``, which ends the wait otherwise. 0 waits for as long as that.\n",
                        "version_added": "0.1.0",
                        "type": "float",
                        "example": "300",
                        "default": "0",
                    },
                    "watch_inactivity_timeout": {
                        "description": "Seconds without anything arriving on a watch, after which the connection is taken for dead and\npods are listed again. The API server is asked to end each watch some time before that, so a quiet\nconnection that is healthy is not given up. A value of less than 90 is refused: most of what it\nwould bring is reconnects.\n",
                        "version_added": "0.1.0",
                        "type": "float",
                        "example": None,
                        "default": "150",
                    },
                    "worker_log_as_termination_message": {
                        "description": "Whether worker pods are built with ``terminationMessagePolicy: FallbackToLogsOnError`` in the worker\ncontainer, so that the last lines of a worker that fails (80 lines or 2048 bytes, whichever is less) are\nknown when it is decided what to do: to the rules of policies (``onTerminationMessage``), the ledger, the\ncommands and the log. A policy that the pod template, a ``pod_override`` or the pod mutation hook\nstates, ``File`` among them, is kept.\n",
                        "version_added": "0.1.0",
                        "type": "boolean",
                        "example": None,
                        "default": "True",
                    },
                },
            }
        },
    }
