"""Fitted models without their data: statements, folders to publish, scikit-learn."""

import importlib
import io
import json
import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.validation import check_is_fitted

from pkm.compute import Symlog
from pkm.files import atomic_write, record_digest, sha256
from pkm.methods.prediction import NearestCenters
from pkm.methods.report import REPORTED, Report
from pkm.methods.statement import TEXTS, Statement, describe_ledger, to_json
from pkm.methods.zoom import Zoom
from pkm.names import suggestion

#: Files of a saved model: its statement for people; the same for programs, with all
#: that `load` needs; and released arrays, by attribute.
PAGE = "statement.md"
RECORD = "model.json"
ARRAYS = {
    "cluster_centers_": "centers.npy",
    "_centers": "grid_centers.npy",
    "synopsis_": "synopsis.npy",
    "cost_curve_": "cost_curve.npy",
}
#: Released numbers of the record, besides those of the statement.
VALUES = ("n_interval_", "n_iter_", "zoom_", *REPORTED)
#: Imported by name: the code of a method does not depend on the list of all methods.
PACKAGE = __name__.rpartition(".")[0]


class ReleasedModel(NearestCenters):
    """A fitted model that is stated, saved and converted, without its data."""

    def statement(self: Any, **curator: str) -> Statement:
        """State what was released, what is promised to whom, and what it cost.

        Parameters
        ----------
        **curator : str
            What only the data curator can say: ``name``, ``description``,
            ``curator``, ``curator_type``, ``contact``, ``purpose``, ``region``,
            ``sector``, ``publication_date``, ``other_releases``, ``preprocessing``,
            ``justification``, ``utility``, ``bias``, ``security``, ``access_control``,
            ``data_collection``, ``authors``. What is left out is marked as open.

        Returns
        -------
        Statement
            With ``to_dict()`` for JSON and ``to_markdown()`` for people.

        Raises
        ------
        NotFittedError
            If the model is not fitted.
        TypeError
            If there is no such keyword.
        """
        check_is_fitted(self, "cluster_centers_")
        for name in curator.keys() - TEXTS["questions"].keys():
            hint = suggestion(name, TEXTS["questions"])
            raise TypeError(f"statement() has no keyword {name!r}{hint}")
        # Whoever knows the seed can take the noise off. The ledger says what drew it.
        parameters = self.parameters
        for name in ("random_state", "secure"):
            parameters.pop(name, None)
        # JSON has no infinite numbers: bounds that were found are in their place.
        if np.isinf(np.asarray(parameters["bounds"], np.float64)).any():
            parameters["bounds"] = self._fitted_bounds
        record = {
            "method": importlib.import_module(PACKAGE).import_path(type(self)),
            "variant": self.variant,
            "claim": asdict(self.claim),
            "ledger": self.ledger_ and describe_ledger(self.ledger_),
            "public": {
                "n": self.n_,
                "n_clusters": self.n_clusters,
                "feature_names": getattr(self, "feature_names_in_", None),
                "bounds": self._fitted_bounds,
                "parameters": parameters,
            },
            "domain": self.domain_,
            "sha256": {
                name: sha256(content) for name, content in _write_arrays(self).items()
            },
            "curator": curator,
            "software": self._software,
        }
        return Statement(**to_json(record))

    def save(self: Any, folder: str | os.PathLike[str], **curator: str) -> None:
        """Write what was released, and its statement, to a folder to publish.

        Files are JSON, NPY and Markdown. They have nothing of the data but what was
        released, and no seed of the noise. Without a privacy claim centers alone may
        tell records.

        Parameters
        ----------
        folder : path-like
            A new folder or an empty one. It is whole or absent, whatever happens.
        **curator : str
            As of :meth:`statement`.

        Raises
        ------
        FileExistsError
            If there is a folder of that name with something in it.
        NotADirectoryError
            If there is a file of that name.
        NotFittedError
            If the model is not fitted.

        See Also
        --------
        pkm.load : Reads the folder.
        """
        statement = self.statement(**curator)
        values = {name: getattr(self, name) for name in VALUES if hasattr(self, name)}
        record = to_json({**statement.to_dict(), "values": values})
        record["checksum"] = record_digest(record)
        files = {
            PAGE: statement.to_markdown().encode(),
            RECORD: json.dumps(record, indent=1).encode(),
        }
        _write_folder(Path(folder).absolute(), files | _write_arrays(self))

    def to_sklearn(self: Any) -> Pipeline:
        """Return a pipeline of scikit-learn that predicts as this model does.

        It clips rows to the bounds and scales them to half-widths, by a
        ``MinMaxScaler``, and has a fitted ``KMeans`` of the released centers, without
        ``labels_``. ``skops.io.dump`` and ``skl2onnx.to_onnx`` take it.

        Returns
        -------
        Pipeline
            Without a zoom ``predict`` rounds rows to grid steps of 2^-16 half-widths.
            Labels can differ for rows that are so near to the border of two clusters.

        Examples
        --------
        >>> from pkm.methods import Lloyd
        >>> model = Lloyd(2, bounds=(0, 10)).fit([[0.0, 5.0], [10.0, 5.0]])
        >>> pipeline = model.to_sklearn()
        >>> X = [[1.0, 5.0], [8.0, 5.0]]
        >>> pipeline.predict(X).tolist() == model.predict(X).tolist()
        True
        """
        check_is_fitted(self, "cluster_centers_")
        # Rows outside are clipped, and columns weigh what they do in the fit.
        scaler: Any = MinMaxScaler((-1, 1), clip=True)
        scaler.fit(np.array(self._fitted_bounds))
        if hasattr(self, "feature_names_in_"):
            scaler.feature_names_in_ = self.feature_names_in_
        _, centers = self._scale(self.cluster_centers_)
        kmeans = KMeans(len(centers), init=centers)
        # All that `KMeans.fit` sets and `predict` and `transform` read.
        vars(kmeans).update(
            cluster_centers_=centers,
            n_features_in_=self.n_features_in_,
            n_iter_=self.n_iter_,
            _n_features_out=len(centers),
            _n_threads=1,
        )
        return make_pipeline(scaler, kmeans)


def load(folder: str | os.PathLike[str], method: type | None = None) -> ReleasedModel:
    """Read a model that :meth:`ReleasedModel.save` wrote; files are data, not code.

    Parameters
    ----------
    folder : path-like
    method : type, optional
        Class of the method, if it is none of ``pkm.methods``: no other is imported.

    Returns
    -------
    estimator of the method
        Its ``predict``, ``transform`` and ``statement`` are those of the saved model.

    Raises
    ------
    ValueError
        If a file is damaged, or has another format, or the class is another one.
    BudgetExceeded
        If the charges exceed the budget.
    """
    folder = Path(folder)
    record = _read_record(folder / RECORD)
    statement = Statement.from_dict(record)
    public = statement.public
    # Parameters are public values; a seed is not among them.
    model = _find_class(statement.method, method)(**public["parameters"])
    for attribute, name in ARRAYS.items():
        if name not in statement.sha256:
            continue
        content = (folder / name).read_bytes()
        if sha256(content) != statement.sha256[name]:
            raise ValueError(
                f"{folder / name} is damaged: its SHA-256 is not that of {RECORD}"
            )
        setattr(model, attribute, np.load(io.BytesIO(content), allow_pickle=False))
    vars(model).update(
        record["values"],
        n_=public["n"],
        n_features_in_=len(statement.domain[0]),
        domain_=np.array(statement.domain),
        ledger_=statement.to_ledger(),
        _fitted_bounds=tuple(np.array(public["bounds"])),
        _software=statement.software,
    )
    if public["feature_names"]:
        model.feature_names_in_ = np.array(public["feature_names"], dtype=object)
    # JSON has turned arrays to lists, and types of the project to mappings.
    if REPORTED[0] in record["values"]:
        vars(model).update(Report.from_json(record["values"]).attributes)
    if model.zoom_:
        center = np.array(model.zoom_.pop("center"))
        scale = Symlog(**model.zoom_.pop("scale"))
        model.zoom_ = Zoom(center=center, scale=scale, **model.zoom_)
    return model


def _read_record(path: Path) -> dict[str, Any]:
    """Read the record of a saved model, and check that it is whole."""
    try:
        record = json.loads(path.read_bytes())
        checksum = record.pop("checksum")
    except (ValueError, KeyError):
        record = {}
        checksum = ""
    if checksum != record_digest(record):
        raise ValueError(f"{path} is damaged: its checksum is not that of its content")
    return record


def _find_class(path: str, method: type | None) -> Any:
    """Find the class that a record names: the given one, or one of ``pkm.methods``."""
    package, _, name = path.rpartition(".")
    if method is not None:
        if method.__name__ != name:
            raise ValueError(f"method={method.__name__} must be {path}")
        return method
    methods = importlib.import_module(PACKAGE)
    kind = getattr(methods, name, None) if package == PACKAGE else None
    if not (isinstance(kind, type) and issubclass(kind, ReleasedModel)):
        raise ValueError(
            f"{path} is not imported: give its class, load(folder, {name})"
        )
    return kind


def _write_arrays(model: ReleasedModel) -> dict[str, bytes]:
    """NPY files of the released arrays."""
    files = {}
    for attribute, name in ARRAYS.items():
        if not hasattr(model, attribute):
            continue
        buffer = io.BytesIO()
        np.save(buffer, getattr(model, attribute), allow_pickle=False)
        files[name] = buffer.getvalue()
    return files


def _write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder in one step that a crash cannot leave half done."""
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"folder={str(folder)!r} must be new or empty")
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}.tmp")
    try:
        for name, content in files.items():
            atomic_write(temporary / name, content)
        # The system refuses to replace a folder that has got files in the meantime.
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
