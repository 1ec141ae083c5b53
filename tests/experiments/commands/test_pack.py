"""`pkm pack`: a text as `pkm run` reads it, and files that are verified."""

import numpy as np
from grid_rows import BOUNDS, matrix

from pkm.compute import Points
from pkm.compute.storage.grid_file import open_grid
from pkm.experiments.commands.pack import main
from pkm.row_blocks import row_blocks


def test_the_command_packs_a_text_as_run_reads_it(tmp_path, capsys):
    rows = matrix()[:, :2]
    source, target = tmp_path / "x.csv", tmp_path / "x.grid"
    lines = [
        ",".join("" if np.isnan(value) else repr(float(value)) for value in row) for row in rows
    ]
    source.write_text("a,b\n" + "\n".join(lines) + "\n")
    assert main([str(source), str(target), "bounds=[[-1,-2],[1,3]]"]) == 0
    assert "300 rows, 2 columns" in capsys.readouterr().out
    expected, _ = Points.quantize(rows, np.array([-1.0, -2.0]), np.array([1.0, 3.0]))
    assert open_grid(target).to_points() == expected


def test_the_command_packs_and_verifies(tmp_path, capsys):
    np.save(tmp_path / "x.npy", matrix())
    source, target = str(tmp_path / "x.npy"), str(tmp_path / "x.grid")
    bounds = "bounds=[[-1,-2,0.5],[1,3,9]]"
    assert main([source, target, bounds]) == 0
    summary = "n=300 d=3, 2 null records (number not protected), some clipped to the bounds"
    assert capsys.readouterr().out == f"{target}: {summary}\n"
    assert open_grid(target).to_points() == Points.quantize(matrix(), *BOUNDS)[0]
    assert main([target]) == 0
    assert capsys.readouterr().out == f"{target}: {summary}, checksum ok\n"
    rows = row_blocks(source)
    assert rows is not None
    for words, message in [
        ([source, target], "bounds=None is not allowed: bounds must be [lower,upper]"),
        ([source, target, "bounds=[1,0]"], "lower below upper"),
        ([source, target, "bounds=[a"], "two lists of 3 numbers"),
        ([source, str(tmp_path / "x.npz"), bounds], "ends in .grid"),
        ([str(tmp_path / "none.npy"), target, bounds], "existing file"),
        ([source, target, "range=[0,1]"], "option"),
        ([], "OUT.grid alone"),
    ]:
        assert main(words) == 2, words
        assert message in capsys.readouterr().err, words
