"""A published data set of three points, and files as folders and servers hold them."""

import gzip
import io
import zipfile

import numpy as np

from pkm import datasets
from pkm.datasets import parsers
from pkm.datasets.entry import Entry
from pkm.datasets.sources import File
from pkm.files import sha256

CONTENT = b"1 2\n3 4\n5 7\n"
#: As the published archives pack it: without a time stamp.
PACKED = gzip.compress(CONTENT, mtime=0)


def tiny_entry(*files, name="tiny", license=""):
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


CHECKINS = (
    "0\t2010-10-17T01:48:53Z\t39.747652\t-104.99251\t88c46bf2\n"
    "0\t2010-10-16T06:02:04Z\t39.891383\t-105.070814\t7a0f88982\n"
    "7\t2009-12-31T23:59:59Z\t10.0\t20.0\tdd7cd3d2\n"
    "7\t2010-01-01T00:00:00Z\t11.0\t21.0\tdd7cd3d2\n"
    "7\t2010-01-01T00:00:00Z\t12.0\t22.0\t9848afcc\n"
    "3\t2010-05-05T05:05:05Z\t-33.5\t151.2\tab\n"
    "9\t\t\t\t\n"
)


QUERIES = (
    ",x,y,x_range,y_range,count,sum_,avg\n"
    "0,1162691.0,1869013.0,5000.5,7000.0,15234,4100.0,12.5\n"
    "1,1170000.0,1900000.0,100.0,90.0,0,0.0,\n"
)


def tcga(**changes):
    generator = np.random.default_rng(0)
    arrays = {
        "data": generator.uniform(size=(1904, 57)),
        "label": generator.integers(0, 4, 1904),
        "client": generator.integers(0, 10, 1904),
    }
    return {name: array for name, array in (arrays | changes).items() if array is not None}


def has_private_unit_cube(dataset):
    """Whether the bounds are private; public preprocessing keeps the points up to the last bit."""
    d = dataset.points.shape[1]
    unit_cube = np.repeat([[-1.0], [1.0]], d, axis=1)
    np.testing.assert_array_equal(dataset.domain, unit_cube)
    scaled = datasets.scale(dataset, "public", clip=False)
    np.testing.assert_allclose(scaled.points, dataset.points, rtol=0, atol=2.3e-16)
    # The data were scaled by their own bounds before a domain was declared.
    return dataset.prescaled and scaled.uses_private_bounds


def tiny_file(*urls, path="tiny/tiny.txt", **fields):
    return File(path, sha256(CONTENT), urls=urls, size=len(CONTENT), **fields)


def find_reason(name="tiny"):
    """Why one set cannot be fetched: one line."""
    result = datasets.fetch_missing([name])
    assert result.fetched == ()
    assert "\n" not in result.unavailable[name]
    return result.unavailable[name]
