"""Files that are whole or absent, and the folder for what is kept between runs."""

import itertools
import os
from pathlib import Path

CACHE_VARIABLE = "PKM_CACHE"
_counter = itertools.count()


def cache_folder() -> Path:
    """Folder for what is kept between runs: PKM_CACHE or ``~/.cache/private-kmeans-bench``."""
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given) if given else Path.home() / ".cache" / "private-kmeans-bench"


def atomic_write(path: Path, content: bytes | memoryview) -> None:
    """Write a file in one step that a crash cannot leave half done.

    Parameters
    ----------
    path : Path
        The final name; its folder is created where missing.
    content : bytes-like
        The whole file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{next(_counter)}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
