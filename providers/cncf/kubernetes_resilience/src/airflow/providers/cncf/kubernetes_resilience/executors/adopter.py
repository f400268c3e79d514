# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Taking over the task instances of a dead scheduler."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from airflow.utils.session import create_session

from airflow.providers.cncf.kubernetes_resilience.executors import schedulers, task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.adoption import (
    NOT_DONE,
    AdoptionPlan,
    Orphan,
    is_host,
    launch_number,
    plan_adoption,
    task_key,
)
from airflow.providers.cncf.kubernetes_resilience.executors.commands import PodCommands
from airflow.providers.cncf.kubernetes_resilience.executors.launches import Launch, LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.retirement import DELETION_TIMEOUT, Retirement
from airflow.providers.cncf.kubernetes_resilience.pods.errors import KubernetesApiError
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts, PodRef
from airflow.providers.cncf.kubernetes_resilience.pods.failure import PodFailure
from airflow_resilience import ledger
from airflow_resilience.ledger import LedgerEntry

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.taskinstancekey import TaskInstanceKey

    from airflow.providers.cncf.kubernetes_resilience.pods.runtime import KubernetesRuntime

log = logging.getLogger(__name__)

ADOPTION_TIMEOUT = 15.0
"""
Seconds that the scheduler waits for the pods of a dead one to be listed. Less than half of the default
``scheduler_health_check_threshold``: it sends no heartbeat meanwhile, and holds the rows locked. Also those
after which pods are looked for again if nothing is heard of an attempt.
"""

RELABEL_BATCH = 500
"""Pods that are held once all of them are relabelled, or could not be."""

RELABEL_TIMEOUT = 10.0
"""Seconds for each pod of a batch. Less than :data:`ADOPTION_TIMEOUT`."""

RETRY_INTERVAL = 5.0
"""Seconds between attempts while the API server does not answer."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What the cluster says about orphaned task instances, or about some of them."""

    orphans: Mapping[TaskInstanceKey, Orphan]
    plan: AdoptionPlan
    relabelled: Mapping[TaskInstanceKey, bool] = field(default_factory=dict)
    """Whether the current launch carries this scheduler's label now; if not, it is gone. Without those that
    were not tried yet, or that the API server would not have changed."""

    def answered(self, waiting: Mapping[TaskInstanceKey, Orphan]) -> dict[TaskInstanceKey, Orphan]:
        """Return the orphans of which all is known, and that still wait in the same life."""
        unclear = self.plan.current.keys() - self.relabelled.keys()
        return {
            key: orphan
            for key, orphan in self.orphans.items()
            if waiting.get(key) is orphan and key not in unclear
        }

    def superseded_of(self, keys: Container[TaskInstanceKey]) -> list[tuple[TaskInstanceKey, PodFacts]]:
        """Return the pods that are not the current launches of these task instances."""
        return [(key, pod) for key, pod in self.plan.superseded if key in keys]


class Adopter:
    """
    Adopts orphaned task instances.

    This is the one place where the scheduler's thread waits for the API server: Airflow wants to know at
    once what could not be adopted, and resets that, which costs a try. It waits for the list of the pods.
    That they get this scheduler's label, by which its watch selects them, comes after that; what they have
    to tell comes with it. While the API server does not answer, nothing is given up: the task instances are
    kept, and their pods are looked for again, without waiting, from then on.

    :param own_label: value of the label by which this scheduler's pods are selected
    :param held: told of each launch that was adopted
    :param clock: monotonic time, seconds
    """

    def __init__(
        self,
        *,
        runtime: KubernetesRuntime,
        commands: PodCommands,
        registry: LaunchRegistry,
        retirement: Retirement,
        namespaces: Sequence[str | None],
        own_label: str,
        job_id: int | None,
        held: Callable[[Launch], None],
        clock: Callable[[], float],
    ) -> None:
        self._runtime = runtime
        self._commands = commands
        self._registry = registry
        self._retirement = retirement
        self._namespaces = namespaces
        self._own_label = own_label
        self._job_id = job_id
        self._held = held
        self._clock = clock
        self._postponed: dict[TaskInstanceKey, Orphan] = {}
        self._abandoned: dict[TaskInstanceKey, Orphan] = {}
        """No longer to be adopted, but they have pods that nobody else retires."""
        self._podless: dict[TaskInstanceKey, str] = {}
        self._found: SimpleQueue[_Found | None] = SimpleQueue()
        """None ends an attempt."""
        self._next_look = 0.0

    def adopt(self, tis: Sequence[TaskInstance], running: set[Any]) -> list[TaskInstance]:
        """
        Adopt task instances; return those that have to be reset.

        :param tis: rows that the scheduler holds locked in its own transaction
        :param running: the executor's occupied slots, to which adopted ones are added
        """
        orphans = self._read_orphans(tis)
        new = {key: orphan for key, orphan in orphans.items() if not self._is_taken(orphan, running)}
        lost = self._adopt(new, running) if new else set()
        kept = {orphan.ti_id for key, orphan in orphans.items() if key not in lost}
        return [ti for ti in tis if str(ti.id) not in kept]

    def _is_taken(self, orphan: Orphan, running: set[Any]) -> bool:
        if orphan.job_id == self._job_id:
            return orphan.key in running  # another scheduler took us for dead
        # Airflow repeats the offer when its transaction fails. That the key has a slot says nothing: it may
        # be the pod of an earlier phase that has it, while the dead scheduler has launched the next one.
        launch = self._registry.get(orphan.key)
        taken = launch is not None and launch.adopted_from == orphan.job_id
        return taken or orphan.key in self._podless or self._postponed.get(orphan.key) == orphan

    def _adopt(self, orphans: Mapping[TaskInstanceKey, Orphan], running: set[Any]) -> set[TaskInstanceKey]:
        self._postpone(orphans)
        running.update(orphans)
        try:
            found = self._runtime.call(self._look(orphans, self._selector()), ADOPTION_TIMEOUT)
        except (KubernetesApiError, TimeoutError, RuntimeError, CancelledError) as error:
            log.warning("Adoption of %d task instances postponed: %r", len(orphans), error)
            return set()
        self._next_look = self._clock() + ADOPTION_TIMEOUT
        self._commands.run(self._relabel, found)
        return self._complete(found, running)

    def continue_(self, running: set[Any]) -> None:
        """
        Go on with what adoption could not finish on the spot.

        :raises sqlalchemy.exc.SQLAlchemyError: if the database does not answer; it is tried again then
        """
        while not self._found.empty():
            found = self._found.get()
            self._next_look = self._clock() + (ADOPTION_TIMEOUT if found else RETRY_INTERVAL)
            if found:
                # Running ones without a pod stay as they are: Airflow notices the missing heartbeat.
                self._complete(found, running)
        if (orphans := self._abandoned | self._postponed) and self._clock() >= self._next_look:
            self._next_look = self._clock() + ADOPTION_TIMEOUT
            self._commands.run(self._look_again, orphans, self._selector())
        self._hand_back(running)

    def hand_back(self, key: TaskInstanceKey, ti_id: str) -> None:
        """
        Have the scheduler queue a task instance again, in the same try, once its superseded pod is gone.

        For a launch that was adopted: this scheduler has no job to launch again, and a scheduler that is
        handed the task instance knows nothing of a pod that still leaves.
        """
        self._podless[key] = ti_id

    def handing_back(self) -> set[str]:
        """Return the UUIDs of the task instances that wait until they can be queued again."""
        return set(self._podless.values())

    def forget(self, key: TaskInstanceKey) -> None:
        """Do not adopt a task instance any more; its pod, if it is found, is retired."""
        self._podless.pop(key, None)
        if orphan := self._postponed.pop(key, None):
            self._abandoned[key] = orphan
            if orphan.state == "queued":  # else its worker has started and reported since
                self._registry.leave(key, orphan.ti_id, self._clock() + DELETION_TIMEOUT)

    def _hand_back(self, running: set[Any]) -> None:
        now = self._clock()
        clear = {key: ti_id for key, ti_id in self._podless.items() if self._registry.is_clear(key, now)}
        if clear:
            with create_session(scoped=False) as session:
                at = datetime.now(UTC)
                task_instances.reschedule(clear.values(), self._job_id, at=at, session=session)
            running.difference_update(clear)
            for key in clear:
                del self._podless[key]

    def expects(self, pod: PodFacts) -> bool:
        """Whether the pod may be the launch of a task instance whose adoption is not complete."""
        return task_key(pod.annotations) in self._postponed

    def _read_orphans(self, tis: Sequence[TaskInstance]) -> dict[TaskInstanceKey, Orphan]:
        # With one query: the scheduler hands over rows with few columns loaded, and each of the others
        # would be a query for each row.
        with create_session(scoped=False) as session:
            rows = task_instances.read_rows({str(ti.id) for ti in tis}, session=session)
        return {
            row.key: Orphan(row.key, row.ti_id, row.state, row.hostname, row.queued_by_job_id)
            for row in rows.values()
            if row.queued_by_job_id
        }

    def _postpone(self, orphans: Mapping[TaskInstanceKey, Orphan]) -> None:
        self._postponed.update(orphans)
        for key in orphans.keys() & self._abandoned.keys():  # their pods are found with the new ones
            self._close(key)
        self._next_look = self._clock() + RETRY_INTERVAL

    def _selector(self) -> str:
        # Not by the dead scheduler's label: whoever tried to adopt before, this scheduler included, may
        # have been cut off after it had put its own label on some of the pods.
        if living := self._others():
            return f"airflow-worker notin ({','.join(living)}),{NOT_DONE}"
        return NOT_DONE

    def _others(self) -> list[str]:
        # In a session of its own: adoption happens in the middle of a transaction of the scheduler.
        with create_session(scoped=False) as session:
            return sorted(map(str, schedulers.read_living(but=self._job_id, session=session)))

    async def _look(self, orphans: Mapping[TaskInstanceKey, Orphan], selector: str) -> _Found:
        pods = await self._runtime.launcher.list_pods(self._namespaces, selector, "status.phase!=Succeeded")
        return _Found(orphans, plan_adoption(orphans, pods, own_label=self._own_label))

    async def _look_again(self, orphans: Mapping[TaskInstanceKey, Orphan], selector: str) -> None:
        try:
            found = await self._look(orphans, selector)
        except KubernetesApiError as error:
            log.debug("Adoption of %d task instances postponed again: %r", len(orphans), error)
            self._found.put(None)
        else:
            self._found.put(found)
            await self._relabel(found)

    async def _relabel(self, found: _Found) -> None:
        """Put this scheduler's label on the current launches."""
        pods = list(found.plan.current.items())
        for first in range(0, len(pods), RELABEL_BATCH):
            batch = pods[first : first + RELABEL_BATCH]
            answers = await asyncio.gather(
                *(self._relabel_pod(pod.ref) for _, pod in batch), return_exceptions=True
            )
            relabelled = {
                key: answer
                for (key, _), answer in zip(batch, answers, strict=True)
                if isinstance(answer, bool)
            }
            self._found.put(replace(found, relabelled=relabelled))
        self._found.put(None)

    async def _relabel_pod(self, ref: PodRef) -> bool:
        # One pod that the API server will not have changed must not keep the others waiting.
        async with asyncio.timeout(RELABEL_TIMEOUT):
            return await self._runtime.launcher.adopt(ref, self._own_label)

    def _complete(self, found: _Found, running: set[Any]) -> set[TaskInstanceKey]:
        """Adopt what was found; return the keys of running task instances that have no pod."""
        self._retire_abandoned(found)
        lost, podless, held = set(), {}, 0
        completed = found.answered(self._postponed)
        decided = self._decided(completed)
        for key, orphan in completed.items():
            del self._postponed[key]
            if pod := found.plan.current.get(key):
                self._hold(orphan, pod, decided.get(pod.ref.uid))
                if not found.relabelled[key]:
                    self._commands.confirm(pod.ref)  # it has gone since it was listed
                held += 1
                continue
            self._registry.release(key)  # a pod of an earlier phase, if there is one
            if orphan.state == "queued":
                podless[key] = orphan.ti_id
            else:
                running.discard(key)
                lost.add(key)
        self._podless |= podless
        self._retire(found.superseded_of(completed))
        log.info(
            "Adopted %d of %d task instances, %d to come; %d are queued without a pod and are scheduled "
            "again, %d were running and have lost theirs",
            held,
            len(found.orphans),
            sum(self._postponed.get(key) is orphan for key, orphan in found.orphans.items()),
            len(podless),
            len(lost),
        )
        return lost

    def _retire_abandoned(self, found: _Found) -> None:
        abandoned = found.answered(self._abandoned)
        if not abandoned:
            return
        with create_session(scoped=False) as session:
            rows = task_instances.read_rows({o.ti_id for o in abandoned.values()}, session=session)
        # Where a worker has run, it ends by itself. Its pod carries our label now, and is seen then.
        hosts = {row.key: row.hostname for row in rows.values()}
        current = [
            (key, found.plan.current[key])
            for key, orphan in abandoned.items()
            if found.relabelled.get(key) and orphan.state == "queued"
        ]
        self._retire(
            (key, pod)
            for key, pod in [*current, *found.superseded_of(abandoned)]
            if not is_host(hosts.get(key), pod)
        )
        for key in abandoned:
            self._close(key)

    def _close(self, key: TaskInstanceKey) -> None:
        self._registry.left(self._abandoned.pop(key).ti_id)

    def _retire(self, superseded: Iterable[tuple[TaskInstanceKey, PodFacts]]) -> None:
        for key, pod in superseded:
            if self._registry.find(pod):
                continue  # launched by this scheduler while the pods were looked for
            if pod.is_terminal:
                self._retirement.tidy(pod.ref, failed=pod.phase == "Failed")
            else:
                self._retirement.delete(key, pod)

    def _decided(self, orphans: Mapping[TaskInstanceKey, Orphan]) -> dict[str, LedgerEntry]:
        """Return, by the UID of the pod, what the dead scheduler had decided about failures of launches."""
        queued = {key: orphan.ti_id for key, orphan in orphans.items() if orphan.state == "queued"}
        if not queued:
            return {}
        with create_session(scoped=False) as session:
            histories = ledger.read_histories(queued, session=session)
        return {entry.worker_uid: entry for history in histories.values() for entry in history.entries}

    def _hold(self, orphan: Orphan, pod: PodFacts, decided: LedgerEntry | None) -> None:
        launch = Launch(
            key=orphan.key,
            ti_id=orphan.ti_id,
            namespace=pod.ref.namespace,
            name=pod.ref.name,
            number=launch_number(pod),
            ref=pod.ref,
            facts=pod,
            adopted_from=orphan.job_id,
        )
        if decided:
            launch.given_up = PodFailure(reason=decided.reason, facts=pod, alive=not pod.is_terminal)
        self._registry.hold(launch)
        self._held(launch)
