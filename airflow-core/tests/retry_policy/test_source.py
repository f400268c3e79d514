# Licensed under the Apache License, Version 2.0. See the LICENSE file at the root of this repository.
# SPDX-License-Identifier: Apache-2.0
"""A policy file that changes while it is in use, on a real file system."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from airflow_resilience.retry_policy.built_in import built_in
from airflow_resilience.retry_policy.document import MAX_SIZE, PolicyFileError, PolicySource

FALLBACK = built_in(1, ("Error",))
INVALID = "policies: 5\n"


def content(name: str) -> str:
    return f"policies:\n- {{name: {name}, defaultAction: Fail}}\n"


def names(source: PolicySource) -> set[str]:
    return set(source.current.policies) - {"built-in"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "policies.yaml"
    file.write_text(content("old"))
    return file


@pytest.fixture
def source(path: Path) -> PolicySource:
    return PolicySource(path, FALLBACK)


def test_holds_what_the_file_says(source: PolicySource, path: Path) -> None:
    assert names(source) == {"old"}
    assert source.current.origin == str(path)
    assert source.current.default == FALLBACK.default


def test_unchanged_file_changes_nothing(source: PolicySource, path: Path) -> None:
    before = source.current
    os.utime(path, (1, 1))
    assert source.refresh() is None
    assert source.current is before


@pytest.mark.parametrize("replaced", [False, True], ids=["in place", "another inode"])
def test_edit_with_the_same_size_and_time_is_noticed(
    source: PolicySource, path: Path, replaced: bool
) -> None:
    before = path.stat()
    target = path.with_suffix(".new") if replaced else path
    target.write_text(content("new"))
    os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))
    target.replace(path)
    assert (path.stat().st_mtime_ns, path.stat().st_size) == (before.st_mtime_ns, before.st_size)
    assert source.refresh() is None
    assert names(source) == {"new"}


def test_config_map_is_followed_through_its_symbolic_links(tmp_path: Path) -> None:
    def publish(version: str) -> None:
        """Do as the kubelet does: a new folder, a link to it in the place of the old one, which goes."""
        old = data.resolve() if data.exists() else None
        folder = tmp_path / f"..{version}"
        folder.mkdir()
        (folder / "policies.yaml").write_text(content(version))
        (tmp_path / "..data_tmp").symlink_to(folder.name)
        (tmp_path / "..data_tmp").replace(data)
        if old:
            (old / "policies.yaml").unlink()
            old.rmdir()

    data, path = tmp_path / "..data", tmp_path / "policies.yaml"
    path.symlink_to("..data/policies.yaml")
    publish("first")
    source = PolicySource(path, FALLBACK)
    for version in ("second", "third"):
        publish(version)
        assert source.refresh() is None
        assert names(source) == {version}


def test_invalid_content_is_told_once_and_the_old_policies_stay(source: PolicySource, path: Path) -> None:
    before = source.current
    path.write_text(INVALID)
    error = source.refresh()
    assert isinstance(error, PolicyFileError)
    assert f"{path}:1: policies: got 5" in str(error)
    os.utime(path, (1, 1))
    assert source.refresh() is None
    assert source.current is before


def test_each_invalid_content_is_told(source: PolicySource, path: Path) -> None:
    told = []
    for text in (INVALID, INVALID, "policies: 6", INVALID):
        path.write_text(text)
        told.append(source.refresh() is not None)
    assert told == [True, False, True, True]


def test_return_to_the_policies_in_force_is_a_change_too(source: PolicySource, path: Path) -> None:
    before = source.current
    path.write_text(INVALID)
    assert source.refresh()
    path.write_text(content("old"))
    assert source.refresh() is None
    assert source.current is not before
    assert source.current == before


def test_half_written_file_is_refused_until_the_other_half_is_there(source: PolicySource, path: Path) -> None:
    whole = content("new")
    path.write_text(whole[: len(whole) // 2])
    assert source.refresh()
    assert names(source) == {"old"}
    path.write_text("")
    assert source.refresh()
    path.write_text(whole)
    assert source.refresh() is None
    assert names(source) == {"new"}


def make_directory(path: Path) -> None:
    path.mkdir()


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


def make_link_to_nothing(path: Path) -> None:
    path.symlink_to("nowhere")


def make_nothing(path: Path) -> None:
    pass


UNREADABLE = pytest.mark.parametrize(
    ("make", "reason"),
    [
        (make_nothing, "cannot be read: No such file or directory"),
        (make_link_to_nothing, "cannot be read: No such file or directory"),
        (make_loop, "cannot be read: Too many levels of symbolic links"),
        (make_directory, "is no regular file"),
        (make_pipe, "is no regular file"),
    ],
)


@UNREADABLE
def test_what_cannot_be_read_is_told_once_and_forgotten_when_it_can(
    source: PolicySource, path: Path, make: object, reason: str
) -> None:
    assert callable(make)
    path.unlink()
    make(path)
    assert str(source.refresh()) == f"{path}: {reason}"
    assert source.refresh() is None
    assert names(source) == {"old"}
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    path.write_text(content("new"))
    assert source.refresh() is None
    assert names(source) == {"new"}


def test_reading_without_permission_is_told(
    source: PolicySource, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(self: Path, *_: object) -> object:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", denied)  # root, as whom tests may run, is denied nothing
    assert str(source.refresh()) == f"{path}: cannot be read: Permission denied"
    assert source.refresh() is None


def test_another_reason_not_to_be_readable_is_another_change(source: PolicySource, path: Path) -> None:
    path.unlink()
    assert source.refresh()
    path.mkdir()
    assert source.refresh()
    assert source.refresh() is None


def test_invalid_file_is_an_error_at_the_start(path: Path) -> None:
    path.write_text(INVALID)
    with pytest.raises(PolicyFileError, match="policies: got 5"):
        PolicySource(path, FALLBACK)


def test_file_that_is_too_long_is_refused_without_reading_all_of_it(source: PolicySource, path: Path) -> None:
    with path.open("ab") as file:
        file.truncate(2**40)  # a hole, which takes no space
    assert str(source.refresh()) == f"{path}: is too long; allowed: {MAX_SIZE // 1024} KiB"
    assert source.refresh() is None
    assert names(source) == {"old"}
