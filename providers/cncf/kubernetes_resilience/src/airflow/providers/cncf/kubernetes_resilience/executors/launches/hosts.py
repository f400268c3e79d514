# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
In which pod a task runs, by the host name that its worker has reported.

Pure. By default the host name is the pod's name, or begins with it; ``[core] hostname_callable`` may make it
the pod's address, or anything else.

.. seealso:: https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/#pod-s-hostname-and-subdomain-fields
"""

from __future__ import annotations

from enum import Enum, auto
from ipaddress import ip_address
from typing import Final

HOSTNAME_LENGTH: Final = 63
"""Characters of a pod's name that its host name has at most."""

_UNIQUE_SUFFIX_LENGTH: Final = 9
"""A dash and eight random characters end the name of each worker pod."""


class Place(Enum):
    """Where a worker runs, as seen from one pod of its task instance."""

    HERE = auto()
    """In this pod."""
    ELSEWHERE = auto()
    """In another pod."""
    UNKNOWN = auto()
    """The host name says nothing about this pod."""


def locate(hostname: str | None, *, name: str, addresses: str = "") -> Place:
    """
    Say whether a host name is that of a pod.

    :param hostname: what the worker has reported
    :param name: of the pod
    :param addresses: of the pod, separated by commas; empty if they are not known
    """
    if not hostname:
        return Place.UNKNOWN
    if _is_address(hostname):
        if not addresses:
            return Place.UNKNOWN
        return Place.HERE if _same_address(hostname, addresses) else Place.ELSEWHERE
    # A longer name is cut, and what is cut off is what makes it unique.
    if len(name) <= HOSTNAME_LENGTH and _begins_with(hostname, name):
        return Place.HERE
    return Place.ELSEWHERE if _is_sibling(hostname, name) else Place.UNKNOWN


def runs_in(hostname: str | None, *, name: str, addresses: str = "", is_alone: bool) -> bool:
    """
    Say whether a task that runs, runs in a pod.

    :param is_alone: whether its task instance has had no other pod: only this one can have started it then,
        whatever its host is called
    """
    place = locate(hostname, name=name, addresses=addresses)
    return place is Place.HERE or (place is Place.UNKNOWN and is_alone)


def _begins_with(hostname: str, name: str) -> bool:
    return hostname == name or hostname.startswith(f"{name}.")


def _is_address(hostname: str) -> bool:
    try:
        ip_address(hostname)
    except ValueError:
        return False
    return True


def _same_address(hostname: str, addresses: str) -> bool:
    wanted = ip_address(hostname)
    return any(_is_address(item) and ip_address(item) == wanted for item in addresses.split(","))


def _is_sibling(hostname: str, name: str) -> bool:
    """
    Say whether a host name is that of another pod of the same task.

    A name that a pod override fixes is the first launch's as it is, and that of later ones with a suffix.
    """
    stem = name[:-_UNIQUE_SUFFIX_LENGTH]
    if len(name) > HOSTNAME_LENGTH or not stem:
        return False
    suffix = hostname[len(stem) :].partition(".")[0]
    is_unique = len(suffix) == _UNIQUE_SUFFIX_LENGTH and suffix[0] == "-" and suffix[1:].isalnum()
    return hostname.startswith(stem) and (not suffix or is_unique)
