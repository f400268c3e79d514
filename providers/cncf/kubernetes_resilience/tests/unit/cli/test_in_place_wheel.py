# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""Wheels that are made of the official ones, the oldest and the newest that are supported."""

from __future__ import annotations

import ast
import os
import re
import shutil
import time
from email import message_from_string
from importlib.metadata import requires, version
from pathlib import Path
from zipfile import ZipFile

import pytest
from installer.sources import WheelFile
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename

from breeze.distributions import fetch_official_wheel

OFFICIAL = "apache_airflow_providers_cncf_kubernetes"
EXECUTORS = "airflow/providers/cncf/kubernetes/executors"
VERSIONS = ("10.21.0", "10.25.0")


@pytest.fixture(scope="module", params=VERSIONS)
def official(request):
    return fetch_official_wheel(request.param)


@pytest.fixture
def newest():
    return fetch_official_wheel(VERSIONS[-1])


@pytest.fixture
def build(run, tmp_path):
    """Give a function that makes a wheel and returns where it is."""

    def built(official: Path, folder: Path = tmp_path / "made") -> Path:
        code, out, err = run("build-provider-wheel", "--from", official, "--output", folder)
        assert (code, err) == (0, "")
        return Path(out.removesuffix("\n"))

    return built


def content(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel; those about it go by their names alone."""
    with ZipFile(wheel) as archive:
        return {
            info.filename.partition(".dist-info/")[2] or info.filename: archive.read(info)
            for info in archive.infolist()
        }


def test_nothing_but_the_executor_and_what_the_wheel_says_of_itself_is_changed(official, build):
    before, after = content(official), content(build(official))
    new = f"{EXECUTORS}/official_kubernetes_executor.py"
    assert after.keys() - before.keys() == {new}
    assert before.keys() - after.keys() == set()
    assert {name for name in before if before[name] != after[name]} == {
        f"{EXECUTORS}/kubernetes_executor.py",
        "METADATA",
        "RECORD",
        "licenses/NOTICE",
    }
    assert after[new] == before[f"{EXECUTORS}/kubernetes_executor.py"]


def test_version_is_a_local_one(official, build):
    wheel = build(official)
    _, made, build_number, tags = parse_wheel_filename(wheel.name)
    _, before, _, official_tags = parse_wheel_filename(official.name)
    assert (made.public, made.local) == (before.public, "resilience.1")
    assert (build_number, tags) == ((), official_tags)
    with ZipFile(wheel) as archive:
        folders = {path.split("/")[0] for path in archive.namelist()}
    assert folders == {"airflow", f"{OFFICIAL}-{made}.dist-info"}


def test_record_names_every_file_with_its_hash(official, build):
    with WheelFile.open(build(official)) as wheel:
        wheel.validate_record()
        lines = wheel.read_dist_info("RECORD").splitlines()
    with WheelFile.open(official) as wheel:
        assert len(lines) == len(wheel.read_dist_info("RECORD").splitlines()) + 1


def test_metadata_asks_for_our_distributions_and_is_otherwise_as_it_was(official, build):
    before, after = (content(wheel)["METADATA"].decode() for wheel in (official, build(official)))
    made = Metadata.from_email(after)
    assert made.version.local == "resilience.1"
    fields, old_fields = (message_from_string(text).items() for text in (after, before))
    ours = ("airflow-provider-cncf-kubernetes-resilience", "airflow-resilience")
    assert set(fields) - set(old_fields) == {
        ("Version", str(made.version)),
        *(("Requires-Dist", f"{name}>={version(name)}") for name in ours),
    }
    assert set(old_fields) - set(fields) == {("Version", made.version.public)}
    notice, _, description = after.partition("\n\n")[2].partition("\n\n")
    assert description == before.partition("\n\n")[2]
    assert "with modifications" in notice


def test_our_own_requirement_accepts_what_is_made(official, build):
    made = parse_wheel_filename(build(official).name)[1]
    (accepted,) = (
        requirement.specifier
        for requirement in map(Requirement, requires("airflow-provider-cncf-kubernetes-resilience") or ())
        if requirement.name == OFFICIAL.replace("_", "-")
    )
    assert made in accepted


def test_changed_files_say_that_they_are_changed(official, build):
    before, after = content(official), content(build(official))
    notice = after["licenses/NOTICE"].decode()
    assert notice.startswith(before["licenses/NOTICE"].decode().rstrip())
    assert "not a release of the Apache Software Foundation" in notice
    assert f"{EXECUTORS}/kubernetes_executor.py" in notice
    module = after[f"{EXECUTORS}/kubernetes_executor.py"].decode()
    assert "NOTICE: this is not the file of the Apache Software Foundation" in module
    ast.parse(module)


def test_same_input_gives_the_same_bytes(official, build, tmp_path, monkeypatch):
    first = build(official)
    # Neither the clock nor where and when the input was written is in there.
    monkeypatch.setattr(time, "time", lambda: 2_000_000_000.0)
    monkeypatch.chdir(tmp_path)
    moved = Path(shutil.copy(official, tmp_path / official.name))
    os.utime(moved, (1_500_000_000, 1_500_000_000))
    second = build(Path(moved.name), Path("elsewhere", "deeper"))
    assert second == Path("elsewhere", "deeper", first.name)
    assert first.read_bytes() == second.read_bytes()
    with ZipFile(first) as new, ZipFile(official) as old:
        assert {info.date_time for info in new.infolist()} <= {info.date_time for info in old.infolist()}


def test_without_a_folder_it_is_made_here(newest, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = run("build-provider-wheel", "--from", newest)
    assert (code, out) == (0, f"{OFFICIAL}-10.25.0+resilience.1-py3-none-any.whl\n")
    assert Path(out.strip()).exists()


# ---------------------------------------------------------------------- what cannot be used


def modified(wheel: Path, folder: Path, end: str, content: bytes | None) -> Path:
    """
    Write a wheel with another file in it.

    :param end: of the file's name
    :param content: None leaves it out
    """
    new = folder / wheel.name
    with ZipFile(wheel) as old, ZipFile(new, "w") as archive:
        for path in old.namelist():
            data = content if path.endswith(end) else old.read(path)
            if data is not None:
                archive.writestr(path, data)
    return new


@pytest.fixture
def refused(run, tmp_path):
    """Give a function that has a wheel refused, and returns why; nothing is written."""

    def reason(wheel: Path) -> str:
        folder = tmp_path / "made"
        code, out, err = run("build-provider-wheel", "--from", wheel, "--output", folder)
        assert (code, out) == (2, "")
        assert not folder.exists()
        (line,) = err.splitlines()
        assert line.startswith(f"{wheel} ")
        return line.removeprefix(f"{wheel} ")

    return reason


def test_file_that_is_not_there_or_cannot_be_read(refused, tmp_path):
    assert refused(tmp_path / "none.whl") == "cannot be read: No such file or directory"
    assert refused(tmp_path) == "cannot be read: Is a directory"


def test_what_is_no_wheel(refused, newest, tmp_path):
    text = tmp_path / newest.name
    text.write_text("not a wheel")
    assert refused(text).startswith("is not a wheel: ")
    truncated = tmp_path / newest.name
    truncated.write_bytes(newest.read_bytes()[:-100])
    assert refused(truncated).startswith("is not a wheel: ")
    damaged = tmp_path / newest.name
    data = bytearray(newest.read_bytes())
    data[1000:1100] = bytes(100)
    damaged.write_bytes(data)
    assert refused(damaged).startswith("is not a wheel: ")
    empty = tmp_path / "some-1-py3-none-any.whl"
    with ZipFile(empty, "w"):
        pass
    assert ".dist-info" in refused(empty)
    misnamed = Path(shutil.copy(newest, tmp_path / "provider.zip"))
    assert refused(misnamed).startswith("is not a wheel as it should be: ")


def test_wheel_without_a_name_and_one_without_a_version(refused, newest, tmp_path):
    for field in (b"Name", b"Version"):
        about = content(newest)["METADATA"].replace(b"\n" + field + b": ", b"\nX-Other: ")
        assert "None" in refused(modified(newest, tmp_path, "/METADATA", about))


def test_wheel_of_something_else(refused, newest, tmp_path):
    about = content(newest)["METADATA"].replace(
        b"\nName: apache-airflow-providers-cncf-kubernetes\n", b"\nName: other\n"
    )
    other = modified(newest, tmp_path, "/METADATA", about)
    assert refused(other) == "is a wheel of other, and not of apache-airflow-providers-cncf-kubernetes"


@pytest.mark.parametrize(
    ("number", "supported"), [("10.20.3", False), ("11.0.0", False), ("10.26.0rc1", True), ("10.99", True)]
)
def test_version_that_is_not_supported(refused, newest, tmp_path, number, supported):
    about = content(newest)["METADATA"].replace(b"\nVersion: 10.25.0\n", f"\nVersion: {number}\n".encode())
    reason = refused(modified(newest, tmp_path, "/METADATA", about))
    if supported:
        assert "didn't match RECORD" in reason
    else:
        assert reason == f"is version {number}; supported are <11,>=10.21.0"


def test_wheel_that_was_made_by_this(refused, newest, build, tmp_path):
    made = build(newest, tmp_path / "first")
    assert refused(made) == "has been modified already: 10.25.0+resilience.1 is not an official version"


def test_wheel_that_is_signed(refused, newest, tmp_path):
    signed = Path(shutil.copy(newest, tmp_path))
    with ZipFile(signed, "a") as archive:
        archive.writestr(f"{OFFICIAL}-10.25.0.dist-info/RECORD.p7s", b"signature")
    assert refused(signed) == "is signed (RECORD.p7s), and no signature holds for another wheel"


def test_wheel_that_is_not_what_its_record_says(refused, newest, tmp_path):
    changed = modified(newest, tmp_path, "/kubernetes_executor.py", b"changed")
    assert "kubernetes_executor.py didn't match RECORD" in refused(changed)


@pytest.mark.parametrize(
    "name",
    [
        *("/kubernetes_executor.py", "/operators/pod.py"),
        *("/licenses/NOTICE", "/entry_points.txt", "/METADATA", "/RECORD"),
    ],
)
def test_wheel_that_lacks_what_has_to_be_there(refused, newest, tmp_path, name):
    assert name[1:] in refused(modified(newest, tmp_path, name, None))


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"", r"\S+ is not mentioned in RECORD, and \d+ problems more"),
        (b"\xff", r"'utf-8' codec can't decode byte 0xff in position 0: .*"),
        (b"one,two\n", r"Row Index 0: expected 3 elements, got 2"),
    ],
)
def test_record_that_is_worth_nothing_is_told_in_a_line_that_can_be_read(
    refused, newest, tmp_path, record, reason
):
    told = refused(modified(newest, tmp_path, "/RECORD", record))
    assert re.fullmatch(f"is not a wheel as it should be: {reason}", told)


def test_wheel_that_is_there_already_is_left_alone(newest, build, run):
    made = build(newest)
    before = made.stat()
    code, out, err = run("build-provider-wheel", "--from", newest, "--output", made.parent)
    assert (code, out, err) == (2, "", f"{made} exists already\n")
    assert made.stat() == before


def test_folder_that_cannot_be_made(newest, run, tmp_path):
    (tmp_path / "file").touch()
    code, _, err = run("build-provider-wheel", "--from", newest, "--output", tmp_path / "file" / "made")
    assert code == 2
    assert err.endswith(" cannot be written: Not a directory\n")
    code, _, err = run("build-provider-wheel", "--from", newest, "--output", tmp_path / "file")
    assert (code, err) == (2, f"{tmp_path / 'file'} exists already\n")
