# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Says whether the pod of a launch has ended, by its known facts and by the clock. Pure.

A fact stays true until the pod shows another one. If several ends apply, the more certain one wins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import (
    NO_DEADLINES,
    Lasting,
    Launch,
)
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import (
    DELETION_OVERDUE,
    HEARTBEAT_TIMEOUT,
    PodFailure,
    find_failure,
    find_obstacle,
    find_unschedulable,
)
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts

SIDECAR_GRACE = 30.0
"""
Seconds in which the sidecars of a worker that has ended may end too. A kubelet that terminates a pod (an
eviction, the shutdown of its node) says so after all containers have ended. The termination takes their grace
period, which is this long by default.
"""

DELETION_MARGIN = 5.0
"""Seconds after the end of its grace period at which a pod that is still there counts as stuck."""

_STARTING = frozenset({Lasting.UNSCHEDULABLE, Lasting.PENDING})


class Limits(NamedTuple):
    """Configured limits for pods that do not start; seconds, 0 for no limit."""

    given_up_reasons: Collection[str]
    """Waiting reasons with which a Pending pod counts as failed."""
    unschedulable_timeout: float
    pending_timeout: float


class End(NamedTuple):
    """The end of a launch."""

    failure: PodFailure | None
    """None if its worker has succeeded, as far as its pod says."""


def find_end(launch: Launch, now: float, limits: Limits) -> End | None:
    """Return how a launch has ended; None if it goes on."""
    facts = launch.facts
    if facts is None:
        return None
    overdue = {state for state, deadline in launch.deadlines.items() if deadline <= now}
    is_done = facts.has_done_worker and (launch.is_gone or Lasting.WORKER in overdue)
    if facts.phase == "Succeeded" or is_done:
        return End(None)  # only the task instance's row says whether the worker has failed
    failure = find_failure(facts, gone=launch.is_gone, given_up_reasons=limits.given_up_reasons)
    if failure and not failure.alive and (not failure.lingers or Lasting.WORKER in overdue):
        return End(failure)
    if launch.is_silent and not facts.lingers:  # else its end says more, after the grace of its sidecars
        return End(PodFailure(HEARTBEAT_TIMEOUT, facts, alive=True))
    if failure and failure.alive:
        return End(failure)
    if launch.given_up:
        return End(launch.given_up)
    return _find_end_of_what_lasts(facts, overdue)


def _find_end_of_what_lasts(facts: PodFacts, overdue: Collection[Lasting]) -> End | None:
    if Lasting.DELETION in overdue:
        return End(PodFailure(DELETION_OVERDUE, facts, alive=True))
    if Lasting.UNSCHEDULABLE in overdue and (failure := find_unschedulable(facts)):
        return End(failure)
    if Lasting.PENDING in overdue and (failure := find_obstacle(facts)):
        return End(failure)
    return None


def note_deadlines(launch: Launch, now: float, limits: Limits, *, is_away: bool) -> None:
    """
    Note the deadlines of states that end a launch's pod if they last.

    Other changes of the pod do not postpone the deadlines. Deadlines are counted from the first sight of a
    state: times in the pod's status are of other clocks.

    :param is_away: whether the API server is: a pod that does not start has its time anew, since none is
        seen to start
    """
    known = launch.deadlines
    if is_away:
        known = {state: deadline for state, deadline in known.items() if state not in _STARTING}
    found = {
        state: min(known.get(state, now + seconds), now + seconds)
        for state, seconds in _find_lasting(launch.facts, limits)
    }
    launch.deadlines = found or NO_DEADLINES


def has_expired_token(launch: Launch, now: float, validity: float) -> bool:
    """
    Return whether the token of a launch's worker has expired, or had when the worker has ended.

    This scheduler knows when it has made a token. The pod's age counts too: the pod may have been created by
    an earlier call, with an earlier token. Two clocks measure the age of a waiting pod, so the age is at most
    that of the first token.

    :param validity: of a token, seconds
    """
    today = datetime.now(UTC)
    age = now - launch.token_made_at if launch.token_made_at else 0.0
    created = launch.facts.created if launch.facts else None
    pod_age = (today - created).total_seconds() if created else 0.0
    if launch.token_made_at and not launch.has_started:
        pod_age = min(pod_age, now - launch.first_token_at)
    return max(age, pod_age) - _seconds_since_end(launch.facts, today) >= validity


def _seconds_since_end(pod: PodFacts | None, now: datetime) -> float:
    """Return how long ago a pod's worker has ended, as its kubelet says; 0 if it is not known to have."""
    if pod is None or pod.created is None or pod.worker is None or pod.worker.finished_at is None:
        return 0.0
    # A kubelet whose clock is wrong says nothing.
    ended = pod.worker.finished_at
    return (now - ended).total_seconds() if pod.created <= ended <= now else 0.0


def _find_lasting(facts: PodFacts | None, limits: Limits) -> Iterator[tuple[Lasting, float]]:
    """Name the states that end a launch if they last, with the necessary seconds."""
    if facts is None:
        return
    if facts.has_lost_worker or facts.has_done_worker:
        yield Lasting.WORKER, SIDECAR_GRACE
    if limits.unschedulable_timeout and find_unschedulable(facts):
        yield Lasting.UNSCHEDULABLE, limits.unschedulable_timeout
    if limits.pending_timeout and not facts.is_gated and find_obstacle(facts):
        yield Lasting.PENDING, limits.pending_timeout
    if facts.deletion_timestamp:
        yield Lasting.DELETION, facts.deletion_grace_seconds + DELETION_MARGIN
