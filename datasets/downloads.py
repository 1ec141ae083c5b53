"""Files from their URLs: tried several times, checked, and kept in the cache.

Nothing is downloaded unless it is asked for: by `pkm data fetch`, by `fetch_missing`, or, when a
set is loaded, by the environment variable PKM_DOWNLOAD.
"""

import os
import time
import zipfile
import zlib
from collections.abc import Iterable
from io import BytesIO
from os import PathLike
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from urllib.parse import urlsplit

from pkm.datasets import sources
from pkm.datasets.sources import CheckedFile, ChecksumMismatch, DataUnavailable, File
from pkm.files import CACHE_VARIABLE, atomic_write, cache_folder

DOWNLOAD_VARIABLE = "PKM_DOWNLOAD"
#: For a connection, and for the next part of an answer.
TIMEOUT_SECONDS = (10, 60)
#: Within which the first host answers where there is a network.
PROBE_SECONDS = 3.0
#: Times that a URL is tried when its failure may pass, and seconds before the second time.
ATTEMPTS = 3
PAUSE_SECONDS = 1.0
#: Of the packings of a ZIP archive those that can be unpacked in parts of a given size.
PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def has_network(urls: Iterable[str]) -> bool:
    """Whether the host of any of some URLs answers within three seconds, whatever its answer."""
    import requests

    answers: Queue[bool] = Queue()

    def ask(url: str) -> None:
        try:
            requests.head(url, timeout=PROBE_SECONDS)
        except requests.RequestException:
            answers.put(False)
        else:
            answers.put(True)

    hosts = {urlsplit(url).netloc: url for url in urls}
    for url in hosts.values():
        # The look-up of a name has no time limit of its own, and may outlast this function.
        Thread(target=ask, args=(url,), daemon=True).start()
    deadline = time.monotonic() + PROBE_SECONDS
    for _ in hosts:
        try:
            if answers.get(timeout=max(0.0, deadline - time.monotonic())):
                return True
        except Empty:
            return False
    return False


class Unreachable(OSError):
    """A URL gives nothing; the message says why and what to do about it."""


class _Buffer:
    """What a downloader writes to: bytes in memory, refused once there are more than allowed."""

    def __init__(self, url: str, max_bytes: int) -> None:
        self.url = url
        self.max_bytes = max_bytes
        self.content = bytearray()

    def write(self, part: bytes) -> None:
        sources.require_size(len(self.content) + len(part), self.max_bytes, self.url)
        self.content += part

    def flush(self) -> None:
        """Do nothing: all bytes are in memory."""


class Downloads:
    """Downloads that follow each other.

    The last download is kept, because several files come from one archive (adult two, G2 ninety).
    A URL that failed, and a host that cannot be reached, are not tried again.

    Parameters
    ----------
    progress : bool
        Show a bar for each download where there is a terminal.
    """

    def __init__(self, progress: bool = False) -> None:
        self.progress = progress
        self._url = ""
        self._content = b""
        self._failures: dict[str, str] = {}

    def content(self, url: str) -> bytes:
        """Return what a URL leads to.

        Raises
        ------
        Unreachable
            If it gives nothing.
        FileTooLarge
            If it gives more than any file of the registry has.
        """
        host = urlsplit(url).netloc
        for failed in (host, url):
            if failed in self._failures:
                raise Unreachable(self._failures[failed])
        if url != self._url:
            self._content = b""
            self._content = self._tried(url, host)
            self._url = url
        return self._content

    def _tried(self, url: str, host: str) -> bytes:
        import requests  # with pooch half a second of imports

        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._once(url)
            except requests.RequestException as error:
                is_lost = _is_unreachable(error)
                if is_lost or attempt == ATTEMPTS or not _may_pass(error):
                    self._failures[host if is_lost else url] = _reason(error)
                    raise Unreachable(_reason(error)) from error
            time.sleep(PAUSE_SECONDS * attempt)
        raise AssertionError("the last attempt returns or raises")

    def _once(self, url: str) -> bytes:
        import pooch
        from tqdm import tqdm

        buffer = _Buffer(url, sources.MAX_BYTES)
        # None: a bar where there is a terminal.
        hidden = None if self.progress else True
        name = url.rpartition("/")[2]
        # The downloader sets the true total.
        with tqdm(
            total=1, desc=name, unit="B", unit_scale=True, leave=False, disable=hidden
        ) as bar:
            download = pooch.HTTPDownloader(progressbar=bar, timeout=TIMEOUT_SECONDS)
            download(url, buffer, None)
        return bytes(buffer.content)


def _is_unreachable(error: Exception) -> bool:
    """Whether the host, or the proxy, cannot be reached at all."""
    import requests
    from urllib3.exceptions import NewConnectionError

    if isinstance(error, requests.exceptions.ProxyError | requests.ConnectTimeout):
        return True
    cause = getattr(error.args[0], "reason", None) if error.args else None
    return isinstance(error, requests.ConnectionError) and isinstance(cause, NewConnectionError)


def _may_pass(error: Exception) -> bool:
    """Whether the same request may succeed in a moment."""
    import requests

    if isinstance(error, requests.HTTPError):
        return error.response.status_code == 429 or error.response.status_code >= 500
    return not isinstance(error, requests.exceptions.SSLError)


def _reason(error: Exception) -> str:
    """Why a request failed and what to do about it, in one line."""
    import requests

    if isinstance(error, requests.HTTPError):
        return f"{error.response.status_code} {error.response.reason}"
    reasons = {
        requests.exceptions.ProxyError: (
            "the proxy cannot be reached or refuses (check HTTPS_PROXY and NO_PROXY)"
        ),
        requests.exceptions.SSLError: (
            "the certificate is not trusted (behind a proxy that replaces it, name that proxy's in "
            "REQUESTS_CA_BUNDLE)"
        ),
        requests.Timeout: f"no answer within {TIMEOUT_SECONDS[1]} s (try again later)",
        requests.exceptions.ChunkedEncodingError: "the download was cut off (try again)",
        requests.ConnectionError: "no connection (check the network)",
    }
    for kind, reason in reasons.items():
        if isinstance(error, kind):
            return reason
    return " ".join(str(error).split())


def fetch(file: File, name: str, downloads: Downloads | None = None) -> CheckedFile:
    """Download a file into the cache, check it, and only then give it its name.

    Parameters
    ----------
    file : File
        Its URLs are tried in their order.
    name : str
        Data set it belongs to, for the error message.
    downloads : Downloads, optional
        Of earlier files.

    Raises
    ------
    DataUnavailable
        If no URL gives the file, or the cache cannot hold it.
    ChecksumMismatch
        If what a URL gives is not the declared file and no other URL gives it.
    """
    downloads = Downloads() if downloads is None else downloads
    failures = []
    mismatched = False
    for url in file.urls:
        try:
            content = _published(url, file, downloads)
            if file.sha256 is not None:
                sources.require_hash(content, file.sha256, url)
        except ChecksumMismatch as error:
            mismatched = True
            failures.append(str(error))
        except (OSError, KeyError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            failures.append(f"{url}: {error.args[0] if error.args else error}")
        else:
            return CheckedFile(content, _keep(file, content), "url")
    if mismatched:
        raise ChecksumMismatch(f"data set {name!r}: {'; '.join(failures)}")
    raise DataUnavailable(sources.missing(file, name, failures))


def _keep(file: File, content: bytes) -> Path:
    """Write a file into the cache; return its path."""
    path = cache_folder() / file.path
    try:
        atomic_write(path, content)
    except OSError as error:
        raise DataUnavailable(
            f"{path} cannot be written ({error.strerror}): make room there, or set "
            f"{CACHE_VARIABLE} to another folder"
        ) from error
    return path


def obtain(
    file: File,
    name: str,
    mirror: str | PathLike | None = None,
    download: bool | None = None,
    downloads: Downloads | None = None,
) -> CheckedFile:
    """Return a file from cache or mirror, or from its URLs where downloads are allowed.

    Parameters
    ----------
    file : File
    name : str
        Data set it belongs to, for the error message.
    mirror : path-like, optional
    download : bool, optional
        Default: whether the environment variable PKM_DOWNLOAD is 1. A file without a declared hash
        is downloaded by `pkm.datasets.fetch_missing` alone, which checks its points.
    downloads : Downloads, optional
        Of earlier files.

    Raises
    ------
    DataUnavailable
        If it is not available and may not or cannot be downloaded.
    ChecksumMismatch
        If a copy has the wrong hash.
    """
    copy = sources.find(file, mirror)
    if copy:
        return copy
    if download is None:
        download = os.environ.get(DOWNLOAD_VARIABLE) == "1"
    if not download or file.sha256 is None:
        raise DataUnavailable(sources.missing(file, name))
    return fetch(file, name, downloads)


def _published(url: str, file: File, downloads: Downloads) -> bytes:
    """Bytes of the file that a URL leads to, taken out of its archive or made of what is there."""
    content = downloads.content(url)
    if file.member is not None and url.endswith(".zip"):
        content = _member(url, content, file)
    return content if file.convert is None else file.convert(content)


def _member(url: str, content: bytes, file: File) -> bytes:
    with zipfile.ZipFile(BytesIO(content)) as archive:
        member = archive.getinfo(file.member)
        source = f"{url} ({file.member})"
        if member.compress_type not in PACKINGS:
            raise zipfile.BadZipFile(
                f"{file.member} is packed by method {member.compress_type}, which cannot be "
                "unpacked in parts"
            )
        sources.require_size(member.file_size, file.max_bytes, source)
        with archive.open(member) as stream:
            return b"".join(sources.parts(stream, file.max_bytes, source))
