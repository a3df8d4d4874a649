"""Child processes: exit codes in order, a stop at the first failure, whole groups ended."""

import os
import signal
import subprocess
import time

import pytest

from nadpvi.engines.processes import describe_exit, run_processes


def run_scripts(folder, scripts, **options):
    consoles = [folder / f"{index}.txt" for index in range(len(scripts))]
    codes = run_processes([["/bin/sh", "-c", script] for script in scripts], consoles=consoles, **options)
    return codes, [console.read_text() if console.exists() else None for console in consoles]


def is_running(pid):
    """Whether a process, perhaps not our child, runs: one that has ended but is not reaped does not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return bool(state.stdout.strip()) and not state.stdout.strip().startswith("Z")


@pytest.mark.parametrize("max_parallel", [1, 2, 5])
def test_codes_and_consoles_come_in_order(tmp_path, max_parallel):
    scripts = [f"echo out {index}; echo err {index} >&2" for index in range(5)]
    codes, consoles = run_scripts(tmp_path, scripts, max_parallel=max_parallel)
    assert codes == [0] * 5
    assert consoles == [f"out {index}\nerr {index}\n" for index in range(5)]


def test_first_failure_ends_the_others(tmp_path):
    codes, consoles = run_scripts(tmp_path, ["exec sleep 600", "exit 7", "echo never"], max_parallel=2)
    assert codes == [None, 7, None]
    assert consoles[2] is None


def test_program_that_does_not_start_ends_the_others(tmp_path):
    pid_file = tmp_path / "pid"
    waiter = ["/bin/sh", "-c", f'echo $$ > "{pid_file}"; exec sleep 600']
    consoles = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    until_started = ["/bin/sh", "-c", f'while [ ! -s "{pid_file}" ]; do sleep 0.02; done']
    with pytest.raises(FileNotFoundError):
        run_processes([waiter, until_started, [str(tmp_path / "none")]], consoles=consoles, max_parallel=2)
    assert not is_running(int(pid_file.read_text()))


def test_compiler_started_by_make_ends_with_it(tmp_path):
    pid_file = tmp_path / "pid"
    script = f'(trap "" TERM; exec sleep 600) & echo $! > "{pid_file}"; kill -INT {os.getpid()}; wait'
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run_scripts(tmp_path, [script], own_group=True)
    pid = int(pid_file.read_text())
    for _ in range(500):  # whoever inherits it may take a moment
        if not is_running(pid):
            break
        time.sleep(0.02)
    assert not is_running(pid)
    assert signal.getsignal(signal.SIGINT) is before


def test_exits_are_described():
    assert describe_exit(None) == "was not run to its end"
    assert describe_exit(-signal.SIGSEGV) == "was ended by SIGSEGV"
    assert describe_exit(-200) == "was ended by signal 200"
