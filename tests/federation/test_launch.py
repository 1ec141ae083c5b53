"""Jobs of processes that end too late or fail."""

import time

import pytest

from pkm.federation import ProtocolError, launch, mpi_available, mpirun

needs_mpi = pytest.mark.skipif(
    not mpi_available(), reason="mpi4py and mpirun are not installed: make protocol"
)


@pytest.mark.slow
@needs_mpi
def test_job_past_its_time_limit_is_stopped():
    start = time.perf_counter()
    with pytest.raises(ProtocolError, match="did not end within 3 s"):
        mpirun(2, ["-c", "import time; time.sleep(60)"], 3)
    assert time.perf_counter() - start < 30


def test_error_of_a_job_repeats_what_its_processes_raised(tmp_path, monkeypatch):
    program = tmp_path / "mpirun"
    program.write_text(
        "#!/bin/sh\necho 'ProtocolError: client 2 stopped'\nyes | head -3000\nexit 3\n"
    )
    program.chmod(0o700)
    monkeypatch.setattr(launch, "find_mpirun", lambda: str(program))
    with pytest.raises(ProtocolError) as raised:
        mpirun(2, ["-c", ""], 20)
    error = str(raised.value)
    assert error.startswith("the job failed with exit status 3: ProtocolError: client 2 stopped\n")
    assert len(error) < 3000


def test_processes_that_outlive_a_killed_job_are_not_waited_for(tmp_path, monkeypatch):
    program = tmp_path / "mpirun"
    program.write_text("#!/bin/sh\ntrap '' TERM\nsleep 20 &\nsleep 20\n")
    program.chmod(0o700)
    monkeypatch.setattr(launch, "find_mpirun", lambda: str(program))
    monkeypatch.setattr(launch, "TERMINATION_LIMIT", 0.2)
    start = time.perf_counter()
    with pytest.raises(ProtocolError, match=r"did not end within 0\.5 s"):
        mpirun(2, ["-c", ""], 0.5)
    assert time.perf_counter() - start < 10
