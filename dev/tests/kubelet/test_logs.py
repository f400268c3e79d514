# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import time_machine
from aiohttp.test_utils import TestClient, TestServer

from cluster_lab.kubelet.logs import LogDirectory, copy_output, log_line

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.fixture
async def logs(tmp_path: Path) -> AsyncIterator[TestClient]:
    directory = LogDirectory(tmp_path)
    pod = directory.of_pod("default", "load", "u1")
    with (pod / "base.log").open("wb") as file, time_machine.travel(NOON, tick=False) as clock:
        for text in (b"one", b"two", b"three"):
            file.write(log_line(text))
            clock.shift(60)
    async with TestClient(TestServer(directory.application())) as client:
        yield client


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("", "one\ntwo\nthree\n"),
        ("tailLines=2", "two\nthree\n"),
        ("tailLines=0", ""),
        ("sinceSeconds=100", "two\nthree\n"),
        ("sinceSeconds=100&tailLines=1", "three\n"),
        ("tailLines=1&timestamps=true", "2026-11-20T12:02:00.000000Z three\n"),
    ],
)
async def test_log_lines_are_selected(logs: TestClient, query: str, text: str) -> None:
    with time_machine.travel(NOON.replace(minute=2, second=30), tick=False):
        response = await logs.get(f"/containerLogs/default/load/base?{query}")
        assert await response.text() == text


@pytest.mark.parametrize(("path", "status"), [("default/load/sidecar", 400), ("default/other/base", 404)])
async def test_a_log_that_does_not_exist_is_an_error(logs: TestClient, path: str, status: int) -> None:
    response = await logs.get(f"/containerLogs/{path}")
    assert response.status == status


async def test_of_two_pods_with_one_name_the_newer_is_served(tmp_path: Path) -> None:
    directory = LogDirectory(tmp_path)
    for age, uid in enumerate(("u2", "u1")):
        pod = directory.of_pod("default", "load", uid)
        (pod / "base.log").write_bytes(log_line(uid.encode()))
        time = NOON.timestamp() - age
        os.utime(pod, (time, time))
    async with TestClient(TestServer(directory.application())) as client:
        response = await client.get("/containerLogs/default/load/base")
        assert await response.text() == "u2\n"


async def test_output_is_copied_line_by_line_whatever_its_chunks(tmp_path: Path) -> None:
    read, write = os.pipe()
    copying = asyncio.create_task(copy_output(read, tmp_path / "log"))
    with os.fdopen(write, "wb") as output:
        await asyncio.to_thread(output.write, b"a" * 100_000 + b"\nshort\n\nlast")
    await copying
    texts = [line.split(b" ", 3)[3] for line in (tmp_path / "log").read_bytes().splitlines()]
    assert texts == [b"a" * 100_000, b"short", b"", b"last"]
