"""The kind of a cell: how its seeds are fitted, beyond method, data and budget."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

from pkm.experiments.config.settings import Settings, require

#: `Run` and `Timing` of each call of a method, and further columns of the rows.
FitResults = tuple[list[tuple[Any, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Kind(Settings):
    """How the seeds of a cell are fitted; its fields are settings, and columns of rows.

    Each subclass is one file of `pkm.experiments.fit`, listed in
    `pkm.experiments.fit.kinds`. A setting that no other kind has is declared in
    ``pkm/schema.csv``, as every column.

    Attributes
    ----------
    key : str
        Key of a sweep, and of ``pkm run``, that requests this kind.
    help : str
        Help text of the key in ``pkm run``; empty for a key of sweeps alone.
    serves_persons : bool
        Whether a record may be all rows of one person, or lack some values.
    """

    key: ClassVar[str]
    help: ClassVar[str] = ""
    serves_persons: ClassVar[bool] = False

    @classmethod
    def from_sweep(cls, value: Any) -> list[Self]:
        """Read the key's value in a sweep: a kind for each combination of settings.

        Raises
        ------
        ValueError
            If the value breaks a rule.
        """
        raise NotImplementedError

    def columns(self) -> dict[str, Any]:
        """Return the settings as columns of a row."""
        return asdict(self)

    def describe(self) -> list[str]:
        """Describe in words how a cell of this kind differs from a central one."""
        return []

    def unavailable(self) -> str | None:
        """Say what is missing to run cells of this kind; None if nothing is."""
        return None

    def check_cell(self, cell: Any) -> None:
        """Refuse fields of a cell that do not go with this kind.

        Parameters
        ----------
        cell : Cell

        Raises
        ------
        ValueError
            Naming field, value and rule.
        """

    def check_method(
        self,
        cell: Any,
        method: Any,
        n: int | None,
        d: int | None,
    ) -> None:
        """Refuse a method that cannot be fitted so, as far as that is known before.

        Parameters
        ----------
        cell : Cell
        method : estimator
            The configured method of the cell.
        n, d : int or None
            Shape of its data set; None where it is drawn with the points.

        Raises
        ------
        ValueError
            Naming what is wrong.
        """
        rule = "one with fit_with; this one needs the sweep's key unlearning"
        require(hasattr(method, "fit_with"), "method", cell.method, rule)
        rule = "a subclass of PrivateKMeans that declares `claims`"
        require(hasattr(method, "claims"), "method", cell.target, rule)
        method.check_parameters(n)

    def fit(self, resolved: Any) -> FitResults:
        """Fit a cell's seeds, all in their order.

        Parameters
        ----------
        resolved : ResolvedCell

        Returns
        -------
        fits : list of (Run, Timing)
            One per call of the method.
        columns : dict
            Further measurements, one value per seed.
        """
        raise NotImplementedError

    def fixed_seconds(self) -> float:
        """Estimate the seconds that a cell takes apart from its fits."""
        return 0.0

    def seconds_per_fit(self) -> float:
        """Estimate the seconds that a fit takes beyond the method's own."""
        return 0.0
