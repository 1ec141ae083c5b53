"""``pkm bench``: print the speed ratios and their targets; exit with 1 if a target is missed.

Times are the least CPU seconds of a few repetitions, one thread, in one process, so that a busy machine disturbs the
ratios little.
"""

import time
import tracemalloc
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from pkm import datasets
from pkm.benchmarks.dist_dp import distance_based
from pkm.benchmarks.first_calls import first_calls
from pkm.benchmarks.kaplan_stemmer import kaplan_stemmer
from pkm.benchmarks.local_dp import local_model
from pkm.benchmarks.measurement import Measurement, least_seconds
from pkm.benchmarks.reference import cluster, nicv, separate
from pkm.compute import SCALE, Points, labels
from pkm.federation import FederatedCurator, Masks, Ring
from pkm.federation.curator import ClientSession
from pkm.federation.masks import SECRET_BYTES, KeyStream
from pkm.federation.parties import aggregate, encoded_noise
from pkm.methods import DPM, FastLloyd, GLloyd, Lloyd, LSHSplits, SuLloyd
from pkm.methods.unlearning import mufc
from pkm.metrics import evaluate
from pkm.privacy import NoiseStreams, snap

EPSILONS = (0.1, 0.25, 0.5, 0.75, 1.0)


def data(name: str, n: int, d: int) -> tuple[str, np.ndarray]:
    """A data set in [-1, 1]^d, or noise of the same shape where the original is not at hand; the name says which."""
    try:
        return name, datasets.scale(datasets.load(name), "minmax").points
    except datasets.DataUnavailable:
        return f"{name} (noise of its shape)", np.random.default_rng(0).uniform(-1, 1, (n, d))


def s1_sweep() -> list[Measurement]:
    """Four methods, five budgets, twenty seeds on s1, NICV only; points laid out and starting centers found before."""
    name, points = data("s1", 5000, 2)
    prepared = Points.prepare(snap(points))
    methods = [Lloyd(15, variant="published")] + [
        method(15, epsilon=epsilon, variant="published")
        for method in (SuLloyd, GLloyd, FastLloyd)
        for epsilon in EPSILONS
    ]

    def batched(seeds):
        for method in methods:
            evaluate(prepared, method.fit_batch(prepared, seeds).centers, ["nicv"])

    def straightforward(seeds):
        for method in methods:
            for seed in seeds:
                nicv(points, cluster(method, points, seed))

    ours = least_seconds(lambda: batched(range(20)))
    theirs = least_seconds(lambda: straightforward(range(2)), repetitions=1) * 10
    return [
        Measurement(f"{name} sweep, 320 fits", ours, "s CPU", 0.1, at_most=True),
        Measurement(f"{name} sweep, against numpy", theirs / ours, "x", 20),
    ]


def single_fits() -> list[Measurement]:
    """One FastLloyd fit at epsilon 0.5, from grid points to centers, and its distance part."""
    gemm = gemm_rate()
    sets = [(*data(name, n, d), k) for name, n, d, k in (
        ("adult", 48_842, 6, 3), ("birch2", 25_000, 2, 100), ("mnist", 10_000, 784, 10))]  # fmt: skip
    sets.append(("10,000 x 512", np.random.default_rng(0).uniform(-1, 1, (10_000, 512)), 32))
    rows = []
    for name, points, k in sets:
        method, grid = FastLloyd(k, epsilon=0.5, variant="published"), snap(points)
        ours = least_seconds(lambda m=method, g=grid: m.fit_batch(g, [0]))
        theirs = least_seconds(lambda m=method, p=points: cluster(m, p, 0), repetitions=1)
        rows.append(Measurement(f"{name}, k = {k}: fit against numpy", theirs / ours, "x", 20))
        d = points.shape[1]
        if d >= 64:
            prepared, centers = Points.prepare(grid), grid[None, :k]
            seconds = least_seconds(lambda p=prepared, c=centers: labels(p, c))
            rate = 2 * len(points) * k * d / seconds
            rows.append(
                Measurement(
                    f"{name}, k = {k}: distances against GEMM", rate / gemm, "of its rate", 0.5
                )
            )
    return rows


#: Data set, its shape and k, its common range, and the CPU milliseconds that a fit of DPM and of LSH-Splits may take.
TREES = (
    ("letters-18720", 18_720, 16, 26, (0.0, 15.0), 10, 20),
    ("gas", 36_733, 11, 2, (-6.23, 1100.9), 15, 30),
    ("synth-10d", 100_000, 10, 64, (-100.0, 100.0), 40, 60),
    ("synth-100d", 100_000, 100, 64, (-100.0, 100.0), 400, 150),
)
FITS = 10  # replicates that share one encoding of the points


def trees() -> list[Measurement]:
    """Fits of the methods that grow trees, per replicate of a batch; DPM's extra memory, encoding included."""
    return [row for tree in TREES for row in one_set_of_trees(*tree)]


def one_set_of_trees(name, n, d, k, ends, dpm_ms, lsh_ms) -> list[Measurement]:
    """The rows of one data set."""
    lower, upper = ends
    try:
        raw = np.clip(datasets.load(name).points, lower, upper)
    except datasets.DataUnavailable:
        raw, name = (
            np.random.default_rng(0).uniform(lower, upper, (n, d)),
            f"{name} (noise of its shape)",
        )
    points, _ = Points.from_box(raw, np.full(d, lower), np.full(d, upper))
    hash(points)  # the data set's identity, worked out once
    domain = [[lower] * d, [upper] * d]
    rows = []
    for method, limit in ((DPM, dpm_ms), (LSHSplits, lsh_ms)):
        for variant in ("published", "sound"):
            fitted, what = method(k, variant=variant), f"{name}: {method.__name__} {variant}"
            fit = least_seconds(lambda m=fitted: m.fit_batch(points, range(FITS), domain), 3) / FITS
            rows.append(Measurement(what, 1e3 * fit, "ms CPU", limit, at_most=True))
            if method is DPM:
                extra = peak_bytes(lambda m=fitted: m.fit_batch(points, [0], domain), points) / (
                    n * d
                )
                rows.append(
                    Measurement(f"{what}, extra memory", extra, "bytes a value", 3, at_most=True)
                )
            if method is DPM and variant == "published":
                naive = least_seconds(lambda: separate(raw, lower, upper, 0), repetitions=1)
                rows.append(Measurement(f"{what}, against numpy", naive / fit, "x", 5))
    return rows


#: What the FastLloyd authors' code takes per iteration at two clients, 100,000 x 2 points, k = 2: milliseconds.
AUTHORS_CLIENT, AUTHORS_SERVER = 10.8, 1.9


class Loopback:
    """A link that answers every message at once, with zeros."""

    def send(self, message):
        """Take a message."""

    def receive(self, n_bytes):
        """Answer it."""
        return np.zeros(n_bytes, np.uint8)


def protocol() -> list[Measurement]:
    """What the parties of the masked protocol compute per iteration, apart from the wire, and masking by itself."""
    n, d, k = 100_000, 2, 2
    points = Points.prepare(snap(np.random.default_rng(0).uniform(-1, 1, (n // 2, d))))
    method, ring = FastLloyd(k, epsilon=0.1, variant="published"), Ring(8)
    schedule, secret = method.schedule(n, d), bytes(SECRET_BYTES)

    def client():
        member = ClientSession(Loopback(), Masks(secret, 1, 2, ring), n)
        method.fit_with(
            lambda ledger, s: FederatedCurator(points, ledger, s.seeds, None, member), n, d, [0]
        )

    messages, streams = [np.ones((1, k, d + 1), ring.dtype)] * 2, NoiseStreams([0])

    def server():
        for number, this in enumerate(schedule * 20):
            aggregate(ring, messages, encoded_noise(ring, (1, k, d + 1), this, streams, number))

    values = np.zeros(1 << 20, np.int64)
    masks, streams_of = (
        Masks(secret, 2, 3, ring),
        [KeyStream(secret, number) for number in range(3)],
    )

    def cipher():
        for stream in streams_of:
            stream.next(values.shape, ring.dtype)

    client_ms = 1e3 * least_seconds(lambda: [client() for _ in range(20)]) / 20 / len(schedule)
    server_ms = 1e3 * least_seconds(server) / 20 / len(schedule)
    share = least_seconds(cipher) / least_seconds(lambda: masks.unmask(masks.mask(values)))
    name = "protocol, 100,000 x 2, k = 2"
    return [
        Measurement(
            f"{name}: a client, per iteration",
            client_ms,
            "ms CPU",
            AUTHORS_CLIENT / 10,
            at_most=True,
        ),
        Measurement(
            f"{name}: the server and its noise",
            server_ms,
            "ms CPU",
            AUTHORS_SERVER / 10,
            at_most=True,
        ),
        Measurement("masking 1,048,576 words: against the cipher alone", share, "of its rate", 0.5),
    ]


def unlearning() -> list[Measurement]:
    """Seeding and removals with celltype's shape, and sustained exact deletions from a million points."""
    name, raw = data("celltype", 12_009, 10)
    parts = [Points.prepare(part) for part in np.array_split(snap(raw), 100)]
    model, k = mufc(4).fit(parts, 0), 4
    seconds = least_seconds(lambda: [client.seed(0) for client in model._clients])
    rows = [Measurement(f"{name}: seeding 100 clients", 1e3 * seconds, "ms CPU", 8, at_most=True)]
    kept, hit = [], []
    generator = np.random.default_rng(0)
    for request in range(300):
        others = np.setdiff1d(model.ids, model.seeds)
        start = time.process_time()
        removal = model.remove([generator.choice(model.seeds if request % 3 == 0 else others)])
        if removal.n_reseeded:
            hit.append(time.process_time() - start)
        else:
            kept.append(removal.client_seconds)
    bookkeeping, whole = 1e3 * float(np.median(kept)), 1e3 * float(np.median(hit))
    rows += [
        Measurement(
            f"{name}: a removal without re-seeding, at the client",
            bookkeeping,
            "ms",
            0.1,
            at_most=True,
        ),
        Measurement(
            f"{name}: a removal with re-seeding and the server's refit",
            whole,
            "ms CPU",
            10,
            at_most=True,
        ),
    ]
    many = Points.prepare(np.random.default_rng(0).integers(-SCALE, SCALE + 1, (10_000, 10)))
    model = mufc(k).fit([many] * 100, 0)
    for batch, target in ((1, 50), (100, 2000)):
        asked = generator.permutation(model.ids)[: 50 * batch].reshape(50, batch)
        start = time.process_time()
        for ids in asked:
            model.remove(ids)
        rate = asked.size / (time.process_time() - start)
        rows.append(
            Measurement(
                f"1,000,000 x 10, 100 clients: exact deletions, {batch} a request",
                rate,
                "/ s",
                target,
            )
        )
    return rows


def peak_bytes(call: Callable, points: Points) -> int:
    """Most memory that a call holds at once, its encodings of the points included."""
    points.derived.clear()
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def gemm_rate(size: int = 1500) -> float:
    """Floating-point operations per second of this machine's float64 matrix product, one thread."""
    matrix = np.random.default_rng(0).random((size, size))
    return 2 * size**3 / least_seconds(lambda: matrix @ matrix)


def main() -> int:
    """Measure everything, print a table."""
    with threadpool_limits(1):
        rows = s1_sweep() + single_fits() + trees() + protocol() + unlearning()
        rows += distance_based() + kaplan_stemmer() + local_model() + first_calls()
    table = Table("what", "measured", "target", "", title="Speed")
    for row in rows:
        sign = "<=" if row.at_most else ">="
        verdict = "ok" if row.kept else "MISSED"
        table.add_row(row.what, f"{row.value:.3g} {row.unit}", f"{sign} {row.target:g}", verdict)
    Console().print(table)
    return int(not all(row.kept for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
