"""Cells without parties: what a method gets."""

import numpy as np
from small_plans import cells

from pkm.experiments.fit.execute import execute


def test_fit_batch_receives_the_domain_in_raw_units(tmp_path, monkeypatch):
    (tmp_path / "recording.py").write_text(
        "import numpy as np\nfrom pkm.methods import PrivateKMeans, Run\n"
        "from pkm.privacy import NO_CLAIM\n\n\n"
        "class Recording(PrivateKMeans):\n"
        "    claims = {'sound': NO_CLAIM}\n"
        "    calls = []\n\n"
        "    def __init__(self, n_clusters=8):\n"
        "        self.n_clusters = n_clusters\n\n"
        "    def fit_batch(self, points, seeds, domain=None, **options):\n"
        "        self.calls.append((tuple(seeds), domain.tolist()))\n"
        "        n_centers = np.array([1 + seed for seed in seeds])\n"
        "        centers = np.zeros((len(seeds), n_centers.max(), points.shape[1]), np.int64)\n"
        "        for r, seed in enumerate(seeds):\n"
        "            centers[r, : seed + 1] += 1000 * np.arange(1, seed + 2)[:, None]\n"
        "            centers[r, seed + 1 :] = 1000\n"
        "        return Run(centers, 0, None, tuple(seeds), n_centers)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import recording

    metrics = ["nicv", "n_centers", "nonempty_centers", "empty_clusters"]
    sweep = {
        "datasets": ["blobs-200-3-2"],
        "methods": [{"name": "recording", "_target_": "recording.Recording"}],
        "preprocessing": "range",
        "metrics": metrics,
        "seeds": [0, 2, 1],
    }

    def execute_and_check(timing, batches):
        recording.Recording.calls.clear()
        (cell,) = cells(**sweep, timing=timing)
        rows = execute(cell)
        box = [[-100.0] * 3, [100.0] * 3]
        assert recording.Recording.calls == [(batch, box) for batch in batches]
        # Each seed releases a different number of centers.
        assert rows["n_centers"].tolist() == [1, 3, 2]
        assert rows["nonempty_centers"].le(rows["n_centers"]).all()
        return rows

    rows = execute_and_check(timing=False, batches=[(0, 2, 1)])
    timed_rows = execute_and_check(timing=True, batches=[(0,), (0,), (2,), (1,)])
    for name in metrics:
        np.testing.assert_array_equal(rows[name], timed_rows[name])
