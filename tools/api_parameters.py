"""Extension of griffe, which reads docstrings for ``make docs``.

By itself griffe takes the first of several choices as the default. It gives parameters
that share a line the type and the default of the first. With this extension defaults
always come from the signature, and so do types that the docstring does not give.

Griffe leaves the lines of *See Also* to Markdown, which would join them. This extension
makes them a list.

Clustering methods become dataclasses by inheritance, which griffe does not see. This
extension adds the decorator, so that griffe finds their fields.
"""

import re
from typing import Any

import griffe

METHODS = "pkm.methods."
#: The decorator that is added to clustering methods.
DATACLASS = griffe.Decorator(
    griffe.ExprCall(
        griffe.ExprName("dataclasses.dataclass"),
        [griffe.ExprKeyword("kw_only", "True")],
    ),
    lineno=None,
    endlineno=None,
)
ROLE = re.compile(r":\w+:`~?([\w.]+)`")
#: A line of *See Also*: a name and when it is the better choice.
NEIGHBOR = re.compile(r"^([\w.]+) : ", re.MULTILINE)


class SignatureDocstring(griffe.Docstring):
    """A docstring whose parameters have the defaults and types of the signature.

    Its *See Also* is a list in Markdown.
    """

    def parse(self, *arguments: Any, **options: Any) -> list[griffe.DocstringSection]:
        """Return the sections of the docstring."""
        sections = super().parse(*arguments, **options)
        signature = {item.name: item for item in getattr(self.parent, "parameters", ())}
        types = [
            item.annotation
            for item in signature.values()
            if item.annotation is not None
        ]
        for section in sections:
            if section.title == "See Also":
                admonition = section.value
                lines = admonition.contents
                admonition.contents = NEIGHBOR.sub(
                    r"- `\1`: ",
                    lines,
                )
            if section.kind is not griffe.DocstringSectionKind.parameters:
                continue
            for item in section.value:
                if item.name not in signature:
                    continue
                parameter = signature[item.name]
                item.value = parameter.default
                if any(item.annotation is annotation for annotation in types):
                    item.annotation = parameter.annotation
        return sections


class SignatureParameters(griffe.Extension):
    """Griffe extension: take defaults and types of signatures; Sphinx roles to code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Replace the docstring of one object."""
        docstring = obj.docstring
        if docstring is None:
            return
        obj.docstring = SignatureDocstring(
            ROLE.sub(r"`\1`", docstring.value),
            lineno=docstring.lineno,
            endlineno=docstring.endlineno,
            parent=obj,
            parser=docstring.parser,
            parser_options=docstring.parser_options,
        )

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Decorate clustering methods: classes of `METHODS` with a base class."""
        is_method = cls.path.startswith(METHODS) and cls.bases
        if is_method and not cls.decorators and "NamedTuple" not in map(str, cls.bases):
            cls.decorators.append(DATACLASS)
