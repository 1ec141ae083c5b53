# Classes that `__getattr__` of the package imports when they are first used.
from pkm.methods.base import PrivateKMeans as PrivateKMeans
from pkm.methods.baselines.baselines import DataMean as DataMean
from pkm.methods.baselines.baselines import NoisyMean as NoisyMean
from pkm.methods.baselines.baselines import PackingCenters as PackingCenters
from pkm.methods.baselines.diffprivlib import DiffprivlibKMeans as DiffprivlibKMeans
from pkm.methods.baselines.kmeans import KMeansPlusPlus as KMeansPlusPlus
from pkm.methods.baselines.kmedian import KMedian as KMedian
from pkm.methods.baselines.program import ProgramKMeans as ProgramKMeans
from pkm.methods.baselines.public_data import PublicKMeans as PublicKMeans
from pkm.methods.distance.dist_dp import DistDP as DistDP
from pkm.methods.distance.rho_bounded import NoisedPoints as NoisedPoints
from pkm.methods.fitting import Run as Run
from pkm.methods.hashing.balcan import Balcan as Balcan
from pkm.methods.hashing.kaplan_stemmer import KaplanStemmer as KaplanStemmer
from pkm.methods.hashing.lsh_splits import LSHSplits as LSHSplits
from pkm.methods.lloyd.dp_lloyd import DPLloyd as DPLloyd
from pkm.methods.lloyd.feddp_kmeans import FedDPKMeans as FedDPKMeans
from pkm.methods.lloyd.lloyd import FastLloyd as FastLloyd
from pkm.methods.lloyd.lloyd import GLloyd as GLloyd
from pkm.methods.lloyd.lloyd import Lloyd as Lloyd
from pkm.methods.lloyd.lloyd import SuLloyd as SuLloyd
from pkm.methods.lloyd.pe_means import PEMeans as PEMeans
from pkm.methods.local.kaplan_stemmer import KaplanStemmerLocal as KaplanStemmerLocal
from pkm.methods.local.local_dp import LocalLloyd as LocalLloyd
from pkm.methods.local.local_dp import LocalMean as LocalMean
from pkm.methods.local.local_dp import NoisedReports as NoisedReports
from pkm.methods.synthetic.aim import AIMKMeans as AIMKMeans
from pkm.methods.synthetic.mst import MSTKMeans as MSTKMeans
from pkm.methods.synthetic.synopsis import SynopsisKMeans as SynopsisKMeans
from pkm.methods.trees.dpm import DPM as DPM
from pkm.methods.trees.em_mc import EMMC as EMMC
from pkm.methods.trees.eugkm import EUGkM as EUGkM
from pkm.methods.trees.eugkm import GaussianEUGkM as GaussianEUGkM
from pkm.methods.trees.eugkm import GaussianHybridKMeans as GaussianHybridKMeans
from pkm.methods.trees.eugkm import HybridKMeans as HybridKMeans
from pkm.methods.trees.hst import HST as HST
from pkm.methods.trees.quadtree import QuadtreeKMeans as QuadtreeKMeans
from pkm.methods.unlearning.k_fed import KFed as KFed
from pkm.methods.unlearning.unlearning import Unlearning as Unlearning

METHODS: dict[str, str]
FEDERATED: dict[str, str]
CONTRACT: dict[str, str]

def import_path(method: type) -> str: ...
def load_method(target: str) -> type[PrivateKMeans]: ...
