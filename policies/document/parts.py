"""The project's documents (policies, test suites): their parts, and errors as sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from policies.document.suggestions import unknown


class Part(BaseModel):
    """A part of the document: camelCase keys, immutable, unknown keys rejected, no coercion."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        strict=True,
        validate_by_name=False,
    )


def sentences(error: ValidationError, document: type[Part], root: str) -> Iterator[str]:
    """Yield a sentence for each problem: the path, the problem, the accepted values.

    ``document`` is the model of the document, and ``whole`` stands for a path that is empty.
    """
    for problem in error.errors():
        yield _sentence(problem, document, root)


def _sentence(error: Any, document: type[Part], root: str) -> str:
    """Turn one of pydantic's errors into a sentence: where, what, and what is accepted."""
    location = [step for step in error["loc"] if step != "[key]"]
    where, found = _path(location) or root, error["input"]
    match error["type"]:
        case "extra_forbidden":
            accepted = _accepted_keys(document, location[:-1])
            return f"{where}: {unknown('field', location[-1], accepted)}"
        case "missing":
            return f"{where}: this field is required"
        case "value_error":
            return f"{where}: {error['ctx']['error']}"
        case "literal_error":
            return f"{where}: is {found!r:.60}, but must be {error['ctx']['expected']}"
        case "too_short" | "string_too_short":
            return f"{where}: is empty; add at least one entry"
        case "string_pattern_mismatch":
            return f"{where}: is {found!r:.60}; use up to 63 lower-case letters, digits and '-'"
        case "string_type":
            quote = "; put the value in quotes" if isinstance(found, bool | int | float) else ""
            return f"{where}: must be a string, but is {found!r:.60}{quote}"
        case "int_type":
            return f"{where}: must be a whole number, but is {found!r:.60}"
        case "greater_than_equal" | "less_than_equal":
            bound = "at least" if error["type"].startswith("greater") else "at most"
            limit = error["ctx"].get("ge", error["ctx"].get("le"))
            return f"{where}: must be {bound} {limit}, but is {found}"
        case "model_type" | "dict_type":
            return f"{where}: must be a mapping, but is {found!r:.60}"
        case "list_type":
            return f"{where}: must be a list, but is {found!r:.60}"
        case _:
            text = error["msg"]
            return f"{where}: {text[0].lower()}{text[1:]} (found {found!r:.60})"


_MAPPINGS = ("matchLabels", "nodeSelector", "rules", "values")


def _path(location: list[str | int]) -> str:
    """Return the path as Kubernetes prints it: free keys of a mapping are in brackets."""
    text, previous = "", None
    for step in location:
        in_brackets = isinstance(step, int) or previous in _MAPPINGS
        text += f"[{step}]" if in_brackets else f".{step}"
        previous = step
    return text.removeprefix(".")


def _accepted_keys(document: type[Part], location: list[str | int]) -> list[str]:
    """Return the keys of the part of the document at ``location``."""
    part: type[BaseModel] = document
    for step in location:
        if isinstance(step, int):
            continue
        for name, field in part.model_fields.items():
            if step == (field.alias or name):
                part = _model_in(field.annotation) or part
    return [field.alias or name for name, field in part.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)
