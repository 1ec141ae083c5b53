"""A long compilation is told once, to people alone."""

import sys
from types import SimpleNamespace

import pytest
from numba.core.event import Event

from pkm.compute import compilation
from pkm.compute.compilation import CompilationNotice


@pytest.fixture
def compile_kernels(monkeypatch):
    """A function that plays compilations of given seconds to one notice."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(compilation, "monotonic", lambda: clock.now)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    notice = CompilationNotice()

    def play(*seconds, module="pkm.compute.kernels.scan", waits=0.0):
        kernel = SimpleNamespace(py_func=SimpleNamespace(__module__=module))
        events = Event("numba:compile", None, {"dispatcher": kernel})
        for duration in seconds:
            clock.now += waits
            notice.on_start(events)
            notice.on_start(events)  # a kernel that the first one calls
            clock.now += duration
            notice.on_end(events)
            notice.on_end(events)

    return play


def test_a_long_compilation_is_told_once(compile_kernels, capsys):
    compile_kernels(0.9, 0.9, 0.9)
    assert capsys.readouterr().err == ""
    compile_kernels(0.9, 0.9, 9.0, 9.0)
    assert capsys.readouterr().err == compilation.NOTICE + "\n"


def test_time_between_compilations_and_foreign_kernels_do_not_count(compile_kernels, capsys):
    compile_kernels(*[0.1] * 9, waits=60)
    compile_kernels(*[9.0] * 9, module="my_kernels")
    assert capsys.readouterr().err == ""


def test_files_are_not_told(compile_kernels, capsys, monkeypatch):
    monkeypatch.delattr(sys, "ps1")
    compile_kernels(9.0, 9.0)
    assert capsys.readouterr().err == ""
