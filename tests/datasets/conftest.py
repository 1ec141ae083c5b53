"""Data sets are tested with an empty cache and without pauses between downloads."""

import pytest
import tiny_embeddings
from tiny_files import CONTENT, PACKED, tiny_entry

from pkm.datasets import downloads, registry
from pkm.datasets.sources import File
from pkm.files import sha256


@pytest.fixture(autouse=True)
def isolated(cache, monkeypatch):
    monkeypatch.setattr(downloads, "PAUSE_SECONDS", 0)


@pytest.fixture
def register(monkeypatch):
    """Return a function that puts an entry with some files into the registry."""

    def register_entry(name, *files, license="CC BY 4.0"):
        entry = tiny_entry(*files, name=name, license=license)
        monkeypatch.setitem(registry.BY_NAME, name, entry)
        return entry

    return register_entry


@pytest.fixture
def register_file(register, monkeypatch):
    """Return a function that makes an entry of one small file the whole registry."""

    def register_tiny(*urls, member=None, content=CONTENT):
        file = File("tiny/tiny.txt", sha256(content), sha256(PACKED), urls, member)
        monkeypatch.setattr(registry, "ENTRIES", (register("tiny", file),))
        return file

    return register_tiny


@pytest.fixture
def entry(monkeypatch):
    """Make a small set of embeddings the whole registry."""
    registered = tiny_embeddings.tiny_entry()
    monkeypatch.setitem(registry.BY_NAME, registered.name, registered)
    monkeypatch.setattr(registry, "ENTRIES", (registered,))
    return registered


@pytest.fixture
def folder_with_images(tmp_path):
    """Return a data folder that holds the images of the embeddings."""
    folder = tmp_path / "files" / "tiny"
    folder.mkdir(parents=True)
    for name, content in zip(("images", "labels"), tiny_embeddings.PACKED, strict=True):
        (folder / f"{name}.gz").write_bytes(content)
    return folder.parent
