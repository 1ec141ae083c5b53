"""A confined process writes to its folders alone, opens no connection, and takes little memory."""

import subprocess
import sys
import textwrap

import pytest

START = """
import socket, subprocess, sys
from pathlib import Path
from pkm.arena import confinement
own, other = map(Path, sys.argv[1:])
"""
CONFINE = START + "assert confinement.confine_writes([own])\n"


@pytest.fixture
def run(tmp_path):
    """Return a function that runs a program with a folder of its own, and another one."""
    folders = [tmp_path / "own", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()

    def run_program(text):
        command = [sys.executable, "-c", textwrap.dedent(text), *map(str, folders)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run_program


@pytest.fixture(scope="module", autouse=True)
def need_landlock():
    probe = "from pkm.arena.confinement import confine_writes as c; raise SystemExit(not c([]))"
    if subprocess.run([sys.executable, "-c", probe], check=False).returncode:
        pytest.skip("this system cannot confine a process")


def last_line(finished):
    return finished.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    "attempt",
    [
        pytest.param("(other / 'file').write_text('x')", id="new file"),
        pytest.param("(other / 'folder').mkdir()", id="folder"),
        pytest.param("(own / 'link').symlink_to(other); (own / 'link' / 'f').touch()", id="link"),
        pytest.param("(own / 'a').touch(); (own / 'a').rename(other / 'a')", id="move"),
        pytest.param("(other / 'kept').unlink()", id="removal"),
        pytest.param("open(other / 'kept', 'r+').truncate(0)", id="truncation"),
        pytest.param("open(other / 'kept', 'a').write('x')", id="append"),
    ],
)
def test_nothing_outside_is_written(run, tmp_path, attempt):
    kept = tmp_path / "other" / "kept"
    kept.parent.mkdir(exist_ok=True)
    kept.write_text("kept")
    finished = run(CONFINE + attempt)
    # A move between folders that differ in their rights is one between devices.
    assert last_line(finished).startswith(("PermissionError", "OSError: [Errno 18]"))
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["kept"]
    assert kept.read_text() == "kept"


def test_its_own_folder_and_devices_are_written(run, tmp_path):
    finished = run(CONFINE + "(own / 'a').write_text('x'); open('/dev/null', 'w').write('x')")
    assert finished.returncode == 0, finished.stderr
    assert (tmp_path / "own" / "a").read_text() == "x"


def test_everything_is_read(run):
    finished = run(CONFINE + "Path(confinement.__file__).read_text()")
    assert finished.returncode == 0, finished.stderr


def test_child_processes_are_confined(run, tmp_path):
    finished = run(CONFINE + "subprocess.run(['touch', other / 'file'])")
    assert "ermission denied" in finished.stderr
    assert not list((tmp_path / "other").iterdir())


def test_connections_are_refused(run, server):
    """The server answers without confinement."""
    address, _, _ = server
    port = int(address.rpartition(":")[2])
    connect = f"socket.create_connection(('127.0.0.1', {port})).close()\n"
    assert run(START + connect).returncode == 0
    assert last_line(run(CONFINE + connect)).startswith("PermissionError")


def test_memory_is_limited(run):
    """An array above the limit is refused at once: nothing is filled."""
    use = "confinement.limit_resources(); import numpy; numpy.ones(2 * confinement.MEMORY // 8)"
    finished = run(START + use)
    assert "MemoryError" in last_line(finished)


def test_files_are_limited(run, tmp_path):
    use = """
    confinement.FILE_SIZE = 10_000
    confinement.limit_resources()
    (own / "file").write_bytes(bytes(20_000))
    """
    finished = run(START + textwrap.dedent(use))
    assert last_line(finished).startswith("OSError: [Errno 27]")
    assert (tmp_path / "own" / "file").stat().st_size <= 10_000
