"""Key pairs on disk: who may read them, what is never overwritten, what failure leaves."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from certs import CertificateError, read_file
from certs.files import issue
from certs.keypair import KeyPair, Names, leaf_problem

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
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
    ca, leaf = issue(["GPUfence.gpufence.svc"], ["127.0.0.1"], out, NOW, 30 * DAY, 10 * DAY)
    written = contents(out)
    assert sorted(written) == FILES
    assert KeyPair(written["ca.crt"], written["ca.key"]) == ca
    assert KeyPair(written["tls.crt"], written["tls.key"]) == leaf
    names = Names.parse(["gpufence.gpufence.svc"], ["127.0.0.1"])
    assert not leaf_problem(leaf, [ca.certificate_pem], names, NOW)


@pytest.mark.usefixtures("open_umask")
def test_keys_are_accessible_only_to_the_owner_with_any_umask(tmp_path: Path) -> None:
    (tmp_path / "tls.key").write_bytes(b"old")
    (tmp_path / "tls.key").chmod(0o666)
    issue(["a.svc"], [], tmp_path, NOW, force=True)
    assert {name: mode(tmp_path / name) for name in FILES} == {
        "ca.crt": 0o644,
        "ca.key": 0o600,
        "tls.crt": 0o644,
        "tls.key": 0o600,
    }


@pytest.mark.parametrize("name", FILES)
def test_existing_files_are_overwritten_only_with_force(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"mine")
    with pytest.raises(CertificateError) as caught:
        issue(["a.svc"], [], tmp_path, NOW)
    assert str(caught.value) == (
        f"{tmp_path}: already holds {name}."
        " Choose another directory, or use --force to replace the CA and the serving certificate."
    )
    assert contents(tmp_path) == {name: b"mine"}
    issue(["a.svc"], [], tmp_path, NOW, force=True)
    assert sorted(contents(tmp_path)) == FILES
    assert b"mine" not in contents(tmp_path).values()


def test_a_dangling_symlink_is_replaced_only_with_force(tmp_path: Path) -> None:
    (tmp_path / "tls.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CertificateError, match=r"already holds tls\.key"):
        issue(["a.svc"], [], tmp_path, NOW)
    issue(["a.svc"], [], tmp_path, NOW, force=True)
    # The link gives way to the key: the key does not go where the link points.
    assert not (tmp_path / "tls.key").is_symlink()
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_that_cannot_be_written_is_reported_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").mkdir()
    with pytest.raises(CertificateError) as caught:
        issue(["a.svc"], [], tmp_path, NOW, force=True)
    assert str(caught.value).startswith(f"{tmp_path}/ca.crt: cannot be written (Is a directory).")
    assert [path.name for path in tmp_path.iterdir()] == ["ca.crt"]


def test_an_unreadable_file_is_reported_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match=r"/a: does not exist\. Check the path"):
        read_file(tmp_path / "a")
    with pytest.raises(CertificateError, match=r"cannot be read \(Is a directory\)\. Name a file"):
        read_file(tmp_path)
