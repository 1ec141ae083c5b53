"""Files that are written whole or not at all; the cache folder with its secret."""

import fcntl
import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

CACHE_VARIABLE = "PKM_CACHE"
#: Permissions of a file and of a folder that their owner alone may read.
OWNER_FILE = 0o600
OWNER_FOLDER = 0o700
#: Permissions of any other file, before the process's mask.
ANY_FILE = 0o666
SECRET_NAME = "secret"
SECRET_BYTES = 32
#: Bytes of a program's output that are read at its end, and characters of a line.
LOG_END = 10_000
MAX_LINE = 300


def cache_folder() -> Path:
    """Return the folder of the cache, PKM_CACHE or one in the home folder."""
    default = Path.home() / ".cache" / "private-kmeans-bench"
    return Path(os.environ.get(CACHE_VARIABLE) or default)


def create_owner_folder(path: Path) -> None:
    """Create a folder for its owner alone, unless it exists."""
    path.mkdir(mode=OWNER_FOLDER, parents=True, exist_ok=True)


def list_missing_folders(path: Path) -> list[Path]:
    """List the folders that have to be made for a path, the innermost first."""
    return [folder for folder in (path, *path.parents) if not folder.exists()]


def remove_empty_folders(folders: Iterable[Path]) -> None:
    """Remove those of some folders that are empty."""
    for folder in folders:
        with suppress(OSError):  # not empty, or not there
            folder.rmdir()


def sha256(content: bytes) -> str:
    """Return the SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def record_digest(record: Mapping[str, Any]) -> str:
    """Return the SHA-256 (hex) of a record of JSON, whatever the order of its keys.

    In the record's own file it detects accidents only, not attacks.
    """
    return sha256(json.dumps(record, sort_keys=True).encode())


def keyed_digest(content: bytes) -> str:
    """Hash private content by HMAC-SHA256 (hex) with the secret of the cache folder.

    Without the secret nobody can find by trial which content has a given digest. The
    secret is in the cache, because results are copied and published.

    Raises
    ------
    PermissionError
        If there is no secret yet and the cache folder cannot hold one.
    """
    return hmac.digest(_read_secret(), content, "sha256").hex()


def _read_secret() -> bytes:
    """Return the secret of the cache folder, drawn on first use."""
    path = cache_folder() / SECRET_NAME
    try:
        if not path.exists():
            create_owner_folder(path.parent)
            with locked(path.with_suffix(".lock")):
                # Another process may have drawn it while this one waited.
                if not path.exists():
                    atomic_write(path, os.urandom(SECRET_BYTES), OWNER_FILE)
        secret = path.read_bytes()
        status = path.lstat()
    except OSError as error:
        raise PermissionError(
            f"{CACHE_VARIABLE}={str(path.parent)!r} cannot hold the secret of "
            f"fingerprints of private files ({error.strerror}): set it to a folder "
            "that can be read and written"
        ) from error
    is_own = status.st_uid == os.getuid() and stat.S_IMODE(status.st_mode) & 0o077 == 0
    if not (stat.S_ISREG(status.st_mode) and is_own and len(secret) == SECRET_BYTES):
        raise PermissionError(
            f"{path} must be a file of {SECRET_BYTES} random bytes that its owner "
            "alone can read: remove it, and a new secret is drawn"
        )
    return secret


def atomic_write(
    path: Path,
    content: bytes | memoryview,
    mode: int = ANY_FILE,
) -> None:
    """Write a file in one step that a crash cannot leave half done.

    Parameters
    ----------
    path : Path
        The final name; its folder is created where missing.
    content : bytes-like
        The whole file.
    mode : int, optional
        Permissions before the process's mask.
    """

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags, mode)

    path.parent.mkdir(parents=True, exist_ok=True)
    # Nobody else can have made a file or a link of this name before.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb", opener=opener) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_with_checksum(path: Path, content: bytes) -> None:
    """Write a file for its owner, behind a checksum of its content."""
    atomic_write(path, hashlib.sha256(content).digest() + content, OWNER_FILE)


def read_with_checksum(path: Path) -> bytes | None:
    """Read what `write_with_checksum` wrote; None if the file is missing or damaged."""
    try:
        stored = path.read_bytes()
    except FileNotFoundError:
        return None
    size = hashlib.sha256().digest_size
    content = stored[size:]
    return content if hashlib.sha256(content).digest() == stored[:size] else None


def read_last_line(path: Path) -> str:
    """Return the last line of a text that is not empty; the text may be long."""
    with path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_END))
        lines = file.read().decode(errors="replace").splitlines()
    written = [line.strip() for line in lines if line.strip()]
    return written[-1][:MAX_LINE] if written else ""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock among processes and threads during a block of code.

    Raises
    ------
    OSError
        If the path is a link.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        descriptor = os.open(path, flags, OWNER_FILE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_at(descriptor, path):
                yield
                return
        finally:
            os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    """Tell whether an open file is still the one at a path."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False
