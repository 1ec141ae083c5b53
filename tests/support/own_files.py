"""Files as people bring them, and the errors that refuse them."""

import gzip

import numpy as np
import pandas as pd
import pytest

from pkm import datasets

TABLE_POINTS = np.array([[0.0, 10.0, 3.0], [5.0, 20.0, 3.0], [10.0, 40.0, 3.0]])


TABLE = "id,height,city,width\n7,1.5,Rome,2\n3,2.5,Oslo,4\n5,3.5,Rome,6\n"


def write(tmp_path, text, name="points.csv"):
    path = tmp_path / name
    content = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


def read_error(path, **arguments):
    """The one line with which a file is refused."""
    with pytest.raises(ValueError) as refused:
        datasets.load(path=path, **arguments)
    message = str(refused.value)
    assert "\n" not in message
    assert str(path) in message
    return message


def write_points(path, points, columns=("a", "b", "c")):
    frame = pd.DataFrame(points, columns=list(columns)[: points.shape[1]])
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        np.save(path, points)
    return path
