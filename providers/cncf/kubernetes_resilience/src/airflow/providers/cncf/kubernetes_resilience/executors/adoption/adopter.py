# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Taking over the task instances of a dead scheduler."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import TYPE_CHECKING

from airflow.utils.session import create_session
from airflow.utils.state import State, TaskInstanceState

from airflow.providers.cncf.kubernetes_resilience.executors.adoption.patience import Patience
from airflow.providers.cncf.kubernetes_resilience.executors.adoption.plan import (
    AdoptionPlan,
    choose,
    plan_adoption,
)
from airflow.providers.cncf.kubernetes_resilience.executors.deletion.pod_deletion import (
    DELETION_TIMEOUT,
    PodDeletion,
)
from airflow.providers.cncf.kubernetes_resilience.executors.isolation import Isolation
from airflow.providers.cncf.kubernetes_resilience.executors.launches.commands import ConfirmPod, PodCommands
from airflow.providers.cncf.kubernetes_resilience.executors.launches.identity import (
    NOT_DONE,
    SCHEDULER_LABEL,
    is_host,
    launch_number,
)
from airflow.providers.cncf.kubernetes_resilience.executors.launches.launch import (
    Launch,
    LaunchState,
    Waiting,
)
from airflow.providers.cncf.kubernetes_resilience.executors.launches.orphan import Orphan
from airflow.providers.cncf.kubernetes_resilience.executors.launches.registry import LaunchRegistry
from airflow.providers.cncf.kubernetes_resilience.executors.tasks import task_instances
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.row import (
    Standing,
    TaskInstanceRow,
    standing,
)
from airflow.providers.cncf.kubernetes_resilience.executors.tasks.slots import Slots
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
"""Pods that are adopted together, once each was relabelled or could not be."""

RELABEL_TIMEOUT = 10.0
"""Seconds for each pod of a batch. Less than :data:`ADOPTION_TIMEOUT`."""

RETRY_INTERVAL = 5.0
"""Seconds between attempts while the API server does not answer."""


@dataclass(frozen=True, slots=True)
class _Found:
    """The pods of orphaned task instances, or of some of them."""

    orphans: Mapping[TaskInstanceKey, Orphan]
    plan: AdoptionPlan
    is_late: bool = False
    """Whether the first look has failed: the API server was away, which may have kept pods from starting."""
    listed: Mapping[TaskInstanceKey, PodRef] = field(default_factory=dict)
    """The pods that were the current launches when they were listed. These are relabelled."""
    relabelled: Mapping[TaskInstanceKey, bool] = field(default_factory=dict)
    """Whether the current launch carries this scheduler's label now; if not, it is gone, or could not be
    changed. Without those that were not tried yet."""

    def is_labelled(self, key: TaskInstanceKey, pod: PodFacts) -> bool:
        """Whether a pod carries this scheduler's label now."""
        return pod.ref == self.listed.get(key) and self.relabelled.get(key, False)

    def answered(self, waiting: Mapping[TaskInstanceKey, Orphan]) -> dict[TaskInstanceKey, Orphan]:
        """Return the orphans that still wait, except those whose current pod is still to be relabelled."""
        unclear = self.listed.keys() - self.relabelled.keys()
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

    Only here does the scheduler's thread wait for the API server. Airflow has to know at once what could not
    be adopted: it resets that, which costs a try. The thread waits for the list of the pods. After that they
    get this scheduler's label, by which its watch selects them, and the answers say what has become of them.
    While the API server does not answer, the task instances are kept, and their pods are looked for again
    without waiting.

    :param slots: adopted task instances get one
    :param own_labels: select the pods of this scheduler and executor
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
        slots: Slots,
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
        self._slots = slots
        self._patience = patience
        self._isolation = isolation
        self._clock = clock
        self._abandoned: dict[TaskInstanceKey, Orphan] = {}
        """Not adopted any more, but their pods have to be deleted."""
        self._to_follow: list[Launch] = []
        self._lost: list[Orphan] = []
        self._found: SimpleQueue[_Found | None] = SimpleQueue()
        """None ends an attempt."""
        self._next_look = 0.0

    def adopt(self, tis: Sequence[TaskInstance]) -> list[TaskInstance]:
        """
        Adopt task instances; return those that have to be reset.

        :param tis: rows that the scheduler holds locked in its own transaction
        """
        ti_ids = [str(ti.id) for ti in tis]
        rows = {row.ti_id: row for row in self._isolation.batch("adopt", ti_ids, self._read_rows)}
        orphans = self._find_orphans(rows)
        new = {key: orphan for key, orphan in orphans.items() if not self._is_taken(orphan)}
        lost = self._adopt(new) if new else set()
        kept = {orphan.ti_id for key, orphan in orphans.items() if key not in lost}
        # What could not be read may run.
        return [ti for ti, ti_id in zip(tis, ti_ids, strict=True) if ti_id in rows and ti_id not in kept]

    def _is_taken(self, orphan: Orphan) -> bool:
        if orphan.job_id == self._job_id:
            return orphan.key in self._slots.occupied  # another scheduler took us for dead
        # Airflow repeats the offer when its transaction fails. That the key has a slot says nothing: it may
        # be the pod of an earlier phase that has it, while the dead scheduler has launched the next one.
        launch = self._registry.get(orphan.key)
        was_adopted = launch is not None and launch.adopted_from == orphan.job_id
        return was_adopted or self._registry.adopting_of(orphan.key) == orphan

    def _adopt(self, orphans: Mapping[TaskInstanceKey, Orphan]) -> set[TaskInstanceKey]:
        for key in orphans:
            self._forget_past(key)
        self._postpone(orphans)
        self._slots.occupied.update(orphans)
        try:
            with self._patience.spent(self._clock) as seconds:
                found = self._runtime.call(self._look(orphans), seconds)
        except (KubernetesApiError, TimeoutError, RuntimeError, CancelledError) as error:
            log.warning("Adoption of %d task instances postponed: %r", len(orphans), error)
            return set()
        self._next_look = self._clock() + ADOPTION_TIMEOUT
        self._commands.run(self._relabel, found)
        return self._complete(found)

    def _forget_past(self, key: TaskInstanceKey) -> None:
        """Forget what was planned for a task instance before another scheduler had it."""
        self._slots.forget_queued(key)
        launch = self._registry.get(key)
        if launch and launch.ref is None:
            self._deletion.call_off(key)

    def continue_(self) -> None:
        """
        Go on with adoptions that could not be finished at once.

        :raises DatabaseAwayError: if the database does not answer; it is tried again then
        """
        self._patience.forget(self._clock())
        is_due = self._clock() >= self._next_look
        if self._registry.adopting() and (is_due or not self._found.empty()):
            self._isolation.run("adopt", self._forget_adopted_elsewhere)
        while not self._found.empty():
            found = self._found.get()
            self._next_look = self._clock() + (ADOPTION_TIMEOUT if found else RETRY_INTERVAL)
            if found:
                # Running ones without a pod stay as they are: Airflow notices the missing heartbeat.
                self._complete(found)
        if (orphans := self._abandoned | self._registry.adopting()) and self._clock() >= self._next_look:
            self._next_look = self._clock() + ADOPTION_TIMEOUT
            self._commands.run(self._look_again, orphans)
        self._hand_back()

    def take_adopted(self) -> Iterator[Launch]:
        """Return, each once, the launches that were adopted."""
        while self._to_follow:
            yield self._to_follow.pop(0)

    def lost(self) -> list[Orphan]:
        """Return the task instances that were running and have no pod any more."""
        return list(self._lost)

    def forget_lost(self, orphans: Sequence[Orphan]) -> None:
        """Forget lost task instances that were seen to."""
        del self._lost[: len(orphans)]

    def forget(self, key: TaskInstanceKey) -> None:
        """Do not adopt a task instance any more; its pod, if it is found, is deleted."""
        if orphan := self._registry.adopted(key):
            self._abandoned[key] = orphan
            if orphan.state == "queued":  # else its worker has started and reported since
                self._registry.leave(key, orphan.ti_id, self._clock() + DELETION_TIMEOUT)

    def _forget_adopted_elsewhere(self) -> None:
        """Forget what another scheduler has adopted since, as it took this one for dead."""
        orphans = self._registry.adopting()
        with create_session(scoped=False) as session:
            rows = task_instances.read_rows({o.ti_id for o in orphans.values()}, session=session)
        for key, orphan in orphans.items():
            row = rows.get(orphan.ti_id)
            now = standing(row, try_number=key.try_number, job_id=self._job_id, adopted_from=orphan.job_id)
            if now is Standing.ELSEWHERE:
                log.info("%s was adopted by scheduler job %s", key, row and row.queued_by_job_id)
                self._let_go_of(key)

    def _let_go_of(self, key: TaskInstanceKey) -> None:
        self._registry.adopted(key)
        if self._registry.get(key) is None:
            self._slots.free(key)

    def _hand_back(self) -> None:
        """
        Have the scheduler queue task instances again whose superseded pods are gone, in the same try.

        A scheduler that is handed one knows nothing of a pod that still departs.
        """
        now = self._clock()
        clear = [
            launch
            for launch in self._registry.in_state(LaunchState.WAITING)
            if launch.waiting and launch.waiting.job is None and self._registry.is_clear(launch.key, now)
        ]

        def handed_back(launch: Launch, _: Exception | None = None) -> None:
            self._slots.free(launch.key)
            self._registry.release(launch.key)

        # One that cannot be handed back is let go of all the same: it is queued, and Airflow limits the time.
        for launch in self._isolation.batch(
            "hand-back", clear, self._reschedule, name=_launch_id, give_up=handed_back
        ):
            handed_back(launch)

    def _reschedule(self, launches: Sequence[Launch]) -> Sequence[Launch]:
        ti_ids = [launch.ti_id for launch in launches]
        with create_session(scoped=False) as session:
            task_instances.reschedule(ti_ids, self._job_id, at=datetime.now(UTC), session=session)
        return launches

    def _read_rows(self, ti_ids: Sequence[str]) -> Iterable[TaskInstanceRow]:
        # With one query: the scheduler hands over rows with few columns loaded, and each of the others
        # would be a query for each row.
        with create_session(scoped=False) as session:
            return task_instances.read_rows(set(ti_ids), session=session).values()

    def _find_orphans(self, rows: Mapping[str, TaskInstanceRow]) -> dict[TaskInstanceKey, Orphan]:
        restarting = {row.key for row in rows.values() if row.state == TaskInstanceState.RESTARTING}
        queued = {row.key: row.ti_id for row in rows.values() if row.state == TaskInstanceState.QUEUED}
        with create_session(scoped=False) as session:
            former = task_instances.read_former_ids(restarting, session=session)
        replaced = dict(self._isolation.batch("adopt", list(queued.items()), self._read_replaced))
        return {
            row.key: Orphan(
                row.key,
                row.ti_id,
                row.state,
                row.hostname,
                row.queued_by_job_id,
                former.get(row.key),
                replaced.get(row.key, frozenset()),
            )
            for row in rows.values()
            if row.queued_by_job_id
        }

    def _postpone(self, orphans: Mapping[TaskInstanceKey, Orphan]) -> None:
        self._registry.adopt(orphans.values())
        for key in orphans.keys() & self._abandoned.keys():  # their pods are found with the new ones
            self._close(key)
        self._next_look = self._clock() + RETRY_INTERVAL

    async def _look(self, orphans: Mapping[TaskInstanceKey, Orphan]) -> _Found:
        # Whatever their labels say: whoever tried to adopt before, this scheduler or one that counts as
        # alive, may have been cut off after it had put its own on some of the pods.
        pods = await self._runtime.launcher.list_pods(self._namespaces, NOT_DONE)
        plan = plan_adoption(orphans, pods, phases_may_be_past=True)
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

    def _complete(self, found: _Found) -> set[TaskInstanceKey]:
        """Adopt what was found; return the keys of running task instances that have no pod."""
        self._isolation.run("adopt", self._delete_abandoned, found)
        completed = found.answered(self._registry.adopting())
        self._isolation.run("adopt", self._choose_again, found, completed)
        decided = self._decided(completed)
        lost: set[TaskInstanceKey] = set()
        counts: Counter[str] = Counter()

        def complete(orphan: Orphan) -> None:
            counts[self._complete_one(orphan, found, decided, lost)] += 1
            self._let_go_of(orphan.key)

        def give_up(orphan: Orphan, _: Exception) -> None:
            self._registry.adopted(orphan.key)
            self._slots.free(orphan.key)  # Airflow limits how long it may be queued, or silent

        for orphan in completed.values():
            self._isolation.alone("adopt", orphan, complete, name=_key, give_up=give_up)
        self._delete_superseded(found.superseded_of(completed))
        self._delete_replaced(found, completed)
        adopting = self._registry.adopting()
        log.info(
            "Adopted %d of %d task instances, %d to come; %d are queued without a pod and are scheduled "
            "again, %d were running and have lost theirs",
            counts["held"],
            len(found.orphans),
            sum(adopting.get(key) is orphan for key, orphan in found.orphans.items()),
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
            if (before := self._registry.get(key)) and before.ref == pod.ref:
                self._registry.settled(before)  # with the one that takes its place
            self._registry.hold(launch)
            self._to_follow.append(launch)
            if not found.is_labelled(key, pod):
                self._commands.send(
                    ConfirmPod(pod.ref)
                )  # it has gone since it was listed, or keeps its old label
            return "held"
        self._registry.release(key)  # a pod of an earlier phase, if there is one
        if orphan.pod_id in found.plan.odd:
            return "odd"  # Airflow limits how long it may be queued, or silent
        if orphan.state == "queued":
            waiting = Waiting(job=None)
            self._registry.hold(Launch(key, orphan.ti_id, waiting=waiting, adopted_from=orphan.job_id))
            return "podless"
        if None not in found.plan.odd:  # else it may run in a pod that does not say whose it is
            lost.add(key)
            self._lost.append(orphan)
        return "lost"

    def _choose_again(self, found: _Found, orphans: Mapping[TaskInstanceKey, Orphan]) -> None:
        """Choose by what the rows say now: a task may have started in one of several pods since."""
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

    def _delete_abandoned(self, found: _Found) -> None:
        abandoned = found.answered(self._abandoned)
        if not abandoned:
            return
        with create_session(scoped=False) as session:
            rows = task_instances.read_rows({o.ti_id for o in abandoned.values()}, session=session)
        by_key = {row.key: row for row in rows.values()}
        current = [
            (key, found.plan.current[key])
            for key, orphan in abandoned.items()
            if key in found.plan.current and orphan.state == "queued"
        ]
        self._delete_superseded(
            (key, pod)
            for key, pod in [*current, *found.superseded_of(abandoned)]
            if not self._is_used(pod, by_key.get(key))
        )
        self._delete_replaced(found, abandoned)
        for key in abandoned:
            self._close(key)

    def _is_used(self, pod: PodFacts, row: TaskInstanceRow | None) -> bool:
        """Whether a worker has run in a pod, or another scheduler has launched it since."""
        if row is None:
            return False
        if is_host(row.hostname, pod):
            return True  # it ends by itself; the pod carries our label now, and is seen then
        is_anothers = row.state in State.adoptable_states and row.queued_by_job_id != self._job_id
        return is_anothers and pod.labels.get(SCHEDULER_LABEL) == str(row.queued_by_job_id)

    def _close(self, key: TaskInstanceKey) -> None:
        self._registry.left(self._abandoned.pop(key).ti_id)

    def _delete_superseded(self, superseded: Iterable[tuple[TaskInstanceKey, PodFacts]]) -> None:
        for key, pod in superseded:
            if self._registry.find(pod):
                continue  # launched by this scheduler while the pods were looked for
            if pod.is_terminal:
                self._deletion.tidy(pod.ref, failed=pod.phase == "Failed")
            else:
                self._deletion.give_up(key, pod)

    def _delete_replaced(self, found: _Found, keys: Container[TaskInstanceKey]) -> None:
        """Delete the pods in which these ran before they ran again; their next launches wait for them."""
        for key, pod in found.plan.replaced:
            if key in keys and not pod.is_terminal:  # its node may be cut off
                self._deletion.delete(key, pod)

    def _decided(self, orphans: Mapping[TaskInstanceKey, Orphan]) -> dict[str, LedgerEntry]:
        """Return, by the UID of the pod, what the dead scheduler had decided about failures of launches."""
        queued = [(key, orphan.ti_id) for key, orphan in orphans.items() if orphan.state == "queued"]
        histories = self._isolation.batch("adopt", queued, self._read_histories)
        return {entry.worker_uid: entry for history in histories for entry in history.entries}

    def _read_replaced(
        self, queued: Sequence[tuple[TaskInstanceKey, str]]
    ) -> Iterable[tuple[TaskInstanceKey, frozenset[str]]]:
        with create_session(scoped=False) as session:
            losses = ledger.read_infrastructure_histories(dict(queued), session=session)
        for key, history in losses.items():
            yield key, frozenset(entry.ti_id for entry in history.entries if entry.next_ti_id)

    def _read_histories(self, queued: Sequence[tuple[TaskInstanceKey, str]]) -> Iterable[LaunchHistory]:
        with create_session(scoped=False) as session:
            return ledger.read_histories(dict(queued), session=session).values()


def _key(orphan: Orphan) -> TaskInstanceKey:
    return orphan.key


def _launch_id(launch: Launch) -> str:
    return launch.launch_id


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
    # A pod that has started after it was given up on is neither deleted nor replaced.
    if decided and not launch.has_outlived(decided, pod):
        launch.given_up = PodFailure(reason=decided.reason, facts=pod, alive=not pod.is_terminal)
    return launch
