"""Lloyd's algorithm against a batch, on few points."""

from pkm.benchmarks import lloyd


def test_a_comparison_with_a_batch_warns_of_no_seed(monkeypatch, recwarn):
    monkeypatch.setattr(lloyd, "N_FITS", 1)
    assert lloyd.compare_with_batch(100).value > 0
    assert not recwarn.list
