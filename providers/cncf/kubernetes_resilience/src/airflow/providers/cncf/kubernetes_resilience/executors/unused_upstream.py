# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The methods of the official executor that lead nowhere in this one.

They work on processes, queues and counts in memory that this executor does not have. Inherited, they would
fail in the middle or answer from what is always empty. So each says what takes its place.
"""

from __future__ import annotations

from typing import Any, NoReturn


class Unused:
    """A method of the official executor that nothing calls here."""

    def __init__(self, instead: str) -> None:
        """:param instead: what takes its place, as the rest of a sentence."""
        self.instead = instead
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __call__(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        """
        Say what takes its place.

        :raises NotImplementedError: always
        """
        raise NotImplementedError(
            f"{self.name} of the official KubernetesExecutor does nothing in this one: {self.instead}"
        )


_INFORMER = "the informer lists and watches pods, in the Kubernetes thread (pods/thread)"
_LAUNCHER = "the launcher creates pods, in the Kubernetes thread (pods/thread)"
_LAUNCH_QUEUE = "the launch queue leaves out what is not queued any more (executors/creation)"
_FAILURES = "sync() assesses pods that have ended (executors/failures)"
_ADOPTION = "try_adopt_task_instances() plans the adoption and has it carried out (executors/adoption)"
_SHUTDOWN = "end() leaves what was not handled to the next scheduler"


class UnusedUpstream:
    """
    Stands before the official executor in the order of resolution.

    Not every version of the provider has each of them. Airflow calls none.
    """

    _list_pods = Unused(_INFORMER)
    get_pod_combined_search_str_to_pod_map = Unused(_INFORMER)

    _should_create_pod_for_job = Unused(_LAUNCH_QUEUE)
    _should_create_pod_for_execute_task = Unused(_LAUNCH_QUEUE)
    _discard_stale_pod_creation_task = Unused(_LAUNCH_QUEUE)
    _create_pods_sequentially = Unused(_LAUNCHER)
    _create_pods_concurrently = Unused(_LAUNCHER)
    _record_pod_creation_batch = Unused(_LAUNCHER)
    _handle_pod_publish_error = Unused("create calls that fail are repeated by executors/creation")

    _change_state = Unused(_FAILURES)
    _get_task_instance_state = Unused("rows are read many at a time (executors/tasks)")
    _is_pre_execution_failure = Unused("is_pre_execution_failure of executors/failures/assessment.py decides")

    adopt_launched_task = Unused(_ADOPTION)
    _task_instance_id_from_pod = Unused(_ADOPTION)
    _alive_other_scheduler_job_ids = Unused("executors/tasks/schedulers.py says which schedulers live")
    _adopt_completed_pods = Unused("the garbage collection finds them (executors/deletion)")

    _flush_task_queue = Unused(_SHUTDOWN)
    _flush_result_queue = Unused(_SHUTDOWN)
    cleanup_stuck_queued_tasks = Unused(
        "Airflow 3 takes tasks that are stuck in queued back with revoke_task()"
    )
