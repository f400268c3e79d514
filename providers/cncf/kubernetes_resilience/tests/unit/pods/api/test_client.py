# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Lists, watches and options of the client, over a transport that answers what the test says."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow.providers.cncf.kubernetes_resilience.pods.api.client import PodClient, WatchEvent, delete_options
from airflow.providers.cncf.kubernetes_resilience.pods.api.errors import (
    ConnectionFailedError,
    KubernetesApiError,
    ResourceExpiredError,
)
from airflow.providers.cncf.kubernetes_resilience.pods.api.transport import LineSplitter


class Transport:
    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.sent: list[tuple[Any, ...]] = []

    async def request(self, method: str, path: str, path_params: Any, **more: Any) -> Any:
        self.sent.append((method, path.format(**path_params), more.get("query") or more.get("body")))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def stream(self, path: str, path_params: Any, *, query: Any, **_: Any) -> AsyncGenerator[Any]:
        self.sent.append(("GET", path.format(**path_params), query))
        for line in self.answers.pop(0):
            yield line


def page(*names: str, version: str, token: str | None = None) -> dict[str, Any]:
    return {"items": list(names), "metadata": {"resourceVersion": version, "continue": token}}


async def listed(*answers: Any, namespace: str | None = "airflow") -> tuple[Any, list[tuple[Any, ...]]]:
    transport = Transport(*answers)
    read = {"a": "A", "b": "B", "c": "C"}.get
    listing = await PodClient(transport).list_pods(namespace, label_selector="x=y", read=read)  # type: ignore[arg-type]
    return listing, transport.sent


async def test_list_follows_the_pages() -> None:
    listing, sent = await listed(page("a", "skip", version="5", token="t1"), page("b", version="5"))
    assert (listing.items, listing.resource_version) == (["A", "B"], "5")
    first = {"labelSelector": "x=y", "limit": "500"}
    url = "/api/v1/namespaces/airflow/pods"
    assert sent == [("GET", url, first), ("GET", url, {**first, "continue": "t1"})]


async def test_list_begins_again_without_pages_when_its_snapshot_expires() -> None:
    expired = ResourceExpiredError("too old", status=410)
    listing, sent = await listed(page("a", version="5", token="t1"), expired, page("b", "c", version="9"))
    # "a" was seen in the first attempt only: it must not survive as a pod that the watch never ends.
    assert (listing.items, listing.resource_version) == (["B", "C"], "9")
    assert sent[2][2] == {"labelSelector": "x=y"}


@pytest.mark.parametrize("items", [None, []])
async def test_list_of_nothing(items: Any) -> None:
    listing, sent = await listed({"items": items, "metadata": {"resourceVersion": "1"}}, namespace=None)
    assert listing.items == []
    assert sent[0][1] == "/api/v1/pods"


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"message": "the cluster is being started"},
        {"kind": "Status", "metadata": {}, "status": "Failure", "code": 500},
        {"items": [], "metadata": {"resourceVersion": ""}},
        {"items": [], "metadata": "no"},
        {"items": "no", "metadata": {"resourceVersion": "1"}},
    ],
    ids=str,
)
@pytest.mark.parametrize("before", [[], [page("a", version="5", token="t1")]], ids=["first", "next"])
async def test_an_answer_that_is_no_list_is_no_list_of_nothing(before: list[Any], answer: Any) -> None:
    """All pods would be gone, and their tasks lost."""
    with pytest.raises(ConnectionFailedError):
        await listed(*before, answer)


async def watched(*lines: dict[str, Any]) -> list[WatchEvent]:
    events = PodClient(Transport(lines)).watch_pods(  # type: ignore[arg-type]
        None, label_selector="x=y", resource_version="3", timeout_seconds=300, inactivity_timeout=90
    )
    return [event async for event in events]


async def test_watch_yields_events() -> None:
    assert await watched({"type": "ADDED", "object": {"a": 1}}, {"type": "BOOKMARK", "object": None}) == [
        WatchEvent("ADDED", {"a": 1}),
        WatchEvent("BOOKMARK", {}),
    ]


@pytest.mark.parametrize(
    ("status", "class_", "code"),
    [
        ({"code": 410, "reason": "Expired"}, ResourceExpiredError, 410),
        ({"code": 504, "reason": "Timeout"}, KubernetesApiError, 504),
        (None, KubernetesApiError, 500),
    ],
)
async def test_error_event_is_raised(status: Any, class_: type[KubernetesApiError], code: int) -> None:
    with pytest.raises(class_) as caught:
        await watched({"type": "ERROR", "object": status})
    assert caught.value.status == code


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"error": "no"},
        {"kind": "Status", "code": 503},
        {"type": 1},
        {"type": []},
        {"type": "about:blank"},
    ],
    ids=str,
)
async def test_a_line_that_is_no_event_is_a_proxys(line: dict[str, Any]) -> None:
    """A watch that has shown an event is resumed at once."""
    with pytest.raises(ConnectionFailedError):
        await watched(line)


async def test_delete_carries_precondition_and_options() -> None:
    transport = Transport({})
    options = delete_options({"grace_period_seconds": 5, "propagation_policy": "Foreground"})
    await PodClient(transport).delete_pod("ns", "p", uid="u", options=options)  # type: ignore[arg-type]
    assert transport.sent == [
        (
            "DELETE",
            "/api/v1/namespaces/ns/pods/p",
            {
                "kind": "DeleteOptions",
                "apiVersion": "v1",
                "gracePeriodSeconds": 5,
                "propagationPolicy": "Foreground",
                "preconditions": {"uid": "u"},
            },
        )
    ]


async def test_delete_of_a_version_names_it_beside_the_uid() -> None:
    transport = Transport({})
    await PodClient(transport).delete_pod("ns", "p", uid="u", resource_version="7")  # type: ignore[arg-type]
    ((_, _, sent),) = transport.sent
    assert sent["preconditions"] == {"uid": "u", "resourceVersion": "7"}


def test_unknown_delete_option_is_refused_by_name() -> None:
    with pytest.raises(
        ValueError, match=r"delete_option_kwargs: gracePeriod, x not known; .*grace_period_seconds"
    ):
        delete_options({"x": 1, "gracePeriod": 2, "grace_period_seconds": 3})


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("grace_period_seconds", "30", "a whole number, without quotes"),
        ("grace_period_seconds", 1.5, "a whole number, without quotes"),
        ("grace_period_seconds", True, "a whole number, without quotes"),
        ("orphan_dependents", "true", "true or false, without quotes"),
        ("kind", 5, "a text"),
        *(
            ("propagation_policy", value, "Background, Foreground, Orphan")
            for value in (5, True, "", "foreground", "FOREGROUND", "Foreground ", "Delete")
        ),
    ],
)
def test_deletion_option_with_an_unusable_value_is_refused(name: str, value: object, allowed: str) -> None:
    # A real API server answers 500 or 422 to a deletion with it.
    with pytest.raises(ValueError, match=f"{name} = {value!r} cannot be used; allowed is: {allowed}"):
        delete_options({name: value})


def test_deletion_option_without_a_value_is_none() -> None:
    assert delete_options({"grace_period_seconds": None}) == {"gracePeriodSeconds": None}


@given(st.lists(st.binary(min_size=1).filter(lambda line: b"\n" not in line and line.strip())), st.data())
def test_lines_are_found_however_the_stream_is_cut(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    cuts = data.draw(st.lists(st.integers(0, len(stream))).map(sorted))
    splitter = LineSplitter()
    found = [
        line
        for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        for line in splitter.feed(stream[begin:end])
    ]
    assert found == [line.strip() for line in lines]
    assert not splitter.incomplete


def test_line_without_an_end_is_incomplete() -> None:
    splitter = LineSplitter()
    assert list(splitter.feed(b'{"a":1}\n\n{"b"')) == [b'{"a":1}']
    assert splitter.incomplete
