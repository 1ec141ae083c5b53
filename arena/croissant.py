"""A table of the arena as Croissant metadata (format 1.0)."""

from typing import Any

import pandas as pd

import pkm
from pkm.datasets.croissant import CONFORMS_TO, CONTEXT
from pkm.files import sha256

FILE_ID = "table"


def describe_table(table: pd.DataFrame, name: str, content: bytes) -> dict[str, Any]:
    """Describe a CSV file with its columns as JSON-LD.

    Parameters
    ----------
    table : DataFrame
        What the file holds.
    name : str
        Of the file.
    content : bytes
        Of the file.
    """
    file = {
        "@type": "cr:FileObject",
        "@id": FILE_ID,
        "name": name,
        "contentUrl": name,
        "encodingFormat": "text/csv",
        "sha256": sha256(content),
    }
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"entries/{column}",
            "name": column,
            "dataType": "sc:Text" if values.dtype == "str" else "sc:Float",
            "source": {
                "fileObject": {"@id": FILE_ID},
                "extract": {"column": column},
            },
        }
        for column, values in table.items()
    ]
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": "leaderboard of private k-means",
        "description": "Costs, claims and verifications of entries on one suite.",
        "license": "https://creativecommons.org/licenses/by/4.0/",
        "version": pkm.__version__,
        "distribution": [file],
        "recordSet": [{"@type": "cr:RecordSet", "@id": "entries", "field": fields}],
    }
