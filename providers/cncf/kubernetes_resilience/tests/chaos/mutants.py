# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Ways to break each promise on purpose. A mutant takes a ``MonkeyPatch`` and breaks the executor with it."""

from __future__ import annotations

from collections import defaultdict

from airflow.providers.cncf.kubernetes_resilience.executors import adopter, adoption, retirement, settlement
from airflow.providers.cncf.kubernetes_resilience.executors.commands import PodCommands
from airflow.providers.cncf.kubernetes_resilience.executors.launches import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.retirement import Retirement
from airflow.providers.cncf.kubernetes_resilience.executors.tracking import LaunchTracker
from airflow.providers.cncf.kubernetes_resilience.executors.verdict import Judgement, Verdict
from airflow_resilience import ledger
from airflow_resilience.ledger import LaunchHistory


def ignore_identity(patch):
    """Let an event count for whatever pod is the task instance's current one."""
    patch.setattr(LaunchRegistry, "find", lambda self, pod: self.get(adoption.task_key(pod.annotations)))


def ignore_who_won_the_start(patch):
    """Let a pod's end count for a task that runs in another pod."""
    patch.setattr("airflow.providers.cncf.kubernetes_resilience.executors.verdict.runs_in_sibling", _never)


def forget_to_retire(patch):
    patch.setattr(Retirement, "supersede", lambda *args: None)


def wait_for_nothing(patch):
    """Launch a replacement as soon as the deletion of the pod before it was asked for."""
    patch.setattr(LaunchRegistry, "is_clear", lambda *args: True)


def count_the_wait_from_the_request(patch):
    """Let the time that a superseded pod is given begin before the API server has accepted its deletion."""
    patch.setattr(retirement, "DELETION_TIMEOUT", 32.0)


def count_twice(patch):
    decisions = LaunchHistory.decisions
    patch.setattr(LaunchHistory, "decisions", property(lambda self: 2 * decisions.fget(self)))


def report_undecided(patch):
    """Report a failed launch as a failed task, before the policy is asked."""
    judge = settlement.judge

    def hasty(*args, **kwargs):
        judgement = judge(*args, **kwargs)
        if judgement.verdict is Verdict.LAUNCH_FAILURE:
            return Judgement(Verdict.REPORT, state="failed")
        return judgement

    patch.setattr(settlement, "judge", hasty)


def write_no_ledger(patch):
    patch.setattr(ledger, "record", lambda *args, **kwargs: None)


def count_in_memory_only(patch):
    """Forget, when a scheduler dies, what it has counted."""
    own = defaultdict(set)
    record = settlement.Settlement._record

    def forgetful(self, item, history, *args):
        history.entries = [entry for entry in history.entries if entry.worker_uid in own[id(self)]]
        own[id(self)].add(item.launch.ref.uid)
        return record(self, item, history, *args)

    patch.setattr(settlement.Settlement, "_record", forgetful)


def lose_refused_creations(patch):
    patch.setattr(LaunchTracker, "_not_created", lambda *args: None)


def lose_vanished_pods(patch):
    patch.setattr(LaunchTracker, "_confirmed", lambda *args: None)


def drop_podless_orphans(patch):
    patch.setattr(adopter.task_instances, "reschedule", lambda *args, **kwargs: None)


def adopt_nothing(patch):
    patch.setattr(adopter.Adopter, "adopt", lambda self, tis, running: list(tis))


def adopt_the_oldest(patch):
    newest_first = adoption.newest_first
    patch.setattr(adoption, "newest_first", lambda pods, host: newest_first(pods, host)[::-1])


def fail_on_replays(patch):
    """Raise an error, as code does that does not expect an event to come twice."""
    left = LaunchRegistry.left

    def strict(self, token):
        key = left(self, token)
        if key is None:
            raise KeyError(token)
        return key

    patch.setattr(LaunchRegistry, "left", strict)


def wait_for_kubernetes(patch):
    """Ask the API server in the scheduler's thread, and wait for its answer."""
    patch.setattr(
        PodCommands, "confirm", lambda self, ref: self._runtime.call(self._runtime.launcher.confirm(ref), 1.0)
    )


def _never(*args):
    return False


# The promise that the machine finds broken, as a regular expression.
MUTANTS = {
    ignore_identity: "I[13]",
    ignore_who_won_the_start: "I1",
    forget_to_retire: "I2",
    wait_for_nothing: "I2",
    count_the_wait_from_the_request: "I2",
    count_twice: "I3",
    report_undecided: "I3",
    write_no_ledger: "I4",
    count_in_memory_only: "I[34]",
    lose_refused_creations: "I5",
    lose_vanished_pods: "I5",
    drop_podless_orphans: "I5",
    adopt_nothing: "I[15]",
    # A launch that was replaced already is replaced once more, which no row of the ledger says.
    adopt_the_oldest: "I[14]",
    fail_on_replays: "I5",
    wait_for_kubernetes: "I7",
}
