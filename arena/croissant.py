"""Tables of the arena as Croissant metadata (format 1.0)."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
from pandas.api.types import is_numeric_dtype

import pkm
from pkm.datasets.croissant import CONFORMS_TO, CONTEXT
from pkm.files import sha256


def describe_tables(
    tables: Mapping[str, pd.DataFrame],
    contents: Mapping[str, bytes],
) -> dict[str, Any]:
    """Describe CSV files with their columns as JSON-LD.

    Parameters
    ----------
    tables : mapping of str to DataFrame
        Names of files to what they hold.
    contents : mapping of str to bytes
        Of the files.
    """
    files = [
        {
            "@type": "cr:FileObject",
            "@id": name,
            "name": name,
            "contentUrl": name,
            "encodingFormat": "text/csv",
            "sha256": sha256(content),
        }
        for name, content in contents.items()
    ]
    records = [
        {
            "@type": "cr:RecordSet",
            "@id": f"lines of {name}",
            "field": [
                {
                    "@type": "cr:Field",
                    "@id": f"{name}/{column}",
                    "name": column,
                    "dataType": "sc:Float" if is_numeric_dtype(values) else "sc:Text",
                    "source": {
                        "fileObject": {"@id": name},
                        "extract": {"column": column},
                    },
                }
                for column, values in table.items()
            ],
        }
        for name, table in tables.items()
    ]
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": "leaderboard of private k-means",
        "description": "Costs, claims and verifications of entries on one suite.",
        "license": "https://creativecommons.org/licenses/by/4.0/",
        "version": pkm.__version__,
        "distribution": files,
        "recordSet": records,
    }
