"""One entry per published data set.

An entry holds the files, their hashes, license, citation, parser, public domain and default k. A
public domain bounds each column by what is known without the data: the scale of the measurement,
the width of the field, or the parameters of the generator. Each entry gives the reason. A domain is
never the minimum and maximum of the points.
"""

import csv
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from pkm.datasets import bundled, embeddings, generated, parsers
from pkm.datasets.sources import File, known_sha256
from pkm.files import keyed_digest

UCI = "https://archive.ics.uci.edu/static/public/"
SIPU = "https://cs.uef.fi/sipu/datasets/"
GITHUB = "https://raw.githubusercontent.com/"
SUITE = f"{GITHUB}gagolews/clustering-data-v1/27ac73a6fd331fb18181419838d2e753dd1b5f80/"
AUTHORS = f"{GITHUB}D-Diaa/privateclustering/2fffc839c5b2fb4d2ee5f83089891ca23cbc8caa/data/"
MNIST = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/")
FASHION = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    f"{GITHUB}zalandoresearch/fashion-mnist/b2617bb6d3ffa2e429640350f613e3291e10b141/data/fashion/",
)

CC_BY = "CC BY 4.0"
PUBLIC_SIPU = "public, no license stated (SIPU)"

# One file, two data sets: the second is drawn from the first.
LETTERS_FILE = File(
    "letters/letter-recognition.data",
    "2b89f3602cf768d3c8355267d2f13f2417809e101fc2b5ceee10db19a60de6e2",
    urls=(UCI + "59/letter+recognition.zip",),
    member="letter-recognition.data",
)
LETTERS_CITATION = "Slate, D. (1991). Letter Recognition. UCI Machine Learning Repository."
LETTERS_REASON = "moments and edge counts that the authors scaled to integers from 0 to 15"
GAS_URL = UCI + "551/gas+turbine+co+and+nox+emission+data+set.zip"
GAS_FILES = {
    2011: "d87ceef9aa59533cc7d924d10de241b1b06ecd11f9b26bab59191ea0f8a76b9a",
    2012: "be54b9d0e1a7de40c55d32fa489e75de892b000c066b5a09f09a19124ee29100",
    2013: "13c437bb440ec2045bd12057e6654c41dd4107a661eac16ba2e878e897a08f9e",
    2014: "c2a03c92c9c3207aad0c6be7de8d9b5b4bfa4720ad0efb2c1f21b6cec4d3f3fa",
    2015: "9b08f35fde0d4b138232a605db4093c2b8bf9d6757e6f1fbd9534ad616c13591",
}


SHUTTLE_FILES = tuple(
    File(
        f"shuttle/shuttle.{part}",
        sha256,
        gz_sha256,
        source=(
            f"{UCI}148/statlog+shuttle.zip (shuttle.{part}{packing}); expected are blank-separated "
            "integers, class last"
        ),
    )
    for part, packing, sha256, gz_sha256 in (
        (
            "trn",
            ", there packed as shuttle.trn.Z",
            "87b24ee9fb5137e1d417659cf905d84d0e15342bbaa60770f1ae83da1a38200a",
            "7e5b6c9db2350161b89b562a6b73c3ec2eea2c1d6f632bf568401236ad49b751",
        ),
        (
            "tst",
            "",
            "f776934a628d9b94c482cb058a76ddaa63823e0f74aec065813c9dff3b89d661",
            "e01ccad7a0b332783e7eaeb7c99a1df3c38d614c55f63c23d2aab60bfbe69914",
        ),
    )
)
SHUTTLE_REASON = (
    "each channel taken for a signed byte of telemetry, as the description gives no ranges; the "
    "few readings beyond are moved to its ends"
)
SHUTTLE_CITATION = (
    "Statlog (Shuttle). UCI Machine Learning Repository (data of NASA; Michie, D. et al., 1994)."
)
SKIN_FILE = File(
    "skin/Skin_NonSkin.txt",
    "008f1fb6a169498dec54fb5951be6478e5465942cc4f6df3b5dabbe484c9a98f",
    "8105fc61ceefeca8a7e821892dadf61e89cb7ebeef9d79695dda323896278bdd",
    (UCI + "229/skin+segmentation.zip",),
    "Skin_NonSkin.txt",
)
SKIN_REASON = "blue, green and red as bytes"
SKIN_CITATION = (
    "Bhatt, R. and Dhall, A. (2009). Skin Segmentation. UCI Machine Learning Repository."
)
WITH_CLASS = " The class is one more column."
S_SETS_FILES = {
    2: (
        "c26ecf31043cfecf46dd534c5330fd5d111d2e52522064b2f2eae6623b2d248c",
        "31aeb544430e3571556d2e9d514cea4ea7ae9bf8d6867052b06bd7f4af7a5161",
    ),
    3: (
        "4814574eb85f3f6f51ec9b72736ee4cac8b54885c6e02a50d872ac236d05ba63",
        "41761cdb8f63777dc08e0b7536aa6a8a814f9e354ae31f70961a29101bfbc641",
    ),
    4: (
        "e340dfe24b2aed3cdc9480a0b783b2b902ca4fabb3ec19ff969963224600898c",
        "ffc32b730a434f9c7a973fdfb9a79c3f6f8be4cbcc2484478f84707b0ab59418",
    ),
}
SNAP = "https://snap.stanford.edu/data/"
#: Above what the tables of all check-ins unpack to, some 400 million bytes each.
CHECKINS_BYTES = 2**29
#: Number of clusters of the distance-based paper where it does not vary.
MAP_CLUSTERS = 8

UNLEARNING_CUBE = "the cube in which the unlearning paper requires all values to lie"
UNLEARNING_FORM = (
    "expected is a .npz file of an array 'data' with the {n:,} points as rows of {d} numbers and, "
    "if wanted, 'label' and 'client' with an integer for each point"
)


@dataclass(frozen=True)
class Entry:
    """What is known about a data set without reading it.

    Attributes
    ----------
    name : str
    n, d, n_clusters : int
        Shape and default number of clusters; the shape is checked when the data are read.
    files : tuple of File
        In the order in which the parser takes them.
    parse : callable
        From the files' published bytes to points and labels, and clients where there are any
        (`pkm.datasets.parsers`).
    lower, upper : tuple of float
        Public bounds per column.
    reason : str
        Why these bounds are public.
    license, citation : str
    bundled : callable or None
        Reader of a copy that an installed package brings along, equal to what the parser returns.
    bundled_sha256 : str or None
        `pkm.datasets.bundled.digest` of what that reader must return.
    common_range : (float, float) or None
        One range for all columns, where it is another than the domain's; see
        `pkm.datasets.Dataset`.
    common_range_is_private : bool
        Whether it was read off the points.
    trained : datasets.embeddings.Training or None
        Where the points are embeddings: how the network is trained on the files' images. Then n, d
        and the domain are those of the embeddings, and the set is looked for in the cache only.
    prescaled : bool
        Whether the points come, or are parsed, scaled by bounds read off them; see
        `pkm.datasets.Dataset`.
    fitted : bool
        Whether the points are the output of a map fitted to these very records; see
        `pkm.datasets.Dataset`.
    restricted : bool
        Whether the records are given on request only. Then the fingerprint is keyed
        (`pkm.files.keyed_digest`), and results are for the owner of the files alone.
    """

    name: str
    n: int
    d: int
    n_clusters: int
    files: tuple[File, ...]
    parse: Callable
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    reason: str
    license: str
    citation: str
    bundled: Callable | None = None
    bundled_sha256: str | None = None
    common_range: tuple[float, float] | None = None
    common_range_is_private: bool = False
    trained: embeddings.Training | None = None
    prescaled: bool = False
    fitted: bool = False
    restricted: bool = False

    def __post_init__(self) -> None:
        if not len(self.lower) == len(self.upper) == self.d:
            raise ValueError(
                f"{self.name}: bounds of {len(self.lower)} and {len(self.upper)} columns, "
                f"d={self.d}"
            )

    def domain(self) -> np.ndarray:
        """Public bounds, (2, d) float64."""
        return np.array([self.lower, self.upper], dtype=np.float64)


def fingerprint(entry: Entry, mirror: str | PathLike | None = None) -> str:
    """SHA-256 of the files' declared hashes, the parser's source and the declared domain and range.

    The files themselves need not be read: `datasets.load` refuses any file whose hash is not the
    declared one, so equal declarations mean equal bytes, and equal bytes through an equal parser
    mean equal points. The same holds for a bundled copy, whose points and labels are checked
    against a declared hash of what the parser returns. For embeddings the
    recorded hash of the stored arrays is included; the arrays are not read either. For a file
    without a declared hash, the hash recorded when it was first read is used. The digest of
    restricted records is keyed.

    Raises
    ------
    DataUnavailable
        If the set is one of embeddings and has not been trained, or a file without a declared hash
        has never been available.
    """
    declared = {
        "files": [known_sha256(file, entry.name, mirror) for file in entry.files],
        "shape": [entry.n, entry.d],
        "domain": [entry.lower, entry.upper],
        "parser": parsers.source(entry.parse),
    }
    if entry.common_range is not None:
        declared["common range"] = [entry.common_range, entry.common_range_is_private]
    if entry.prescaled:
        declared["prescaled"] = True
    if entry.fitted:
        declared["fitted"] = True
    if entry.trained:
        declared["trained"] = [embeddings.key(entry), embeddings.stored_sha256(entry)]
    content = json.dumps(declared, sort_keys=True).encode()
    return keyed_digest(content) if entry.restricted else hashlib.sha256(content).hexdigest()


def embeddings_entry(
    name: str,
    files: tuple[File, ...],
    training: embeddings.Training,
    license: str,
    citation: str,
) -> Entry:
    """Entry of the embeddings of 60,000 training images of ten classes."""
    return Entry(
        name=name,
        n=60000,
        d=training.dimensions,
        n_clusters=10,
        files=files,
        parse=parsers.mnist,
        lower=(0.0,) * training.dimensions,
        upper=(training.upper,) * training.dimensions,
        reason="the network's own clipping layer, which bounds every embedding whatever the image",
        license=license,
        citation=(
            f"{citation} Embeddings of the training images by a network that this project trains "
            "on them."
        ),
        trained=training,
        fitted=True,
    )


def unlearning_entry(
    name: str,
    n: int,
    d: int,
    n_clusters: int,
    file: File,
    parse: Callable,
    license: str,
    citation: str,
    *,
    fitted: bool = False,
    restricted: bool = False,
) -> Entry:
    """Entry of a data set of the unlearning paper, prepared as in that paper."""
    return Entry(
        name=name,
        n=n,
        d=d,
        n_clusters=n_clusters,
        files=(file,),
        parse=parse,
        lower=(-1.0,) * d,
        upper=(1.0,) * d,
        reason=UNLEARNING_CUBE,
        license=license,
        citation=citation,
        prescaled=True,
        fitted=fitted,
        restricted=restricted,
    )


def user_supplied_entry(
    name: str,
    n: int,
    d: int,
    n_clusters: int,
    where: str,
    license: str,
    citation: str,
    *,
    restricted: bool = False,
) -> Entry:
    """Entry of a data set that each user has to obtain and convert to an archive of arrays."""
    file = File(f"{name}/{name}.npz", None, source=f"{where}; {UNLEARNING_FORM.format(n=n, d=d)}")
    return unlearning_entry(
        name, n, d, n_clusters, file, parsers.arrays, license, citation, restricted=restricted
    )


def s_set(number: int) -> Entry:
    """Entry of one of the S sets 2 to 4: as S1, with more and more overlap."""
    points_sha256, labels_sha256 = S_SETS_FILES[number]
    return Entry(
        name=f"s{number}",
        n=5000,
        d=2,
        n_clusters=15,
        files=(
            File(f"s-sets/s{number}.txt", points_sha256, urls=(f"{SIPU}s{number}.txt",)),
            File(
                f"s-sets/s{number}.labels0.gz",
                labels_sha256,
                urls=(f"{SUITE}sipu/s{number}.labels0.gz",),
            ),
        ),
        parse=parsers.s1,
        lower=(0.0,) * 2,
        upper=(1e6,) * 2,
        reason="the S sets live on a square of a million units",
        license=PUBLIC_SIPU,
        citation=(
            "Fränti, P. and Virmajoki, O. (2006). Iterative shrinking method for clustering "
            f"problems. Pattern Recognition 39(5), 761-775. {SIPU}s{number}.txt"
        ),
    )


def last_checkins(name: str, n_users: int) -> Entry:
    """Entry of a social network: the last check-in of each user."""
    file = f"loc-{name}_totalCheckins.txt.gz"
    return Entry(
        name=name,
        n=n_users,
        d=2,
        n_clusters=MAP_CLUSTERS,
        files=(File(f"{name}/{file}", None, source=SNAP + file, max_bytes=CHECKINS_BYTES),),
        parse=parsers.checkins,
        lower=(-90.0, -180.0),
        upper=(90.0, 180.0),
        reason="latitude and longitude in degrees",
        license="public, no license stated (SNAP)",
        citation=(
            "Cho, E., Myers, S. and Leskovec, J. (2011). Friendship and mobility: user movement "
            "in location-based social networks. KDD, 1082-1090; the last check-in of each user."
        ),
    )


ENTRIES = (
    Entry(
        name="iris",
        n=150,
        d=4,
        n_clusters=3,
        files=(
            File(
                "iris/iris.data",
                "6f608b71a7317216319b4d27b4d9bc84e6abd734eda7872b71a458569e2656c0",
                urls=(UCI + "53/iris.zip",),
                member="iris.data",
            ),
        ),
        parse=parsers.iris,
        lower=(0.0,) * 4,
        upper=(10.0,) * 4,
        reason="lengths and widths of parts of a small flower in centimetres",
        license=CC_BY,
        citation="Fisher, R. A. (1936). Iris. UCI Machine Learning Repository.",
        bundled=bundled.iris,
        bundled_sha256="d2712b028401f0400cb671cb99d85387a1c721d41262f30ecb7b90f029d20a90",
    ),
    Entry(
        name="lsun",
        n=400,
        d=2,
        n_clusters=3,
        files=(
            File(
                "lsun/lsun.data.gz",
                "8363ee106fab40c4b01f24a11ecc2160dc6d755e082b21a485dd4d6ee3052e5d",
                urls=(SUITE + "fcps/lsun.data.gz",),
            ),
            File(
                "lsun/lsun.labels0.gz",
                "dfede92a51d8829f276a68847fc9f0e7027e9a561f68162b887e1d714931050a",
                urls=(SUITE + "fcps/lsun.labels0.gz",),
            ),
        ),
        parse=parsers.lsun,
        lower=(0.0,) * 2,
        upper=(6.0,) * 2,
        reason="a drawing of three shapes on a plane a few units wide, all coordinates positive",
        license="see the benchmark suite (FCPS)",
        citation=(
            "Ultsch, A. (2005). Clustering with SOM: U*C. Workshop on Self-Organizing Maps, 75-82 "
            "(FCPS); copy of Gagolewski, M. (2022). A framework for benchmarking clustering "
            "algorithms. SoftwareX 20, 101270."
        ),
    ),
    Entry(
        name="s1",
        n=5000,
        d=2,
        n_clusters=15,
        files=(
            File(
                "s1/s1.fastlloyd.txt",
                "07e4fb6008159b06285165b330b40d112367a0de240898e8d45d17c2d2df02a6",
                urls=(AUTHORS + "s1.txt",),
            ),
            File(
                "s-sets/s1.labels0.gz",
                "b583261e516f8178987455be18a07891e7995f25e1cae138c0b8b2d0b66e43dd",
                urls=(SUITE + "sipu/s1.labels0.gz",),
            ),
        ),
        parse=parsers.s1,
        lower=(0.0,) * 2,
        upper=(1e6,) * 2,
        reason="the S sets live on a square of a million units",
        license=PUBLIC_SIPU,
        citation=(
            "Fränti, P. and Virmajoki, O. (2006). Iterative shrinking method for clustering "
            f"problems. Pattern Recognition 39(5), 761-775. {SIPU}s1.txt"
        ),
    ),
    Entry(
        name="house",
        n=1837,
        d=3,
        n_clusters=3,
        files=(
            File(
                "house/house.fastlloyd.txt",
                "4fe2d6a1e2ed597e4fc88cf5f5764ee287916d4094a5e1ec5bccc7e155dbcec1",
                urls=(AUTHORS + "house.txt",),
            ),
        ),
        parse=parsers.numbers,
        lower=(0.0,) * 3,
        upper=(255.0,) * 3,
        reason="red, green and blue as bytes",
        license=PUBLIC_SIPU,
        citation=(
            "Fränti, P. and Sieranoja, S. (2018). K-means properties on six clustering benchmark "
            "datasets. Applied Intelligence 48(12), 4743-4759 (image data, the distinct colors of "
            f"House at 5 bits). {SIPU}"
        ),
    ),
    Entry(
        name="adult",
        n=48842,
        d=6,
        n_clusters=3,
        files=(
            File(
                "adult/adult.data",
                "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
                "c7a2b4716a97f930123e0baf879188d701e798172631a654fc703d4b082907f3",
                (UCI + "2/adult.zip",),
                "adult.data",
            ),
            File(
                "adult/adult.test",
                "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
                "8a2c1bffa6e7ce5abfa43881ae5e87c4311ebc2b3cd526c9c40a43f19f06f799",
                (UCI + "2/adult.zip",),
                "adult.test",
            ),
        ),
        parse=parsers.adult,
        lower=(0.0, 0.0, 1.0, 0.0, 0.0, 0.0),
        upper=(99.0, 2e6, 16.0, 99999.0, 9999.0, 99.0),
        reason=(
            "age in a two-digit field; a survey weight (people that one record stands for) below "
            "two million; sixteen numbered levels of education; gains in a five-digit, losses in "
            "a four-digit field of dollars; weekly hours in a two-digit field"
        ),
        license=CC_BY,
        citation="Becker, B. and Kohavi, R. (1996). Adult. UCI Machine Learning Repository.",
    ),
    Entry(
        name="wine",
        n=178,
        d=13,
        n_clusters=3,
        files=(
            File(
                "wine/wine.data",
                "6be6b1203f3d51df0b553a70e57b8a723cd405683958204f96d23d7cd6aea659",
                urls=(UCI + "109/wine.zip",),
                member="wine.data",
            ),
        ),
        parse=parsers.wine,
        lower=(8.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        upper=(17.0, 8.0, 5.0, 40.0, 200.0, 5.0, 6.0, 1.0, 5.0, 15.0, 2.0, 5.0, 2000.0),
        reason=(
            "what a table wine can hold: alcohol 8 to 17 per cent; malic acid, ash and phenols in "
            "grams per litre; alkalinity of ash; magnesium and proline in milligrams per litre; "
            "color intensity, hue and the absorbance ratio on their instruments' usual scales"
        ),
        license=CC_BY,
        citation="Aeberhard, S. and Forina, M. (1992). Wine. UCI Machine Learning Repository.",
        bundled=bundled.wine,
        bundled_sha256="3a28849ef2366c4b9d4e382b3fa5624a66f693c04d7fdcf43c529bbb0bb338d7",
    ),
    Entry(
        name="breast",
        n=699,
        d=9,
        n_clusters=2,
        files=(
            File(
                "breast/breast-cancer-wisconsin.data",
                "402c585309c399237740f635ef9919dc512cca12cbeb20de5e563a4593f22b64",
                urls=(UCI + "15/breast+cancer+wisconsin+original.zip",),
                member="breast-cancer-wisconsin.data",
            ),
        ),
        parse=parsers.breast,
        lower=(1.0,) * 9,
        upper=(10.0,) * 9,
        reason="cytological scores, defined as 1 to 10",
        license=CC_BY,
        citation=(
            "Wolberg, W. (1990). Breast Cancer Wisconsin (Original). UCI Machine Learning "
            "Repository."
        ),
    ),
    Entry(
        name="yeast",
        n=1484,
        d=8,
        n_clusters=10,
        files=(
            File(
                "yeast/yeast.data",
                "7cf61776fc04f527f93bf57a327b863893a1225d82df02d457e8950173218258",
                urls=(UCI + "110/yeast.zip",),
                member="yeast.data",
            ),
        ),
        parse=parsers.yeast,
        lower=(0.0,) * 8,
        upper=(1.0,) * 8,
        reason="scores of sequence analysis programs, published on a scale from 0 to 1",
        license=CC_BY,
        citation="Nakai, K. (1991). Yeast. UCI Machine Learning Repository.",
    ),
    Entry(
        name="mnist",
        n=10000,
        d=784,
        n_clusters=10,
        files=(
            File(
                "mnist/t10k-images-idx3-ubyte.gz",
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                urls=tuple(base + "t10k-images-idx3-ubyte.gz" for base in MNIST),
            ),
            File(
                "mnist/t10k-labels-idx1-ubyte.gz",
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                urls=tuple(base + "t10k-labels-idx1-ubyte.gz" for base in MNIST),
            ),
        ),
        parse=parsers.mnist,
        lower=(0.0,) * 784,
        upper=(255.0,) * 784,
        reason="pixels as bytes",
        license="CC BY-SA 3.0 (as commonly stated)",
        citation=(
            "LeCun, Y., Cortes, C. and Burges, C. (1998). The MNIST database of handwritten "
            "digits (test images)."
        ),
    ),
    Entry(
        name="birch2",
        n=25000,
        d=2,
        n_clusters=100,
        files=(
            File(
                "birch2/birch2.fastlloyd.txt",
                "9e25e770b75a7be5a5393563035217871d31fa27a47a3a4a88aaf7a8f23d2c52",
                "5dec4a5937ca8bff13364618cf6bf5317fa38c2c4d8b65a53efbae5c04a09e54",
                (AUTHORS + "birch2.txt",),
            ),
        ),
        parse=parsers.numbers,
        lower=(0.0,) * 2,
        upper=(1e6,) * 2,
        reason="the Birch sets live on a square of a million units",
        license=PUBLIC_SIPU,
        citation=(
            "Zhang, T., Ramakrishnan, R. and Livny, M. (1997). BIRCH: a new data clustering "
            "algorithm and its applications. Data Mining and Knowledge Discovery 1(2), 141-182; "
            f"25,000 of the 100,000 points of {SIPU}birch2.txt."
        ),
    ),
    Entry(
        name="letters",
        n=20000,
        d=16,
        n_clusters=26,
        files=(LETTERS_FILE,),
        parse=parsers.letters,
        lower=(0.0,) * 16,
        upper=(15.0,) * 16,
        reason=LETTERS_REASON,
        license=CC_BY,
        citation=LETTERS_CITATION,
    ),
    Entry(
        name="letters-18720",
        n=18720,
        d=16,
        n_clusters=26,
        files=(LETTERS_FILE,),
        parse=parsers.letters_resampled,
        lower=(0.0,) * 16,
        upper=(15.0,) * 16,
        reason=LETTERS_REASON,
        license=CC_BY,
        citation=(
            f"{LETTERS_CITATION} 720 rows of each letter, drawn with replacement as in the DPM "
            "paper."
        ),
    ),
    Entry(
        name="gas",
        n=36733,
        d=11,
        n_clusters=2,
        files=tuple(
            File(f"gas/gt_{year}.csv", sha256, urls=(GAS_URL,), member=f"gt_{year}.csv")
            for year, sha256 in GAS_FILES.items()
        ),
        parse=parsers.gas,
        lower=(-50.0, 850.0, 0.0, 0.0, 0.0, 800.0, 400.0, 0.0, 0.0, 0.0, 0.0),
        upper=(60.0, 1100.0, 110.0, 20.0, 60.0, 1300.0, 700.0, 250.0, 30.0, 100.0, 200.0),
        reason=(
            "what a gas turbine's sensors can show: air from -50 to 60 degrees Celsius, 850 to "
            "1100 millibar and up to 110 per cent humidity (a hygrometer may read a little above "
            "saturation); pressures of air filter, exhaust and compressor up to 20 and 60 "
            "millibar and 30 bar; 800 to 1300 degrees before and 400 to 700 behind the turbine; "
            "up to 250 megawatt hours; carbon monoxide and nitrogen oxides up to 100 and 200 "
            "milligrams per cubic metre. The common range is the DPM paper's, the data's own "
            "extremes: private"
        ),
        license=CC_BY,
        citation=(
            "Kaya, H., Tüfekci, P. and Uzun, E. (2019). Predicting CO and NOx emissions from gas "
            "turbines: novel data and a benchmark PEMS. Turkish Journal of Electrical Engineering "
            "and Computer Sciences 27(6), 4783-4796."
        ),
        common_range=(-6.23, 1100.9),
        common_range_is_private=True,
    ),
    embeddings_entry(
        "mnist-embeddings",
        (
            File(
                "mnist/train-images-idx3-ubyte.gz",
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                urls=tuple(base + "train-images-idx3-ubyte.gz" for base in MNIST),
            ),
            File(
                "mnist/train-labels-idx1-ubyte.gz",
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                urls=tuple(base + "train-labels-idx1-ubyte.gz" for base in MNIST),
            ),
        ),
        embeddings.Training(epochs=6, penalty=0.0012),
        "CC BY-SA 3.0 (images, as commonly stated)",
        "LeCun, Y., Cortes, C. and Burges, C. (1998). The MNIST database of handwritten digits.",
    ),
    embeddings_entry(
        "fashion-embeddings",
        (
            File(
                "fashion-mnist/train-images-idx3-ubyte.gz",
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                urls=tuple(base + "train-images-idx3-ubyte.gz" for base in FASHION),
            ),
            File(
                "fashion-mnist/train-labels-idx1-ubyte.gz",
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                urls=tuple(base + "train-labels-idx1-ubyte.gz" for base in FASHION),
            ),
        ),
        embeddings.Training(epochs=1, penalty=0.004),
        "MIT (images)",
        (
            "Xiao, H., Rasul, K. and Vollgraf, R. (2017). Fashion-MNIST: a novel image dataset "
            "for benchmarking machine learning algorithms. arXiv:1708.07747."
        ),
    ),
    unlearning_entry(
        "celltype",
        12009,
        10,
        4,
        File(
            "celltype/celltype.npz",
            "af08ec1fdd37ebc5647d1ace8a010d4c0d68eae1a010caf9f476441fcabcb2c8",
            source=(
                "https://github.com/thupchnsky/mufc (celltype_processed.pkl, a pickle), of which "
                "expected is the .npz file that the mirror holds"
            ),
        ),
        parsers.arrays,
        "MIT (repository); Mouse Cell Atlas",
        (
            "Han, X. et al. (2018). Mapping the Mouse Cell Atlas by Microwell-Seq. Cell 172(5), "
            "1091-1107; ten principal components, scaled and split over 100 clients by Pan, C. et "
            "al. (2023). Machine unlearning of federated clusters. ICLR."
        ),
        fitted=True,
    ),
    unlearning_entry(
        "covtype-52",
        15120,
        52,
        7,
        File(
            "covtype/train.csv",
            "45d9949029e81059332efa1dcb22af082f7ad344859984b5dc761d1f328d88f5",
            "4c6b0be9a12c1843b5484fe8020a138bfbdbe1401470a9ce70aafe710145efdc",
            source=(
                "https://www.kaggle.com/c/forest-cover-type-prediction (train.csv, for registered "
                "users)"
            ),
        ),
        parsers.covtype,
        CC_BY,
        (
            "Blackard, J. and Dean, D. (1999). Comparative accuracies of artificial neural "
            "networks and discriminant analysis in predicting forest cover types from "
            "cartographic variables. Computers and Electronics in Agriculture 24(3), 131-151 (the "
            "training rows of a competition)."
        ),
    ),
    unlearning_entry(
        "postures-full",
        74975,
        15,
        5,
        File(
            "postures/Postures.csv",
            None,
            source=(
                f"{UCI}405/motion+capture+hand+postures.zip (the table with the columns Class, "
                "User, X0, ..., Z11)"
            ),
        ),
        parsers.postures,
        CC_BY,
        "Gardner, A. et al. (2014). Motion Capture Hand Postures. UCI Machine Learning Repository.",
    ),
    user_supplied_entry(
        "femnist",
        36725,
        784,
        62,
        (
            "https://github.com/TalwalkarLab/leaf (built there from NIST Special Database 19; the "
            "paper takes 100 writers of at least 350 images, and does not say which)"
        ),
        "BSD 2-Clause (LEAF)",
        "Caldas, S. et al. (2018). LEAF: a benchmark for federated settings. arXiv:1812.01097.",
    ),
    user_supplied_entry(
        "tcga",
        1904,
        57,
        4,
        (
            "https://portal.gdc.cancer.gov, with access on request (methylation at 57 sites of 11 "
            "genes, tumors LGG, LUAD, LUSC and STAD; the sites are not listed in the paper)"
        ),
        "The Cancer Genome Atlas, access-controlled",
        (
            "Hutter, C. and Zenklusen, J. (2018). The Cancer Genome Atlas: creating lasting value "
            "beyond its data. Cell 173(2), 283-285."
        ),
        restricted=True,
    ),
    user_supplied_entry(
        "tmi",
        1126,
        984,
        4,
        (
            "https://hmpdacc.org, with access on request (frequencies of bacteria in human guts; "
            "which samples is not listed in the paper)"
        ),
        "NIH Human Microbiome Project, access-controlled",
        (
            "Peterson, J. et al. (2009). The NIH Human Microbiome Project. Genome Research "
            "19(12), 2317-2323."
        ),
        restricted=True,
    ),
    s_set(2),
    s_set(3),
    s_set(4),
    Entry(
        name="shuttle",
        n=58000,
        d=9,
        n_clusters=7,
        files=SHUTTLE_FILES,
        parse=parsers.shuttle,
        lower=(-128.0,) * 9,
        upper=(127.0,) * 9,
        reason=SHUTTLE_REASON,
        license=CC_BY,
        citation=SHUTTLE_CITATION,
    ),
    Entry(
        name="shuttle-class",
        n=58000,
        d=10,
        n_clusters=7,
        files=SHUTTLE_FILES,
        parse=parsers.shuttle_with_class,
        lower=(*(-128.0,) * 9, 1.0),
        upper=(*(127.0,) * 9, 7.0),
        reason=f"{SHUTTLE_REASON}; seven numbered classes",
        license=CC_BY,
        citation=SHUTTLE_CITATION + WITH_CLASS,
    ),
    Entry(
        name="skin",
        n=245057,
        d=3,
        n_clusters=2,
        files=(SKIN_FILE,),
        parse=parsers.skin,
        lower=(0.0,) * 3,
        upper=(255.0,) * 3,
        reason=SKIN_REASON,
        license=CC_BY,
        citation=SKIN_CITATION,
    ),
    Entry(
        name="skin-class",
        n=245057,
        d=4,
        n_clusters=2,
        files=(SKIN_FILE,),
        parse=parsers.skin_with_class,
        lower=(0.0, 0.0, 0.0, 1.0),
        upper=(255.0, 255.0, 255.0, 2.0),
        reason=f"{SKIN_REASON}; two numbered classes",
        license=CC_BY,
        citation=SKIN_CITATION + WITH_CLASS,
    ),
    last_checkins("brightkite", 51406),
    last_checkins("gowalla", 107092),
    Entry(
        name="rangequeries",
        n=200_000,
        d=6,
        n_clusters=MAP_CLUSTERS,
        files=(
            File(
                "rangequeries/Range-Queries-Aggregates.csv",
                None,
                source=(
                    f"{UCI}493/query+analytics+workloads+dataset.zip "
                    "(Datasets/Range-Queries-Aggregates.csv)"
                ),
            ),
        ),
        parse=parsers.range_queries,
        lower=(1.08e6, 1.80e6, 0.0, 0.0, 0.0, 0.0),
        upper=(1.22e6, 1.96e6, 1.6e5, 1.6e5, 6e6, 6e6),
        reason=(
            "rectangles on the map of Chicago: the city in feet of its state plane, half-widths "
            "no longer than the city, and counts below the six million incidents that the city "
            "had recorded"
        ),
        license=CC_BY,
        citation=(
            "Anagnostopoulos, C., Savva, F. and Triantafillou, P. (2019). Query Analytics "
            "Workloads. UCI Machine Learning Repository (range queries with their counts of "
            "incidents and arrests)."
        ),
    ),
)

BY_NAME = {entry.name: entry for entry in ENTRIES}


def read_g2_hashes() -> dict[str, tuple[str, str]]:
    """Read the SHA-256 of each published G2 file: of a mirror's gzipped copy and of the file."""
    with Path(__file__).with_name("g2.csv").open(newline="", encoding="ascii") as file:
        return {row["name"]: (row["gz_sha256"], row["sha256"]) for row in csv.DictReader(file)}


G2_HASHES = read_g2_hashes()


def g2_entry(name: str) -> Entry | None:
    """Entry of a published G2 file whose hash is known, else None (then the set is generated)."""
    if name not in G2_HASHES:
        return None
    gz_sha256, sha256 = G2_HASHES[name]
    d, sd = (int(number) for number in name.split("-")[1:])
    lower, upper = generated.g2_domain(sd, d)
    return Entry(
        name=name,
        n=2 * generated.G2_CLUSTER_SIZE,
        d=d,
        n_clusters=2,
        files=(File(f"g2/{name}.txt", sha256, gz_sha256, (SIPU + "g2-txt.zip",), f"{name}.txt"),),
        parse=parsers.g2,
        lower=tuple(lower.tolist()),
        upper=tuple(upper.tolist()),
        reason=(
            "the family's published centers, 500 and 600, and five of its published standard "
            "deviations around them"
        ),
        license=PUBLIC_SIPU,
        citation=generated.G2_CITATION,
    )


def find(name: str) -> Entry | None:
    """Entry of a published data set, else None."""
    return BY_NAME.get(name) or g2_entry(name)
