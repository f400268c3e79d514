# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Creates, deletes and labels pods.

Every method is idempotent: a pod is named before it is created, and addressed by its UID afterwards.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any, Literal, TypeVar

from airflow.providers.cncf.kubernetes_resilience.pods.api.call_budget import Calls
from airflow.providers.cncf.kubernetes_resilience.pods.api.client import PodClient
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import (
    ConnectionFailedError,
    CreationCancelledError,
    ForeignAnswerError,
    KubernetesApiError,
    PodConflictError,
    PodNotFoundError,
    UnknownOwnerError,
)
from airflow.providers.cncf.kubernetes_resilience.pods.api.retries import Answer, answer_of
from airflow.providers.cncf.kubernetes_resilience.pods.api.transport import Json
from airflow.providers.cncf.kubernetes_resilience.pods.facts import (
    DONE_LABEL,
    LAUNCH_ID_ANNOTATION,
    SCHEDULER_LABEL,
    MalformedPodError,
    PodFacts,
    PodRef,
    read_pod,
)
from airflow.providers.cncf.kubernetes_resilience.pods.messages import (
    Message,
    PodConfirmed,
    PodCreated,
    PodDeletionAccepted,
    PodNotConfirmed,
    PodNotCreated,
    PodNotDeleted,
)
from airflow_resilience.metrics import stats

logger = logging.getLogger(__name__)

T = TypeVar("T")

LOOKUPS = 3
"""Attempts to find out whether a create call without an answer was carried out. More would only delay the
executor's next attempt, which finds the pod by its name."""


@contextmanager
def _measured(
    operation: Literal["pod_creation", "pod_deletion", "pod_patching"], team_name: str | None
) -> Iterator[None]:
    """
    Time one API call and count its outcome by HTTP status (``error`` if there was no answer).

    The metrics have the official executor's names, so that dashboards keep working.

    .. seealso:: https://airflow.apache.org/docs/apache-airflow/stable/administration-and-deployment/logging-monitoring/metrics.html
    """
    tags = {"team_name": team_name} if team_name else {}
    status = "error"
    try:
        with stats().timer(f"kubernetes_executor.{operation}", tags=tags):
            yield
        status = "200"
    except KubernetesApiError as error:
        status = str(error.status or status)
        raise
    finally:
        stats().incr(f"kubernetes_executor.{operation}_status", tags={**tags, "status": status})


class Launcher:
    """
    Carries out the executor's commands.

    :param emit: takes each result; must not block
    :param delete_options: fields of ``v1.DeleteOptions`` for every deletion
    :param team_name: for the metrics
    """

    def __init__(
        self,
        client: PodClient,
        *,
        emit: Callable[[Message], None],
        calls: Calls,
        delete_options: Mapping[str, Any] | None = None,
        team_name: str | None = None,
    ) -> None:
        self._client = client
        self._emit = emit
        self._calls = calls
        self._delete_options = delete_options
        self._team_name = team_name
        self._unsent: Counter[str] = Counter()
        """By launch id, the number of create calls that have not been sent."""

    async def create(self, launch_id: str, body: Json) -> None:
        """
        Create the pod of a launch, once; emits :class:`PodCreated` or :class:`PodNotCreated`.

        :param body: with ``metadata.name``, ``metadata.namespace`` and :data:`LAUNCH_ID_ANNOTATION`
        """
        self._unsent[launch_id] += 1
        try:
            created = await self._create(launch_id, body)
        except CreationCancelledError:
            return  # cancel() has emitted the result
        except KubernetesApiError as error:
            self._emit(PodNotCreated(launch_id, error))
        except Exception as error:
            # Without a result, the launch would wait until the scheduler fails the task.
            logger.exception("Unexpected error while creating the pod of launch %s", launch_id)
            self._emit(PodNotCreated(launch_id, KubernetesApiError(repr(error))))
        else:
            self._emit(created)

    async def cancel(self, launch_id: str) -> None:
        """
        Cancel the create call of a launch, if it has not been sent; emits :class:`PodNotCreated` then.

        The call may wait for a slot, or until a pause that the API server has asked for is over. A call after
        the call of the launch's replacement would give one try two pods.
        """
        if self._unsent.pop(launch_id, 0):
            self._emit(PodNotCreated(launch_id, CreationCancelledError("cancelled before it was sent")))

    async def delete(
        self,
        ref: PodRef,
        resource_version: str | None = None,
        scheduler_label: str | None = None,
        *,
        is_housekeeping: bool = False,
    ) -> None:
        """
        Delete a pod, also after a long outage of the API server; emits one of these messages.

        * :class:`PodConfirmed` without facts: it is gone for certain.
        * :class:`PodDeletionAccepted`: it has a grace period. The informer will see when it is gone.
        * :class:`PodNotDeleted`: it was to be deleted only if it had not started, but has; or only if no
          other scheduler had adopted it, but one has.

        :param resource_version: a version at which the pod had not started, or one that no pod has; it is
            deleted only if it still has not. None deletes it unconditionally
        :param scheduler_label: the scheduler's label that it has to have still, if it has changed; None: any
        :param is_housekeeping: whether nothing waits for it
        """
        what = f"Deleting pod {ref}"

        async def request(version: str | None = None) -> PodFacts | None:
            with _measured("pod_deletion", self._team_name):
                answer = await self._client.delete_pod(
                    ref.namespace,
                    ref.name,
                    uid=ref.uid,
                    resource_version=version,
                    options=self._delete_options,
                )
            return _left(answer)

        left: PodFacts | PodNotDeleted | None
        if resource_version is None:
            left = await self._change(what, ref, request, is_housekeeping=is_housekeeping)
        else:
            left = await self._delete_unless_started(what, ref, request, resource_version, scheduler_label)
        if isinstance(left, PodFacts):
            self._emit(PodDeletionAccepted(ref, left.deletion_grace_seconds))
        else:
            self._emit(left or PodConfirmed(ref, None))

    async def look_for(self, namespace: str, name: str, launch_id: str) -> None:
        """
        Look for the pod of a launch whose creation had no clear result; emits :class:`PodCreated` for it.

        If there is none, nothing is emitted, because it may still be created: the API server works on a
        request for up to a minute (``--request-timeout``) after its client has given up. The informer sees
        such a pod.

        .. seealso:: https://kubernetes.io/docs/reference/command-line-tools-reference/kube-apiserver/
        """
        what = f"Looking for pod {namespace}/{name}"
        try:
            pod = await self._calls.until_answered(what, lambda: self._get(namespace, name))
        except PodNotFoundError:
            return
        if _is_of(launch_id, pod):
            self._emit(PodCreated(launch_id, pod))

    async def clean_up(self, ref: PodRef) -> None:
        """Delete a pod that has ended; as :meth:`delete`, but with low priority."""
        await self.delete(ref, is_housekeeping=True)

    async def mark_done(self, ref: PodRef) -> None:
        """Remove an ended pod from the executor's label selector, also after a long outage of the API."""
        await self._label(ref, {DONE_LABEL: "True"}, is_housekeeping=True)

    async def stop_and_keep(self, ref: PodRef) -> None:
        """
        Stop the containers of a pod, and keep the pod as :meth:`mark_done` does.

        The pod's deadline is set to a time in the past. The kubelet stops the containers and keeps the logs.

        .. seealso:: https://kubernetes.io/docs/concepts/workloads/pods/#pod-update-and-replacement
        """
        done = {DONE_LABEL: "True"}
        await self._label(ref, done, is_housekeeping=True, spec={"activeDeadlineSeconds": 1})

    async def adopt(self, ref: PodRef, labels: Mapping[str, str]) -> None:
        """
        Hand a pod over to another scheduler, by its labels; emits :class:`PodConfirmed` if it is gone.

        :param labels: by which that scheduler and its executor select their pods
        """
        if not await self._label(ref, labels):
            self._emit(PodConfirmed(ref, None))

    async def confirm(self, ref: PodRef) -> None:
        """
        Read a pod, also after a long outage of the API server; emits :class:`PodConfirmed`.

        If that is refused for minutes, :class:`PodNotConfirmed`.
        """
        try:
            pod = await self._read(f"Confirming pod {ref}", ref)
        except KubernetesApiError as error:
            logger.warning("Pod %s cannot be read: %s", ref, error)
            self._emit(PodNotConfirmed(ref))
        else:
            self._emit(PodConfirmed(ref, pod))

    async def list_pods(self, namespace: str | None, label_selector: str) -> list[PodFacts]:
        """
        List pods once; malformed ones are skipped.

        :param namespace: None for all
        :raises KubernetesApiError: if the list cannot be had
        """
        listing = await self._client.list_pods(namespace, label_selector=label_selector, read=_read_or_skip)
        return listing.items

    async def _create(self, launch_id: str, body: Json) -> PodCreated:
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]

        async def request() -> PodFacts:
            if not (unsent := self._unsent.pop(launch_id, 0)):
                raise CreationCancelledError("cancelled")
            if unsent > 1:
                self._unsent[launch_id] = unsent - 1
            with _measured("pod_creation", self._team_name):
                answer = await self._client.create_pod(namespace, body)
            return _pod(answer)

        try:
            return PodCreated(launch_id, await self._calls.once(request, patient=True))
        except KubernetesApiError as error:
            if answer_of(error) is not Answer.NAME_TAKEN and not error.leaves_open:
                raise
            pod = await self._look_up(namespace, name, error)
        if not _is_of(launch_id, pod):
            message = f"pod {namespace}/{name} exists and belongs to another launch"
            raise PodConflictError(message, status=409, reason="AlreadyExists")
        return PodCreated(launch_id, pod)

    async def _look_up(self, namespace: str, name: str, error: KubernetesApiError) -> PodFacts:
        try:
            return await self._calls.until_answered(
                f"Looking for pod {namespace}/{name}", lambda: self._get(namespace, name), attempts=LOOKUPS
            )
        except PodNotFoundError:
            raise error from None
        except KubernetesApiError as lookup:
            if error.leaves_open:
                raise error from lookup
            # The name may be taken by the pod of this very launch. Under another name there might be two.
            message = f"{error}; looking for it: {lookup}"
            if lookup.transient:
                raise ConnectionFailedError(message) from lookup
            raise UnknownOwnerError(message, status=lookup.status) from lookup

    async def _delete_unless_started(
        self,
        what: str,
        ref: PodRef,
        request: Callable[[str], Awaitable[PodFacts | None]],
        version: str,
        scheduler_label: str | None,
    ) -> PodFacts | PodNotDeleted | None:
        """
        Delete a pod that has not started, and has the scheduler's label, if given; else say so.

        The attempts are not limited. Each one is made at a version at which the pod has not started.
        """
        for attempt in count(1):
            try:
                return await self._calls.until_answered(what, partial(request, version))
            except PodNotFoundError:
                return None
            except PodConflictError as error:
                if error.is_denied_by_webhook:
                    raise
                await self._calls.pause(what, attempt, error)
            if (pod := await self._read(what, ref)) is None or pod.deletion_timestamp:
                return pod  # by an attempt without an answer, or by somebody else
            if pod.has_started or pod.resource_version is None:
                return PodNotDeleted(pod)
            if scheduler_label and pod.labels.get(SCHEDULER_LABEL) != scheduler_label:
                return PodNotDeleted(pod)
            version = pod.resource_version
        raise AssertionError  # count() does not end

    async def _label(
        self, ref: PodRef, labels: Mapping[str, str], *, is_housekeeping: bool = False, **more: Json
    ) -> bool:
        # The UID in the patch is its precondition: it cannot change another pod of that name.
        body = {"metadata": {"uid": ref.uid, "labels": dict(labels)}, **more}

        async def request() -> PodFacts:
            with _measured("pod_patching", self._team_name):
                answer = await self._client.patch_pod(ref.namespace, ref.name, body)
            return _pod(answer)

        what = f"Labelling pod {ref}"
        return await self._change(what, ref, request, is_housekeeping=is_housekeeping) is not None

    async def _change(
        self, what: str, ref: PodRef, request: Callable[[], Awaitable[T | None]], *, is_housekeeping: bool
    ) -> T | None:
        """Carry out a request with a UID as its precondition; None if no pod with that UID exists."""
        for attempt in count(1):
            try:
                return await self._calls.until_answered(what, request, is_housekeeping=is_housekeeping)
            except PodNotFoundError:
                return None
            except KubernetesApiError as error:
                # If the UID is another one, a delete gets 409 and a patch 422. Both have other causes too. A
                # 409 may be a concurrent change, and is then repeated.
                if error.status not in (409, 422) or error.is_denied_by_webhook:
                    raise
                if await self._read(what, ref) is None:
                    return None
                if error.status == 422:
                    raise
                await self._calls.pause(what, attempt, error)
        raise AssertionError  # count() does not end

    async def _get(self, namespace: str, name: str) -> PodFacts:
        return _pod(await self._client.get_pod(namespace, name))

    async def _read(self, what: str, ref: PodRef) -> PodFacts | None:
        try:
            pod = await self._calls.until_answered(what, lambda: self._get(ref.namespace, ref.name))
        except PodNotFoundError:
            return None
        return pod if pod.ref.uid == ref.uid else None


def _pod(answer: Json) -> PodFacts:
    """
    Read the answer to a request about a pod.

    :raises ForeignAnswerError: if it is none
    """
    try:
        return read_pod(answer)
    except MalformedPodError as error:
        raise ForeignAnswerError(f"not a pod: {error}") from error


def _left(answer: Json) -> PodFacts | None:
    """
    Read the answer to a deletion; None if there is no pod any more.

    .. seealso:: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination
    """
    if answer.get("kind") == "Status" and answer.get("status") != "Failure":
        return None
    pod, metadata = _pod(answer), answer["metadata"]
    is_removed = metadata.get("deletionGracePeriodSeconds") == 0 and not metadata.get("finalizers")
    return None if is_removed else pod


def _is_of(launch_id: str, pod: PodFacts) -> bool:
    return pod.annotations.get(LAUNCH_ID_ANNOTATION) == launch_id


def _read_or_skip(manifest: Json) -> PodFacts | None:
    try:
        return read_pod(manifest)
    except MalformedPodError as error:
        logger.warning("Ignoring an object in the list of pods: %s", error)
        return None
