# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Taking over the task instances of a dead scheduler."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState

from airflow.providers.cncf.kubernetes_resilience.executors.adoption.patience import Patience
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.plan import (
    AdoptionPlan,
    Orphan,
    choose,
    plan_adoption,
)
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import (
    DELETION_TIMEOUT,
    PodDeletion,
)
from airflow.providers.cncf.kubernetes_resilience.executors.failures.settlement import is_outdated
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import Isolation
from airflow.providers.cncf.kubernetes_resilience.executors.launches.commands import PodCommands
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import (
    NOT_DONE,
    is_host,
    launch_number,
    task_key,
)
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import Launch
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.task_instances import TaskInstanceRow
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import KubernetesApiError
from airflow.providers.cncf.kubernetes_resilience.pods.diagnosis.failure import PodFailure
from airflow.providers.cncf.kubernetes_resilience.pods.facts import PodFacts, PodRef
from airflow_resilience import ledger
from airflow_resilience.ledger import LaunchHistory, LedgerEntry

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.taskinstancekey import TaskInstanceKey

    from airflow.providers.cncf.kubernetes_resilience.pods.thread.runtime import KubernetesRuntime

log = logging.getLogger(__name__)

ADOPTION_TIMEOUT = 15.0
"""Seconds after which pods are looked for again if nothing is heard of an attempt."""

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
    is_late: bool = False
    """Whether it could not be said at once: the API server was away, and the pods may have waited for it."""
    listed: Mapping[TaskInstanceKey, PodRef] = field(default_factory=dict)
    """The current launches by the time at which the pods were listed, which are relabelled."""
    relabelled: Mapping[TaskInstanceKey, bool] = field(default_factory=dict)
    """Whether the current launch carries this scheduler's label now; if not, it is gone, or could not be
    changed. Without those that were not tried yet."""

    def is_labelled(self, key: TaskInstanceKey, pod: PodFacts) -> bool:
        """Whether a pod carries this scheduler's label now."""
        return pod.ref == self.listed.get(key) and self.relabelled.get(key, False)

    def answered(self, waiting: Mapping[TaskInstanceKey, Orphan]) -> dict[TaskInstanceKey, Orphan]:
        """Return the orphans of which all is known, and that still wait in the same life."""
        unclear = self.listed.keys() - self.relabelled.keys()
        return {
            key: orphan
            for key, orphan in self.orphans.items()
            if waiting.get(key) is orphan and key not in unclear
        }

    def superseded_of(self, keys: Container[TaskInstanceKey]) -> list[tuple[TaskInstanceKey, PodFacts]]:
        """Return the pods that are not the current launches of these task instances."""
        return [(key, pod) for key, pod in self.plan.superseded if key in keys]


class _Podless(NamedTuple):
    """A task instance that is to be queued again."""

    ti_id: str
    job_id: int | None
    """The dead scheduler's job, from which it was adopted."""


class Adopter:
    """
    Adopts orphaned task instances.

    This is the one place where the scheduler's thread waits for the API server: Airflow wants to know at
    once what could not be adopted, and resets that, which costs a try. It waits for the list of the pods.
    That they get this scheduler's label, by which its watch selects them, comes after that; what they have
    to tell comes with it. While the API server does not answer, nothing is given up: the task instances are
    kept, and their pods are looked for again, without waiting, from then on.

    :param own_labels: by which the pods of this scheduler and executor are selected
    :param held: told of each launch that was adopted
    :param replaced: told of each task instance that is adopted: what this executor has known of it until
        then is of the past, in which another scheduler had it
    :param patience: how long the scheduler may be kept waiting, with all its executors
    :param clock: monotonic time, seconds
    """

    def __init__(
        self,
        *,
        runtime: KubernetesRuntime,
        commands: PodCommands,
        registry: LaunchRegistry,
        deletion: PodDeletion,
        namespaces: Sequence[str | None],
        own_labels: Mapping[str, str],
        job_id: int | None,
        held: Callable[[Launch], None],
        replaced: Callable[[TaskInstanceKey], None],
        patience: Patience,
        isolation: Isolation,
        clock: Callable[[], float],
    ) -> None:
        self._runtime = runtime
        self._commands = commands
        self._registry = registry
        self._deletion = deletion
        self._namespaces = namespaces
        self._own_labels = own_labels
        self._job_id = job_id
        self._held = held
        self._replaced = replaced
        self._patience = patience
        self._isolation = isolation
        self._clock = clock
        self._postponed: dict[TaskInstanceKey, Orphan] = {}
        self._abandoned: dict[TaskInstanceKey, Orphan] = {}
        """No longer to be adopted, but they have pods that nobody else retires."""
        self._podless: dict[TaskInstanceKey, _Podless] = {}
        self._found: SimpleQueue[_Found | None] = SimpleQueue()
        """None ends an attempt."""
        self._next_look = 0.0

    def adopt(self, tis: Sequence[TaskInstance], running: set[Any]) -> list[TaskInstance]:
        """
        Adopt task instances; return those that have to be reset.

        :param tis: rows that the scheduler holds locked in its own transaction
        :param running: the executor's occupied slots, to which adopted ones are added
        """
        ti_ids = [str(ti.id) for ti in tis]
        rows = {row.ti_id: row for row in self._isolation.batch("adopt", ti_ids, self._read_rows)}
        orphans = self._find_orphans(rows)
        new = {key: orphan for key, orphan in orphans.items() if not self._is_taken(orphan, running)}
        lost = self._adopt(new, running) if new else set()
        kept = {orphan.ti_id for key, orphan in orphans.items() if key not in lost}
        # What could not be read may run.
        return [ti for ti, ti_id in zip(tis, ti_ids, strict=True) if ti_id in rows and ti_id not in kept]

    def _is_taken(self, orphan: Orphan, running: set[Any]) -> bool:
        if orphan.job_id == self._job_id:
            return orphan.key in running  # another scheduler took us for dead
        # Airflow repeats the offer when its transaction fails. That the key has a slot says nothing: it may
        # be the pod of an earlier phase that has it, while the dead scheduler has launched the next one.
        launch, podless = self._registry.get(orphan.key), self._podless.get(orphan.key)
        return (
            (launch is not None and launch.adopted_from == orphan.job_id)
            or (podless is not None and podless.job_id == orphan.job_id)
            or self._postponed.get(orphan.key) == orphan
        )

    def _adopt(self, orphans: Mapping[TaskInstanceKey, Orphan], running: set[Any]) -> set[TaskInstanceKey]:
        for key in orphans:
            self._podless.pop(key, None)
            self._replaced(key)
        self._postpone(orphans)
        running.update(orphans)
        try:
            with self._patience.spent(self._clock) as seconds:
                found = self._runtime.call(self._look(orphans), seconds)
        except (KubernetesApiError, TimeoutError, RuntimeError, CancelledError) as error:
            log.warning("Adoption of %d task instances postponed: %r", len(orphans), error)
            return set()
        self._next_look = self._clock() + ADOPTION_TIMEOUT
        self._commands.run(self._relabel, found)
        return self._complete(found, running)

    def continue_(self, running: set[Any]) -> None:
        """
        Go on with what adoption could not finish on the spot.

        :raises DatabaseAwayError: if the database does not answer; it is tried again then
        """
        self._patience.forget(self._clock())
        while not self._found.empty():
            found = self._found.get()
            self._next_look = self._clock() + (ADOPTION_TIMEOUT if found else RETRY_INTERVAL)
            if found:
                # Running ones without a pod stay as they are: Airflow notices the missing heartbeat.
                self._complete(found, running)
        if (orphans := self._abandoned | self._postponed) and self._clock() >= self._next_look:
            self._next_look = self._clock() + ADOPTION_TIMEOUT
            self._commands.run(self._look_again, orphans)
        self._hand_back(running)

    def hand_back(self, launch: Launch) -> None:
        """
        Have the scheduler queue a task instance again, in the same try, once its superseded pod is gone.

        For a launch that was adopted: this scheduler has no job to launch again, and a scheduler that is
        handed the task instance knows nothing of a pod that still leaves.
        """
        self._podless[launch.key] = _Podless(launch.ti_id, launch.adopted_from)

    def take_back(self, launch: Launch) -> bool:
        """Do not hand back the task instance of a launch, if it waits for that; return whether it did."""
        podless = self._podless.get(launch.key)
        if podless is None or podless.ti_id != launch.ti_id:
            return False
        del self._podless[launch.key]
        return True

    def postponed(self) -> set[str]:
        """Return the UUIDs of the queued task instances whose adoption is not complete."""
        return {orphan.ti_id for orphan in self._postponed.values() if orphan.state == "queued"}

    def handing_back(self) -> set[str]:
        """Return the UUIDs of the task instances that wait until they can be queued again."""
        return {item.ti_id for item in self._podless.values()}

    def forget(self, key: TaskInstanceKey) -> None:
        """Do not adopt a task instance any more; its pod, if it is found, is retired."""
        self._podless.pop(key, None)
        if orphan := self._postponed.pop(key, None):
            self._abandoned[key] = orphan
            if orphan.state == "queued":  # else its worker has started and reported since
                self._registry.leave(key, orphan.ti_id, self._clock() + DELETION_TIMEOUT)

    def _hand_back(self, running: set[Any]) -> None:
        now = self._clock()
        clear = [key for key in self._podless if self._registry.is_clear(key, now)]

        def handed_back(key: TaskInstanceKey, _: Exception | None = None) -> None:
            running.discard(key)
            del self._podless[key]

        # One that cannot be handed back is let go of all the same: it is queued, and Airflow limits the time.
        for key in self._isolation.batch("hand-back", clear, self._reschedule, give_up=handed_back):
            handed_back(key)

    def _reschedule(self, items: Sequence[TaskInstanceKey]) -> Sequence[TaskInstanceKey]:
        ti_ids = [self._podless[key].ti_id for key in items]
        with create_session(scoped=False) as session:
            task_instances.reschedule(ti_ids, self._job_id, at=datetime.now(UTC), session=session)
        return items

    def expects(self, pod: PodFacts) -> bool:
        """Whether the pod may be the launch of a task instance whose adoption is not complete."""
        return task_key(pod.annotations) in self._postponed

    def _read_rows(self, ti_ids: Sequence[str]) -> Iterable[TaskInstanceRow]:
        # With one query: the scheduler hands over rows with few columns loaded, and each of the others
        # would be a query for each row.
        with create_session(scoped=False) as session:
            return task_instances.read_rows(set(ti_ids), session=session).values()

    def _find_orphans(self, rows: Mapping[str, TaskInstanceRow]) -> dict[TaskInstanceKey, Orphan]:
        restarting = {row.key for row in rows.values() if row.state == TaskInstanceState.RESTARTING}
        with create_session(scoped=False) as session:
            former = task_instances.read_former_ids(restarting, session=session)
        return {
            row.key: Orphan(
                row.key, row.ti_id, row.state, row.hostname, row.queued_by_job_id, former.get(row.key)
            )
            for row in rows.values()
            if row.queued_by_job_id
        }

    def _postpone(self, orphans: Mapping[TaskInstanceKey, Orphan]) -> None:
        self._postponed.update(orphans)
        for key in orphans.keys() & self._abandoned.keys():  # their pods are found with the new ones
            self._close(key)
        self._next_look = self._clock() + RETRY_INTERVAL

    async def _look(self, orphans: Mapping[TaskInstanceKey, Orphan]) -> _Found:
        # Whatever their labels say: whoever tried to adopt before, this scheduler or one that counts as
        # alive, may have been cut off after it had put its own on some of the pods.
        pods = await self._runtime.launcher.list_pods(self._namespaces, NOT_DONE, "status.phase!=Succeeded")
        plan = plan_adoption(orphans, pods)
        return _Found(orphans, plan, listed={key: pod.ref for key, pod in plan.current.items()})

    async def _look_again(self, orphans: Mapping[TaskInstanceKey, Orphan]) -> None:
        try:
            found = await self._look(orphans)
        except KubernetesApiError as error:
            log.debug("Adoption of %d task instances postponed again: %r", len(orphans), error)
            self._found.put(None)
        else:
            found = replace(found, is_late=True)
            self._found.put(found)
            await self._relabel(found)

    async def _relabel(self, found: _Found) -> None:
        """Put this scheduler's label on the current launches."""
        pods = list(found.listed.items())
        for first in range(0, len(pods), RELABEL_BATCH):
            batch = pods[first : first + RELABEL_BATCH]
            answers = await asyncio.gather(
                *(self._relabel_pod(ref) for _, ref in batch), return_exceptions=True
            )
            # A pod that the API server would not have changed is held as it is, and asked about.
            relabelled = {key: answer is True for (key, _), answer in zip(batch, answers, strict=True)}
            self._found.put(replace(found, relabelled=relabelled))
        self._found.put(None)

    async def _relabel_pod(self, ref: PodRef) -> bool:
        # One pod that the API server will not have changed must not keep the others waiting.
        async with asyncio.timeout(RELABEL_TIMEOUT):
            return await self._runtime.launcher.adopt(ref, self._own_labels)

    def _complete(self, found: _Found, running: set[Any]) -> set[TaskInstanceKey]:
        """Adopt what was found; return the keys of running task instances that have no pod."""
        self._isolation.run("adopt", self._retire_abandoned, found)
        completed = found.answered(self._postponed)
        self._isolation.run("adopt", self._choose_again, found, completed)
        decided = self._decided(completed)
        lost: set[TaskInstanceKey] = set()
        counts: Counter[str] = Counter()

        def complete(orphan: Orphan) -> None:
            counts[self._complete_one(orphan, found, decided, lost)] += 1
            del self._postponed[orphan.key]
            if orphan.key not in self._podless and self._registry.get(orphan.key) is None:
                running.discard(orphan.key)

        def give_up(orphan: Orphan, _: Exception) -> None:
            del self._postponed[orphan.key]
            running.discard(orphan.key)  # Airflow limits how long it may be queued, or silent

        for orphan in completed.values():
            self._isolation.alone("adopt", orphan, complete, name=_key, give_up=give_up)
        self._retire(found.superseded_of(completed))
        log.info(
            "Adopted %d of %d task instances, %d to come; %d are queued without a pod and are scheduled "
            "again, %d were running and have lost theirs",
            counts["held"],
            len(found.orphans),
            sum(self._postponed.get(key) is orphan for key, orphan in found.orphans.items()),
            counts["podless"],
            len(lost),
        )
        return lost

    def _complete_one(
        self,
        orphan: Orphan,
        found: _Found,
        decided: Mapping[str, LedgerEntry],
        lost: set[TaskInstanceKey],
    ) -> str:
        """Adopt a task instance; return what became of it."""
        key = orphan.key
        if pod := found.plan.current.get(key):
            launch = _launch(orphan, pod, decided.get(pod.ref.uid))
            launch.has_siblings, launch.was_held = key in found.plan.shared, found.is_late
            self._registry.hold(launch)
            self._held(launch)
            if not found.is_labelled(key, pod):
                self._commands.confirm(pod.ref)  # it has gone since it was listed, or keeps its old label
            return "held"
        self._registry.release(key)  # a pod of an earlier phase, if there is one
        if orphan.pod_id in found.plan.odd:
            return "odd"  # Airflow limits how long it may be queued, or silent
        if orphan.state == "queued":
            self._podless[key] = _Podless(orphan.ti_id, orphan.job_id)
            return "podless"
        if None not in found.plan.odd:  # else it may run in a pod that does not say whose it is
            lost.add(key)
        return "lost"

    def _choose_again(self, found: _Found, orphans: Mapping[TaskInstanceKey, Orphan]) -> None:
        """Choose by what the database says now: a task may have started in one of several pods since."""
        shared = {key: orphan for key, orphan in orphans.items() if key in found.plan.shared}
        if not shared:
            return
        with create_session(scoped=False) as session:
            rows = task_instances.read_rows({o.ti_id for o in shared.values()}, session=session)
        again = {key: row for key, orphan in shared.items() if (row := rows.get(orphan.ti_id))}
        found.plan.superseded = [item for item in found.plan.superseded if item[0] not in again]
        for key, row in again.items():
            today = replace(shared[key], state=row.state, hostname=row.hostname)
            choose(found.plan, today, found.plan.shared[key])

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
            if key in found.plan.current and orphan.state == "queued"
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
                self._deletion.tidy(pod.ref, failed=pod.phase == "Failed")
            else:
                self._deletion.give_up(key, pod)

    def _decided(self, orphans: Mapping[TaskInstanceKey, Orphan]) -> dict[str, LedgerEntry]:
        """Return, by the UID of the pod, what the dead scheduler had decided about failures of launches."""
        queued = [(key, orphan.ti_id) for key, orphan in orphans.items() if orphan.state == "queued"]
        histories = self._isolation.batch("adopt", queued, self._read_histories)
        return {entry.worker_uid: entry for history in histories for entry in history.entries}

    def _read_histories(self, queued: Sequence[tuple[TaskInstanceKey, str]]) -> Iterable[LaunchHistory]:
        with create_session(scoped=False) as session:
            return ledger.read_histories(dict(queued), session=session).values()


def _key(orphan: Orphan) -> TaskInstanceKey:
    return orphan.key


def _launch(orphan: Orphan, pod: PodFacts, decided: LedgerEntry | None) -> Launch:
    launch = Launch(
        key=orphan.key,
        ti_id=orphan.pod_id,
        namespace=pod.ref.namespace,
        name=pod.ref.name,
        number=launch_number(pod),
        ref=pod.ref,
        facts=pod,
        adopted_from=orphan.job_id,
    )
    # A pod that has started since it was given up on was not deleted for that, and is not replaced.
    if decided and not is_outdated(decided, launch, pod):
        launch.given_up = PodFailure(reason=decided.reason, facts=pod, alive=not pod.is_terminal)
    return launch
