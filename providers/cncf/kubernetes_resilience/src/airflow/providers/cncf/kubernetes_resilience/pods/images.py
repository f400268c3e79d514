# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
The parts of an image's name. Pure.

.. seealso:: https://kubernetes.io/docs/concepts/containers/images/#image-names
"""

from __future__ import annotations

from urllib.parse import quote

DOCKER_HUB = "docker.io"
"""The registry of an image that names none."""

_OLD_NAMES = frozenset({"index.docker.io", "registry-1.docker.io"})


def registry_of(image: str) -> str:
    """Return the registry's host of an image, with its port if it has one."""
    host, _ = _host_and_path(image)
    return DOCKER_HUB if host in _OLD_NAMES else host


def without_name(message: str, image: str | None) -> str:
    """Return a message about an image without that image's name, which a Dag's author has chosen."""
    if not image:
        return message
    path = image.partition("@")[0]
    _, repository = _host_and_path(path)
    name, colon, tag = repository.rpartition(":")
    # Runtimes show the name in full, and registries without their host, or without the tag. A token is asked
    # for with it, too.
    asked = "%3A" + quote(name or repository, safe="")
    for part in (image, path, f"/{repository}", *((f"/{name}", f":{tag}") if colon else ()), asked):
        message = message.replace(part, "")
    return message


def _host_and_path(image: str) -> tuple[str, str]:
    host, slash, path = image.partition("/")
    is_host = slash and ("." in host or ":" in host or host.lower() == "localhost")
    return (host.lower(), path) if is_host else (DOCKER_HUB, image)
