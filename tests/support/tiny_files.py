"""A published data set of three points, and files as mirrors and servers hold them."""

import gzip
import io
import zipfile

import numpy as np

CONTENT = b"1 2\n3 4\n5 7\n"
#: As a mirror packs it: without a time stamp.
PACKED = gzip.compress(CONTENT, mtime=0)


def tiny_entry(*files, name="tiny", license=""):
    from pkm.datasets import parsers
    from pkm.datasets.entry import Entry

    return Entry(
        name,
        3,
        2,
        2,
        files,
        parsers.numbers,
        (0.0,) * 2,
        (9.0,) * 2,
        ("digits",) * 2,
        license,
        "",
        "three digits",
    )


def write_file(folder, path, content):
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return target


def pack_members(members, packing=zipfile.ZIP_STORED):
    """Return a ZIP archive of members, a mapping of paths to contents."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", packing) as archive:
        for path, content in members.items():
            archive.writestr(path, content)
    return packed.getvalue()


def pack_arrays(**arrays):
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()
