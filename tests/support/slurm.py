"""Programs that stand for those of SLURM: they run its jobs on this machine, one after another."""

from pathlib import Path

PROGRAMS = {
    # Answers at once; the tasks of an array, or the one job, are run in the background.
    "sbatch": """
        last=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\).*/\\1/p' "$1")
        export SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=1 SLURM_NODEID=0
        export SLURM_NTASKS=1 SLURM_PROCID=0 SLURM_LOCALID=0
        if [ -n "$last" ]; then export SLURM_ARRAY_JOB_ID=7; fi
        cp "$1" "$SLURM_SUBMITTED"
        for task in $(seq 0 "${last:-0}"); do
            SLURM_ARRAY_TASK_ID=$task sh "$1" ||
                echo "7_$task|FAILED|here" >> "$SLURM_SUBMITTED.failed"
        done >/dev/null 2>&1 &
        echo "Submitted batch job 7"
    """,
    # Runs the program that follows its own options.
    "srun": """
        while true; do
            case "$1" in
                --unbuffered) shift ;;
                --output | --error) shift 2 ;;
                *) break ;;
            esac
        done
        exec "$@"
    """,
    # Knows of jobs that have failed alone: of others the result tells that they have ended.
    "sacct": """
        echo "JobID|State|NodeList"
        cat "$SLURM_SUBMITTED.failed" 2>/dev/null || true
    """,
}


def install(folder: Path) -> Path:
    """Write the programs to a folder, and return where `sbatch` copies what it is given."""
    folder.mkdir()
    for name, text in PROGRAMS.items():
        program = folder / name
        program.write_text(f"#!/bin/sh\n{text}", encoding="utf-8")
        program.chmod(0o755)
    return folder / "submitted"
