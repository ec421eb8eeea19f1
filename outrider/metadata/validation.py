"""From a YAML document to a checked model: every fault as a sentence with its place.

The models say what is allowed; this module turns what pydantic finds into words. Which keys
there are is taken from the model's own JSON Schema, so that a suggestion for a misspelt one
cannot differ from what is accepted.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, NoReturn, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import ErrorDetails, PydanticCustomError, core_schema

from outrider.metadata.errors import Path, shown
from outrider.metadata.yamlfile import MOST_PROBLEMS, YamlDocument

Model = TypeVar("Model", bound=BaseModel)
Schema = Mapping[str, object]


class Section(BaseModel):
    """A mapping of a file: only the keys it knows, and no conversion that nobody asked for."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, hide_input_in_errors=True, defer_build=True
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Circumstances:
    """What a file's times depend on: when it is read, and where its reader lives."""

    now_s: int
    zone: tzinfo


def validated(
    model: type[Model], document: YamlDocument, circumstances: Circumstances | None = None
) -> Model:
    """The document as this model. All of its faults are raised together."""
    checked = None
    # A file that is not YAML, or is empty, has no data; what it lacks is not worth a word.
    if document.data is not None:
        try:
            checked = model.model_validate(document.data, context=circumstances)
        except ValidationError as error:
            errors = error.errors(include_url=False)[:MOST_PROBLEMS]
            _note_all(document, errors, json_schema(model))
    document.raise_problems()
    assert checked is not None
    return checked


def contradiction(message: str, *at: str | int) -> NoReturn:
    """Refuse values that are right on their own and not together; `at` leads to the one to blame."""
    raise PydanticCustomError("contradiction", "{message}", {"message": message, "at": at})


class _SchemaWriter(GenerateJsonSchema):
    """JSON Schema as the files are: what is optional may be absent, but is never null."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        written = super().default_schema(schema)
        if written.get("default", ...) in (None, [], ""):
            del written["default"]
        return written

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def json_schema(model: type[BaseModel]) -> dict[str, object]:
    """The JSON Schema of what `validated` takes, for editors and for other programs."""
    written = model.model_json_schema(by_alias=True, schema_generator=_SchemaWriter)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **written}


def _note_all(document: YamlDocument, errors: list[ErrorDetails], schema: Schema) -> None:
    """Note every error, but not that a key is missing of which a misspelt one was meant."""
    meant = {
        (*each["loc"][:-1], near)
        for each in errors
        if each["type"] == "extra_forbidden" and (near := _nearest(each["loc"], schema))
    }
    for each in errors:
        is_meant = each["type"] == "missing" and each["loc"] in meant
        # Items that are not right do not count for pydantic, so it takes their list for too short.
        is_long_enough = each["type"] == "too_short" and len(each["input"]) >= each["ctx"]["min_length"]
        if not is_meant and not is_long_enough:
            _note(document, each, schema)


def _note(document: YamlDocument, error: ErrorDetails, schema: Schema) -> None:
    kind, path = error["type"], error["loc"]
    context = error.get("ctx", {})
    # A key may be called like that itself.
    if path and path[-1] == "[key]" and kind != "extra_forbidden":
        document.add_problem(path[:-1], _wrong(kind, error["input"], context), of_key=True)
        return
    if kind == "extra_forbidden":
        document.add_problem(path, _unknown(path, schema), of_key=True)
    elif kind == "missing":
        about = _description(_at(schema, path))
        document.add_problem(path, f"is missing{f': {about}' if about else ''}")
    elif kind == "contradiction":
        document.add_problem((*path, *cast(Path, context["at"])), str(context["message"]))
    else:
        document.add_problem(path, _wrong(kind, error["input"], context))


def _unknown(path: Path, schema: Schema) -> str:
    near = _nearest(path, schema)
    if near:
        return f"there is no such key; did you mean {near}?"
    return f"there is no such key; known here are {', '.join(_keys(_at(schema, path[:-1])))}"


def _nearest(path: Path, schema: Schema) -> str:
    """The key that was probably meant; nothing if none is like it."""
    return next(iter(difflib.get_close_matches(str(path[-1])[:100], _keys(_at(schema, path[:-1])), n=1)), "")


def _wrong(kind: str, found: object, context: Mapping[str, object]) -> str:
    """What is not right with a value, and what would be."""
    if kind == "value_error":
        return str(context["error"])
    if kind in _WANTED:
        return f"{named(found)} is not {_WANTED[kind]}"
    if kind == "literal_error":
        return f"{named(found)} is not allowed here: write {context['expected']}"
    if kind == "greater_than_equal":
        return f"{found} is too small: {context['ge']} or more"
    if kind == "less_than_equal":
        return f"{found} is too large: {context['le']} or less"
    if kind in ("string_too_long", "too_long"):
        return f"is too long: at most {context['max_length']} {_units(found)}"
    if kind in ("string_too_short", "too_short"):
        return f"is too short: at least {context['min_length']} {_units(found)}"
    raise AssertionError(f"no words for {kind}")


_WANTED = {
    "int_type": "a whole number",
    "string_type": "a text: put it in quotes",
    "bool_type": "true or false",
    "dict_type": "a mapping: write keys and values below it",
    "model_type": "a mapping: write keys and values below it",
    "list_type": "a list: write items with a hyphen before each",
    "tuple_type": "a list: write items with a hyphen before each",
}


def named(value: object) -> str:
    """A value for a message: texts quoted, what is large by its kind."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    return shown(value) if isinstance(value, str) else str(value)


def _units(value: object) -> str:
    return "characters" if isinstance(value, str) else "items"


def _at(schema: Schema, path: Path) -> Schema:
    """The part of a JSON Schema that speaks of this path; empty if there is none."""
    found = _resolved(schema, schema)
    for step in path:
        if isinstance(step, int):
            following: object = found.get("items", {})
        else:
            # A mapping of names has no properties: all of its values are alike.
            alike = next(iter(cast(Schema, found.get("patternProperties", {})).values()), {})
            following = cast(Schema, found.get("properties", {})).get(step, alike)
        found = {**_resolved(cast(Schema, following), schema)}
    return found


def _resolved(part: Schema, schema: Schema) -> Schema:
    """A part with what it refers to; what it says itself, such as a description, counts first."""
    reference = part.get("$ref")
    if not isinstance(reference, str):
        return part
    definitions = cast(Mapping[str, Schema], schema["$defs"])
    return {**definitions[reference.rpartition("/")[2]], **part}


def _keys(schema: Schema) -> list[str]:
    return list(cast(Schema, schema.get("properties", {})))


def _description(schema: Schema) -> str:
    return str(schema.get("description", "")).partition("\n")[0].rstrip(".")
