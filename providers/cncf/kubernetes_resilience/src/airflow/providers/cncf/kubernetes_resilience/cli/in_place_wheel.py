# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""
``airflow kubernetes-resilience build-provider-wheel``: the official provider's wheel, with this executor.

The official module is moved unchanged, and a new module takes its place, with all names of the official one,
but this executor. So ``executor = KubernetesExecutor`` means this executor, and nothing else of the provider
changes.

.. seealso:: https://packaging.python.org/en/latest/specifications/binary-distribution-format/
"""

from __future__ import annotations

import io
import re
import sys
import zlib
from argparse import Namespace
from importlib import metadata
from pathlib import Path
from typing import NamedTuple
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

from installer.records import Hash, InvalidRecordEntry, RecordEntry, parse_record_file
from installer.sources import WheelFile
from installer.utils import Scheme, construct_record_file, copyfileobj_with_hashing, parse_metadata_file
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from airflow.providers.cncf.kubernetes_resilience.cli.errors import CommandError
from airflow.providers.cncf.kubernetes_resilience.executors.upstream import (
    MOVED_EXECUTOR_MODULE,
    OFFICIAL_EXECUTOR_MODULE,
)

OFFICIAL = "apache-airflow-providers-cncf-kubernetes"
OURS = ("airflow-provider-cncf-kubernetes-resilience", "airflow-resilience")

LOCAL_VERSION = "resilience.1"
"""Part of the new version after the ``+``. The number changes with the way of making the wheel."""

_EXECUTOR = f"{OFFICIAL_EXECUTOR_MODULE.replace('.', '/')}.py"
_MOVED_EXECUTOR = f"{MOVED_EXECUTOR_MODULE.replace('.', '/')}.py"
_DISTRIBUTION = OFFICIAL.replace("-", "_")
_NOTICE = "licenses/NOTICE"
_SCHEME = Scheme("purelib")
"""All files of the wheel go to one place."""

_NEW_EXECUTOR = f'''\
# Licensed under the Apache License, Version 2.0: https://www.apache.org/licenses/LICENSE-2.0
# SPDX-License-Identifier: Apache-2.0
#
# NOTICE: this is not the file of the Apache Software Foundation. Airflow Resilience has put it into the
# place of that one, which is beside it, unchanged: {Path(_MOVED_EXECUTOR).name}
"""All that the official module has, with the executor of Airflow Resilience for the official one."""

from __future__ import annotations

from {MOVED_EXECUTOR_MODULE.rpartition(".")[0]} import {MOVED_EXECUTOR_MODULE.rpartition(".")[2]} as _official

globals().update({{name: value for name, value in vars(_official).items() if not name.startswith("__")}})

# Last: it takes the place of the official class.
from airflow.providers.cncf.kubernetes_resilience.executors.kubernetes_executor import KubernetesExecutor
'''

_CHANGES = f"""\
This is {OFFICIAL} {{official}} with modifications, made by
Airflow Resilience {{ours}}. It is not a release of the Apache Software Foundation. What has changed:
{_EXECUTOR}
is a new file (the original is {Path(_MOVED_EXECUTOR).name} beside it); METADATA has another
version, two more requirements and this notice; NOTICE has this notice.
"""

_ATTRIBUTION = """
Airflow Resilience
Copyright 2026 The Airflow Resilience authors
"""


class _Member(NamedTuple):
    """A file of a wheel."""

    info: ZipInfo
    """Entry of the official wheel, whose time and attributes the new entry has."""
    data: bytes


class _Wheel(NamedTuple):
    """The used parts of a wheel."""

    version: Version
    tag: str
    """Rest of the file name: a build number, the Python tag and so on."""
    dist_info: str
    """Name of the folder with the metadata."""
    members: dict[str, _Member]


def build_provider_wheel(args: Namespace) -> int:
    """
    Make a wheel of the provider with this executor under the official one's path, and print its path.

    The same input gives the same bytes: the times of its files are those of the official wheel.
    """
    wheel, folder = _read(Path(args.official)), Path(args.folder)
    version = Version(f"{wheel.version}+{LOCAL_VERSION}")
    target = folder / f"{_DISTRIBUTION}-{version}-{wheel.tag}"
    content = _archive(_modify(wheel, version))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            file.write(content)
    except FileExistsError as error:
        raise CommandError(f"{error.filename} exists already") from error
    except OSError as error:
        raise CommandError(f"{target} cannot be written: {error.strerror}") from error
    sys.stdout.write(f"{target}\n")
    return 0


def _read(path: Path) -> _Wheel:
    try:
        with ZipFile(path) as archive:
            return _checked(path, archive, WheelFile(archive))
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}") from error
    except (BadZipFile, EOFError, zlib.error) as error:
        raise CommandError(f"{path} is not a wheel: {error}") from error
    except (ValueError, KeyError, InvalidRecordEntry) as error:
        # These are raised for the wheel's name, its dist-info folder, or the content of that folder.
        raise CommandError(f"{path} is not a wheel as it should be: {_problem(path, error)}") from error


def _problem(path: Path, error: Exception) -> str:
    """Return the first of the library's problems, which may be one for each file."""
    first, *more = getattr(error, "issues", None) or [str(error)]
    problem = str(first).removeprefix(f"In {path}, ")
    return f"{problem}, and {len(more)} problems more" if more else problem


def _checked(path: Path, archive: ZipFile, source: WheelFile) -> _Wheel:
    """
    Read a wheel that can be used.

    :raises CommandError: for a wheel that cannot be used
    :raises ValueError: if the file is no wheel
    """
    about = parse_metadata_file(source.read_dist_info("METADATA"))
    if canonicalize_name(str(about["Name"])) != OFFICIAL:
        raise CommandError(f"{path} is a wheel of {about['Name']}, and not of {OFFICIAL}")
    version, supported = Version(str(about["Version"])), _supported()
    if version.local:
        raise CommandError(f"{path} has been modified already: {version} is not an official version")
    if not supported.contains(version, prereleases=True):
        raise CommandError(f"{path} is version {version}; supported are {supported}")
    if signatures := [name for name in source.dist_info_filenames if name.startswith("RECORD.")]:
        raise CommandError(
            f"{path} is signed ({', '.join(signatures)}), and no signature holds for another wheel"
        )
    _check_record(source, archive)
    for name in (_EXECUTOR, f"{source.dist_info_dir}/{_NOTICE}"):
        archive.getinfo(name)
    members = {
        info.filename: _Member(info, archive.read(info)) for info in archive.infolist() if not info.is_dir()
    }
    return _Wheel(version, path.name.split("-", 2)[2], source.dist_info_dir, members)


def _check_record(source: WheelFile, archive: ZipFile) -> None:
    """
    Compare the files with ``RECORD``.

    :raises ValueError: if a file differs from ``RECORD``, is missing, or is not named
    :raises InvalidRecordEntry: if ``RECORD`` cannot be read
    """
    lines = source.read_dist_info("RECORD").splitlines()
    named = {name for name, _, _ in parse_record_file(lines)}
    # The library checks only that existing files are named.
    if lost := sorted(named.difference(archive.namelist())):
        raise ValueError(f"{lost[0]} is named in RECORD, and is not there")
    source.validate_record()


def _supported() -> SpecifierSet:
    """Return the official versions that this provider can be installed with."""
    required = map(Requirement, metadata.requires(OURS[0]) or ())
    return next(requirement.specifier for requirement in required if requirement.name == OFFICIAL)


def _modify(wheel: _Wheel, version: Version) -> dict[str, _Member]:
    """Return the members of the new wheel. ``RECORD`` is the last one, as the specification recommends."""
    members = dict(wheel.members)
    official = members[_EXECUTOR]
    members[_MOVED_EXECUTOR] = official
    members[_EXECUTOR] = official._replace(data=_NEW_EXECUTOR.encode())

    changes = _CHANGES.format(official=wheel.version, ours=metadata.version(OURS[0]))
    dist_info = f"{_DISTRIBUTION}-{version}.dist-info"
    described = {
        f"{dist_info}/{name.removeprefix(f'{wheel.dist_info}/')}": members.pop(name)
        for name in wheel.members
        if name.startswith(f"{wheel.dist_info}/")
    }
    about, notice = described[f"{dist_info}/METADATA"], described[f"{dist_info}/{_NOTICE}"]
    described[f"{dist_info}/METADATA"] = about._replace(data=_describe(about.data, version, changes))
    described[f"{dist_info}/{_NOTICE}"] = notice._replace(
        data=notice.data.rstrip() + f"\n\n\n{changes}{_ATTRIBUTION}".encode()
    )
    members |= described

    record = members.pop(f"{dist_info}/RECORD")
    entries = [(_SCHEME, _entry(name, member.data)) for name, member in members.items()]
    with construct_record_file([*entries, (_SCHEME, RecordEntry(f"{dist_info}/RECORD", None, None))]) as file:
        members[f"{dist_info}/RECORD"] = record._replace(data=file.read())
    return members


def _describe(about: bytes, version: Version, changes: str) -> bytes:
    """
    Change the metadata: version, requirements, and a notice of the changes.

    The metadata are changed as text: a parser of mails would fold and encode other lines anew.
    """
    fields, _, description = about.decode().partition("\n\n")
    fields = re.sub(r"^Version: .*$", f"Version: {version}", fields, count=1, flags=re.MULTILINE)
    required = "".join(f"\nRequires-Dist: {name}>={metadata.version(name)}" for name in OURS)
    return f"{fields}{required}\n\n{changes}\n{description}".encode()


def _entry(name: str, data: bytes) -> RecordEntry:
    value, size = copyfileobj_with_hashing(io.BytesIO(data), io.BytesIO(), "sha256")
    return RecordEntry(name, Hash("sha256", value), size)


def _archive(members: dict[str, _Member]) -> bytes:
    content = io.BytesIO()
    with ZipFile(content, "w", ZIP_DEFLATED) as archive:
        for name, member in members.items():
            info = ZipInfo(name, member.info.date_time)
            info.external_attr, info.create_system = member.info.external_attr, member.info.create_system
            archive.writestr(info, member.data, ZIP_DEFLATED)
    return content.getvalue()
