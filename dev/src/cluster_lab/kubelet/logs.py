# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
Container logs: written line by line with their times, served as a kubelet serves them.

The files have the format that container runtimes use, so that ``sinceSeconds`` and ``timestamps`` work.

.. seealso:: https://kubernetes.io/docs/concepts/cluster-administration/logging/
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from aiohttp import web

_CHUNK = 65536


async def copy_output(pipe: int, path: Path) -> None:
    """
    Copy a process's output to a log file until it ends.

    :param pipe: file descriptor of the reading end; it is closed
    """
    stream = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(stream)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(pipe, "rb", buffering=0))
    rest = b""
    try:
        with path.open("ab", buffering=0) as file:
            while chunk := await stream.read(_CHUNK):
                *lines, rest = (rest + chunk).split(b"\n")
                file.write(b"".join(map(log_line, lines)))
            if rest:
                file.write(log_line(rest))
    finally:
        transport.close()


def log_line(text: bytes) -> bytes:
    """Return one line of a log file: time, stream, a tag (full line) and the text."""
    time = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return time.encode() + b" stdout F " + text + b"\n"


class LogDirectory:
    """The logs of all pods of the lab: one directory for each pod, one file for each container in it."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def of_pod(self, namespace: str, name: str, uid: str) -> Path:
        """Create and return the directory of a pod."""
        path = self._root / f"{namespace}_{name}_{uid}"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def application(self) -> web.Application:
        """Return the part of a kubelet's HTTP interface that serves logs."""
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._get)
        return app

    async def _get(self, request: web.Request) -> web.Response:
        names = request.match_info
        # "_" is in no Kubernetes name, so the pattern cannot hit the logs of another pod.
        found = self._root.glob(f"{names['namespace']}_{names['pod']}_*")
        newest = max(found, key=lambda path: path.stat().st_mtime, default=None)
        if newest is None:
            return web.Response(status=404, text=f"pod {names['namespace']}/{names['pod']} not found")
        file = newest / f"{names['container']}.log"
        if not file.exists():
            text = f'container "{names["container"]}" in pod "{names["pod"]}" is waiting to start'
            return web.Response(status=400, text=text)
        lines = file.read_bytes().splitlines(keepends=True)
        return web.Response(body=b"".join(_select(lines, request)), content_type="text/plain")


def _select(lines: list[bytes], request: web.Request) -> Iterator[bytes]:
    query = request.query
    selected: Iterable[bytes] = lines
    if "sinceSeconds" in query:
        since = datetime.now(UTC) - timedelta(seconds=int(query["sinceSeconds"]))
        selected = [line for line in lines if _time(line) >= since]
    if "tailLines" in query:
        count = int(query["tailLines"])
        selected = list(selected)[-count:] if count else []
    with_times = query.get("timestamps") == "true"
    for line in selected:
        time, _, _, text = line.split(b" ", 3)
        yield time + b" " + text if with_times else text


def _time(line: bytes) -> datetime:
    return datetime.fromisoformat(line.split(b" ", 1)[0].decode())
