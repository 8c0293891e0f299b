"""Key pairs on disk: who may read them, what is never overwritten, what failure leaves."""

from __future__ import annotations

import errno
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)

from certs.authority import CLOCK_SKEW, create_authority, issue_leaf
from certs.errors import CertificateError, MaterialError, RequestError, StorageError
from certs.files import issue, read_pair, write_pairs
from certs.keypair import parse_certificates, parse_pair
from certs.names import Names
from certs.renewal import needs_renewal

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
FILES = ["ca.crt", "ca.key", "tls.crt", "tls.key"]


@pytest.fixture
def open_umask() -> Iterator[None]:
    """The umask under which a careless creation would show."""
    before = os.umask(0)
    yield
    os.umask(before)


def contents(directory: Path) -> dict[str, bytes]:
    """Every file of a directory, hidden ones too."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_issue_writes_a_usable_ca_and_serving_certificate(tmp_path: Path) -> None:
    out = tmp_path / "new" / "certs"
    issued = issue(["GPUfence.gpufence.svc"], ["127.0.0.1"], out, NOW, 30 * DAY, 10 * DAY)

    assert sorted(contents(out)) == FILES
    assert issued.directory == out
    assert issued.names == Names.parse(["gpufence.gpufence.svc"], ["127.0.0.1"])
    assert issued.authority_expires == NOW + 30 * DAY
    assert issued.leaf_expires == NOW + 10 * DAY
    assert read_pair(out / "ca.crt", out / "ca.key", NOW) == issued.authority
    assert read_pair(out / "tls.crt", out / "tls.key", NOW) == issued.leaf
    authorities = [(out / "ca.crt").read_bytes()]
    assert not needs_renewal(issued.leaf, authorities, issued.names, NOW).needed


@pytest.mark.usefixtures("open_umask")
def test_keys_are_accessible_only_to_the_owner_with_any_umask(tmp_path: Path) -> None:
    issue(["a.svc"], [], tmp_path, NOW)
    assert {name: mode(tmp_path / name) for name in FILES} == {
        "ca.crt": 0o644,
        "ca.key": 0o600,
        "tls.crt": 0o644,
        "tls.key": 0o600,
    }


@pytest.mark.usefixtures("open_umask")
def test_a_temporary_key_file_is_accessible_only_to_the_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, seen = os.fsync, []

    def watch(descriptor: int) -> None:
        if b"PRIVATE KEY" in os.pread(descriptor, 1000, 0):
            seen.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        fsync(descriptor)

    # The temporary files are open for writing only.
    opened = os.open
    monkeypatch.setattr(
        os, "open", lambda path, flags, mode: opened(path, flags & ~os.O_WRONLY | os.O_RDWR, mode)
    )
    monkeypatch.setattr(os, "fsync", watch)
    issue(["a.svc"], [], tmp_path, NOW)
    assert seen == [0o600, 0o600]


@pytest.mark.parametrize("name", FILES)
def test_existing_files_are_overwritten_only_with_force(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"mine")
    with pytest.raises(StorageError) as caught:
        issue(["a.svc"], [], tmp_path, NOW)
    assert str(caught.value) == (
        f"{tmp_path}: already holds {name}."
        " Choose another directory, or use --force to replace the CA and the serving certificate."
    )
    assert contents(tmp_path) == {name: b"mine"}

    issue(["a.svc"], [], tmp_path, NOW, force=True)
    assert sorted(contents(tmp_path)) == FILES
    read_pair(tmp_path / "ca.crt", tmp_path / "ca.key", NOW)
    read_pair(tmp_path / "tls.crt", tmp_path / "tls.key", NOW)


@pytest.mark.usefixtures("open_umask")
def test_force_replaces_a_world_readable_key_with_an_owner_only_key(tmp_path: Path) -> None:
    (tmp_path / "tls.key").write_bytes(b"old")
    (tmp_path / "tls.key").chmod(0o666)
    issue(["a.svc"], [], tmp_path, NOW, force=True)
    assert mode(tmp_path / "tls.key") == 0o600


def test_the_error_lists_every_existing_file(tmp_path: Path) -> None:
    issue(["a.svc"], [], tmp_path, NOW)
    with pytest.raises(StorageError, match=r"already holds ca\.crt, ca\.key, tls\.crt, tls\.key\."):
        issue(["a.svc"], [], tmp_path, NOW)


def test_a_dangling_symlink_is_replaced_only_with_force(tmp_path: Path) -> None:
    (tmp_path / "tls.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match=r"already holds tls\.key"):
        issue(["a.svc"], [], tmp_path, NOW)
    issue(["a.svc"], [], tmp_path, NOW, force=True)
    # The link gives way to the key: the key does not go where the link points.
    assert not (tmp_path / "tls.key").is_symlink()
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("broken", range(4))
def test_all_files_are_restored_if_one_file_cannot_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, force: bool, broken: int
) -> None:
    if force:
        issue(["old.svc"], [], tmp_path, NOW)
        (tmp_path / "ca.key").chmod(0o400)
    before = contents(tmp_path)
    replace, calls = Path.replace, []

    def fail_once(self: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) == broken + 1:
            raise OSError(errno.EIO, "Input/output error", str(self), None, str(target))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fail_once)
    with pytest.raises(StorageError) as caught:
        issue(["new.svc"], [], tmp_path, NOW, force=force)
    assert str(caught.value).startswith(
        f"{tmp_path / FILES[broken]}: cannot be written (Input/output error). Choose a directory"
    )
    assert contents(tmp_path) == before
    if force:
        assert mode(tmp_path / "ca.key") == 0o400


def test_no_file_remains_after_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync, calls = os.fsync, []

    def full_at_the_third(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full_at_the_third)
    with pytest.raises(StorageError) as caught:
        issue(["a.svc"], [], tmp_path, NOW)
    assert str(caught.value) == (
        f"{tmp_path}: cannot be written (No space left on device)."
        " Choose a directory that this user may write to, on a disk with room."
    )
    assert contents(tmp_path) == {}


def test_no_file_remains_after_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, calls = Path.replace, []

    def interrupted(self: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        issue(["a.svc"], [], tmp_path, NOW)
    assert contents(tmp_path) == {}


def test_concurrent_issues_into_one_directory_leave_one_complete_result(tmp_path: Path) -> None:
    authority = create_authority(NOW)
    leaves = [issue_leaf(authority, Names.parse(["a.svc"]), NOW) for _ in range(8)]
    start = threading.Barrier(len(leaves))

    def attempt(number: int) -> int | None:
        start.wait()
        try:
            write_pairs(tmp_path, authority, leaves[number])
        except StorageError as error:
            assert "already holds" in error.what  # noqa: PT017 - the only possible error
            return None
        return number

    with ThreadPoolExecutor(len(leaves)) as pool:
        winners = [n for n in pool.map(attempt, range(len(leaves))) if n is not None]
    assert len(winners) == 1
    assert sorted(contents(tmp_path)) == FILES
    assert read_pair(tmp_path / "tls.crt", tmp_path / "tls.key", NOW) == leaves[winners[0]]


def test_a_path_that_is_no_directory_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    with pytest.raises(StorageError) as caught:
        issue(["a.svc"], [], file, NOW)
    assert (
        str(caught.value)
        == f"{file}: is not a directory. Choose a directory, or a path that does not exist."
    )
    with pytest.raises(StorageError, match=r"cannot be written \(Not a directory\)"):
        issue(["a.svc"], [], file / "below", NOW)


def test_a_directory_in_place_of_a_file_is_rejected_without_changes(
    tmp_path: Path,
) -> None:
    (tmp_path / "tls.key").mkdir()
    with pytest.raises(StorageError) as caught:
        issue(["a.svc"], [], tmp_path, NOW, force=True)
    assert str(caught.value).startswith(f"{tmp_path}/tls.key: cannot be written (Is a directory).")
    assert [path.name for path in tmp_path.iterdir()] == ["tls.key"]


def test_invalid_names_and_lifetimes_are_rejected_before_files_are_written(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(RequestError, match="is a wildcard"):
        issue(["*.svc"], [], out, NOW)
    with pytest.raises(RequestError, match="neither an IPv4 nor an IPv6"):
        issue(["a.svc"], ["a"], out, NOW)
    with pytest.raises(RequestError) as caught:
        issue(["a.svc"], [], out, NOW, ca_lifetime=DAY, leaf_lifetime=2 * DAY)
    assert str(caught.value) == (
        "lifetime of the serving certificate: is 2 days, 0:00:00, longer than the 1 day, 0:00:00"
        " of the CA that signs it. Use a shorter lifetime, or a longer one for the CA."
    )
    assert not out.exists()


def test_all_errors_are_subclasses_of_certificate_error() -> None:
    assert issubclass(RequestError, CertificateError)
    assert issubclass(MaterialError, CertificateError)
    assert issubclass(StorageError, CertificateError)


class TestReading:
    @pytest.fixture
    def directory(self, tmp_path: Path) -> Path:
        issue(["a.svc"], [], tmp_path, NOW, 30 * DAY, 10 * DAY)
        return tmp_path

    def error_message(self, directory: Path, now: datetime = NOW) -> str:
        with pytest.raises(CertificateError) as caught:
            read_pair(directory / "tls.crt", directory / "tls.key", now)
        return str(caught.value)

    @pytest.mark.parametrize("name", ["tls.crt", "tls.key"])
    def test_a_missing_file_is_reported_with_its_path(self, directory: Path, name: str) -> None:
        (directory / name).unlink()
        assert self.error_message(directory) == (
            f"{directory / name}: does not exist."
            " Check the path, or create the file with `gpufence certs issue`."
        )

    @pytest.mark.parametrize("name", ["tls.crt", "tls.key"])
    def test_a_directory_in_place_of_a_file_is_reported_with_its_path(
        self, directory: Path, name: str
    ) -> None:
        (directory / name).unlink()
        (directory / name).mkdir()
        assert self.error_message(directory) == (
            f"{directory / name}: is a directory. Name the file in it, such as tls.crt or tls.key."
        )

    def test_a_symlink_loop_is_reported_with_its_path(self, directory: Path) -> None:
        (directory / "tls.key").unlink()
        (directory / "tls.key").symlink_to("tls.key")
        assert self.error_message(directory) == (
            f"{directory}/tls.key: cannot be read (Too many levels of symbolic links)."
            " Let the user that runs gpufence read it; in a Pod, see defaultMode and fsGroup."
        )

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
    def test_a_file_without_read_permission_is_reported_with_its_path(
        self, directory: Path
    ) -> None:
        (directory / "tls.key").chmod(0)
        assert f"{directory}/tls.key: cannot be read (Permission denied)." in self.error_message(
            directory
        )

    @pytest.mark.parametrize("name", ["tls.crt", "tls.key"])
    def test_a_file_without_valid_pem_is_reported_with_its_path(
        self, directory: Path, name: str
    ) -> None:
        (directory / name).write_bytes(b"")
        assert f"{directory / name}: contains no valid PEM" in self.error_message(directory)

    def test_a_key_of_another_certificate_is_reported_with_its_path(self, directory: Path) -> None:
        (directory / "tls.key").write_bytes((directory / "ca.key").read_bytes())
        assert self.error_message(directory) == (
            f"{directory}/tls.key: does not belong to {directory}/tls.crt."
            " Replace both together; in a chain, the certificate of the key comes first."
        )

    def test_a_chain_in_the_wrong_order_is_rejected(self, directory: Path) -> None:
        leaf, ca = (directory / "tls.crt").read_bytes(), (directory / "ca.crt").read_bytes()
        (directory / "tls.crt").write_bytes(ca + leaf)
        assert "does not belong to" in self.error_message(directory)
        (directory / "tls.crt").write_bytes(leaf + ca)
        pair = read_pair(directory / "tls.crt", directory / "tls.key", NOW)
        assert len(parse_certificates(pair.certificate_pem, "test")) == 2

    def test_a_key_with_a_passphrase_is_rejected(self, directory: Path) -> None:
        pair = read_pair(directory / "tls.crt", directory / "tls.key", NOW)
        key = parse_pair(pair)[1]
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        (directory / "tls.key").write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
        )
        assert f"{directory}/tls.key: is encrypted with a passphrase" in self.error_message(
            directory
        )

    def test_a_certificate_is_rejected_one_second_after_its_expiry(self, directory: Path) -> None:
        read_pair(directory / "tls.crt", directory / "tls.key", NOW + 10 * DAY)
        assert self.error_message(directory, NOW + 10 * DAY + SECOND) == (
            f"{directory}/tls.crt: expired at 2026-03-11T12:00:00+00:00."
            " Issue a new certificate, or correct the clock of this machine."
        )

    def test_a_certificate_is_rejected_before_its_not_before_time(self, directory: Path) -> None:
        read_pair(directory / "tls.crt", directory / "tls.key", NOW - CLOCK_SKEW)
        assert self.error_message(directory, NOW - CLOCK_SKEW - SECOND) == (
            f"{directory}/tls.crt: is not valid before 2026-03-01T11:55:00+00:00."
            " Wait until then, or correct the clock of this machine."
        )
