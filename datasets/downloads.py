"""Download files with retries, check them, and store them in the cache.

Nothing is downloaded unless it is asked for: by `pkm data fetch`, by `fetch_missing`,
or, when a set is loaded, by the environment variable PKM_DOWNLOAD.
"""

import os
import time
import zipfile
import zlib
from collections.abc import Iterable
from io import BytesIO
from os import PathLike
from queue import Empty, Queue
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from pkm.datasets import sources
from pkm.datasets.sources import CheckedFile, ChecksumMismatch, DataUnavailable, File
from pkm.files import CACHE_VARIABLE, atomic_write, cache_folder

DOWNLOAD_VARIABLE = "PKM_DOWNLOAD"
#: For a connection, and for the next part of an answer.
TIMEOUT_SECONDS = (10, 60)
#: The first host answers within this time where there is a network.
PROBE_SECONDS = 3.0
#: Attempts at a URL whose failures are transient.
ATTEMPTS = 3
#: Seconds before the second attempt.
PAUSE_SECONDS = 1.0
#: Compression methods of ZIP archives that can be unpacked in parts of a given size.
COMPRESSION_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def has_network(urls: Iterable[str]) -> bool:
    """Tell whether a host of the URLs sends any answer within three seconds."""
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
        # The look-up of a name has no time limit, and may outlast this function.
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


class _Buffer(BytesIO):
    """Stream in memory that a download is written to, of limited size."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url

    def write(self, content: Any, /) -> int:
        size = super().write(content)
        sources.require_size(self.tell(), sources.MAX_BYTES, self.url)
        return size


class Downloads:
    """A session of downloads.

    It keeps the last download, because several files come from one archive. It does not
    try a URL again that failed, or a host that cannot be reached.

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

    def read(self, url: str) -> bytes:
        """Return the content of a URL.

        Raises
        ------
        Unreachable
            If it gives nothing.
        ChecksumMismatch
            If it gives more than any file of the registry has.
        """
        host = urlsplit(url).netloc
        for failed in (host, url):
            if failed in self._failures:
                raise Unreachable(self._failures[failed])
        if url != self._url:
            self._content = b""
            self._content = self._request_with_retries(url, host)
            self._url = url
        return self._content

    def _request_with_retries(self, url: str, host: str) -> bytes:
        import requests  # with pooch half a second of imports

        attempt = 1
        while True:
            try:
                return self._request(url)
            except requests.RequestException as error:
                is_unreachable = _is_unreachable(error)
                if is_unreachable or attempt == ATTEMPTS or not _is_transient(error):
                    reason = _explain(error)
                    self._failures[host if is_unreachable else url] = reason
                    raise Unreachable(reason) from error
            time.sleep(PAUSE_SECONDS * attempt)
            attempt += 1

    def _request(self, url: str) -> bytes:
        import pooch
        from tqdm import tqdm

        buffer = _Buffer(url)
        # The downloader sets the true total.
        with tqdm(
            total=1,
            desc=url.rpartition("/")[2],
            unit="B",
            unit_scale=True,
            leave=False,
            # None: a bar where there is a terminal.
            disable=None if self.progress else True,
        ) as bar:
            download = pooch.HTTPDownloader(progressbar=bar, timeout=TIMEOUT_SECONDS)
            download(url, buffer, None)
        return buffer.getvalue()


def _is_unreachable(error: Exception) -> bool:
    """Tell whether the host, or the proxy, cannot be reached at all."""
    import requests
    from urllib3.exceptions import NewConnectionError

    if isinstance(error, requests.exceptions.ProxyError | requests.ConnectTimeout):
        return True
    cause = getattr(error.args[0], "reason", None) if error.args else None
    is_unreachable = isinstance(cause, NewConnectionError)
    return isinstance(error, requests.ConnectionError) and is_unreachable


def _is_transient(error: Exception) -> bool:
    """Tell whether the same request may succeed in a moment."""
    import requests

    if isinstance(error, requests.HTTPError):
        code = error.response.status_code
        return code == 429 or code >= 500
    return not isinstance(error, requests.exceptions.SSLError)


def _explain(error: Exception) -> str:
    """Say why a request failed and what to do about it, in one line."""
    import requests

    if isinstance(error, requests.HTTPError):
        return f"{error.response.status_code} {error.response.reason}"
    reasons = {
        requests.exceptions.ProxyError: (
            "the proxy cannot be reached or refuses (check HTTPS_PROXY and NO_PROXY)"
        ),
        requests.exceptions.SSLError: (
            "the certificate is not trusted (behind a proxy that replaces it, name "
            "that proxy's in REQUESTS_CA_BUNDLE)"
        ),
        requests.ConnectTimeout: (
            f"no connection within {TIMEOUT_SECONDS[0]} s (try again later)"
        ),
        requests.Timeout: f"no answer within {TIMEOUT_SECONDS[1]} s (try again later)",
        requests.exceptions.ChunkedEncodingError: (
            "the download was cut off (try again)"
        ),
        requests.ConnectionError: "no connection (check the network)",
    }
    for kind, reason in reasons.items():
        if isinstance(error, kind):
            return reason
    return " ".join(str(error).split())


def fetch(file: File, name: str, downloads: Downloads | None = None) -> CheckedFile:
    """Download a file, check it, and write it into the cache.

    Parameters
    ----------
    file : File
        Its URLs are tried in their order.
    name : str
        Data set it belongs to, for the error message.
    downloads : Downloads, optional
        Session of earlier files.

    Raises
    ------
    DataUnavailable
        If no URL gives the file, or the cache cannot hold it.
    ChecksumMismatch
        If a URL gives another file, and no other URL gives the declared one.
    """
    downloads = downloads or Downloads()
    failures = []
    mismatched = False
    for url in file.urls:
        try:
            content = _read_published(url, file, downloads)
            if file.sha256 is not None:
                sources.require_hash(content, file.sha256, url)
        except ChecksumMismatch as error:
            mismatched = True
            failures.append(str(error))
        except (OSError, KeyError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            failures.append(f"{url}: {error.args[0] if error.args else error}")
        else:
            _write_to_cache(file, content)
            return CheckedFile(content, "url")
    if mismatched:
        raise ChecksumMismatch(f"data set {name!r}: {'; '.join(failures)}")
    raise DataUnavailable(sources.explain_missing(file, name, failures))


def _write_to_cache(file: File, content: bytes) -> None:
    """Write a file into the cache."""
    path = cache_folder() / file.path
    try:
        atomic_write(path, content)
    except OSError as error:
        raise DataUnavailable(
            f"{path} cannot be written ({error.strerror}): make room there, or set "
            f"{CACHE_VARIABLE} to another folder"
        ) from error


def obtain_files(
    files: Iterable[File],
    name: str,
    data_dir: str | PathLike | None = None,
    *,
    download: bool = True,
) -> list[CheckedFile]:
    """Return the files of a data set: from cache, data folder or, if allowed, URLs.

    Downloads are allowed if the environment variable PKM_DOWNLOAD is 1. A file without
    a declared hash is downloaded by `pkm.datasets.fetch_missing` alone, which checks
    its points.

    Parameters
    ----------
    files : iterable of File
    name : str
        Data set they belong to, for the error message.
    data_dir : path-like, optional
    download : bool, default=True
        False: no file is downloaded.

    Raises
    ------
    DataUnavailable
        If one is not available and may not or cannot be downloaded.
    ChecksumMismatch
        If a copy has the wrong hash.
    """
    is_allowed = download and os.environ.get(DOWNLOAD_VARIABLE) == "1"
    downloads = Downloads()
    obtained = []
    for file in files:
        checked = sources.find(file, data_dir)
        if checked is None:
            if not is_allowed or file.sha256 is None:
                raise DataUnavailable(sources.explain_missing(file, name))
            checked = fetch(file, name, downloads)
        obtained.append(checked)
    return obtained


def _read_published(url: str, file: File, downloads: Downloads) -> bytes:
    """Return the bytes of a file from a URL, extracted or converted as declared."""
    content = downloads.read(url)
    if file.member is not None and url.endswith(".zip"):
        content = _read_member(url, content, file)
    return content if file.convert is None else file.convert(content)


def _read_member(url: str, content: bytes, file: File) -> bytes:
    with zipfile.ZipFile(BytesIO(content)) as archive:
        member = archive.getinfo(file.member)
        source = f"{url} ({file.member})"
        if member.compress_type not in COMPRESSION_METHODS:
            raise zipfile.BadZipFile(
                f"{file.member} is packed by method {member.compress_type}, which "
                "cannot be unpacked in parts"
            )
        sources.require_size(member.file_size, file.max_bytes, source)
        with archive.open(member) as stream:
            return b"".join(sources.read_parts(stream, file.max_bytes, source))
