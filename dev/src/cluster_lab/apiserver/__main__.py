# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""The server as a process: prints its URL when it is ready and stops on SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path

from cluster_lab.apiserver import ApiServer


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m cluster_lab.apiserver", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port")
    parser.add_argument("--token", help="bearer token that clients have to send")
    parser.add_argument("--kubeconfig", type=Path, help="file to write for clients")
    parser.add_argument(
        "--no-controllers", action="store_true", help="no scheduler, no pod garbage collector"
    )
    return parser.parse_args()


async def _run(arguments: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = ApiServer(arguments.host, arguments.port, arguments.token, not arguments.no_controllers)
    async with server:
        if arguments.kubeconfig:
            server.write_kubeconfig(arguments.kubeconfig)
        print(server.url, flush=True)
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(_run(_arguments()))
