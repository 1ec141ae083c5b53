"""HTML pages from the templates, with their pictures inside."""

import base64
import gzip
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from PIL import Image

TEMPLATES = Path(__file__).parents[1] / "templates"
PIXELS_PER_INCH = 96  # of a page
#: Colors of a picture on a page: a third of the bytes, and no difference to be seen.
COLORS = 256


def render(template: str, **context: Any) -> str:
    """Fill in a template; a name that it needs and does not get is an error."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**context).lstrip()


def embedded(image: bytes) -> str:
    """Return a PNG as the text of a data URL, with fewer colors."""
    picture = Image.open(io.BytesIO(image)).convert("RGB")
    small = io.BytesIO()
    picture.quantize(COLORS, method=Image.Quantize.FASTOCTREE).save(small, "png")
    return base64.b64encode(small.getvalue()).decode()


def packed(chart: Mapping) -> str:
    """Return a chart as text for a page: JSON, compressed to a tenth.

    Examples
    --------
    >>> json.loads(gzip.decompress(base64.b64decode(packed({"columns": 2}))))
    {'columns': 2}
    """
    content = json.dumps(chart, allow_nan=False, separators=(",", ":")).encode()
    # Without a time the same chart gives the same text.
    return base64.b64encode(gzip.compress(content, mtime=0)).decode()


def web_width(image: bytes) -> int:
    """Return the width of a PNG on a page, in pixels."""
    picture = Image.open(io.BytesIO(image))
    return round(picture.width * PIXELS_PER_INCH / picture.info["dpi"][0])
