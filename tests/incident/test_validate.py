import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightrec.incident.validate import compile_schema

SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": "^[a-z]+$"},
        "n": {"type": "integer", "minimum": 0, "maximum": 9},
        "tree": {"$ref": "#/$defs/tree"},
        "rest": {"type": "object", "additionalProperties": {"enum": [1, "a", None, False]}},
        "pair": {"type": "array", "items": {"type": ["string", "null"]}, "maxItems": 2},
    },
    "required": ["id"],
    "additionalProperties": False,
    "$defs": {
        "tree": {
            "anyOf": [
                {"const": True},
                {"type": "array", "items": {"$ref": "#/$defs/tree"}},
            ]
        }
    },
}

check = compile_schema(SCHEMA)

atoms = (
    st.none()
    | st.booleans()
    | st.integers(-3, 12)
    | st.sampled_from(["", "a", "abc", "A", "1"])
    | st.sampled_from([0.5, -1.5])
)
values = st.recursive(
    atoms,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*SCHEMA["properties"], "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(value=values)
def test_it_agrees_with_jsonschema(value):
    assert (check(value) is None) == jsonschema.Draft202012Validator(SCHEMA).is_valid(value)


@given(value=st.fixed_dictionaries({"id": st.just("a")}, optional=dict.fromkeys("abc", values)))
def test_unknown_entries_are_named(value):
    problem = check(value)
    assert (problem is None) == (value == {"id": "a"})


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([], ": expected object, got []"),
        ({}, ": 'id' is missing"),
        ({"id": "A"}, ".id: 'A' does not match ^[a-z]+$"),
        ({"id": "a\n"}, ".id: 'a\\n' does not match ^[a-z]+$"),
        ({"id": "a", "n": True}, ".n: expected integer, got True"),
        ({"id": "a", "n": 1.0}, ".n: expected integer, got 1.0"),
        ({"id": "a", "n": 10}, ".n: 10 is not between 0 and 9"),
        ({"id": "a", "rest": {"b": 2}}, ".rest.b: expected one of [1, 'a', None, False], got 2"),
        ({"id": "a", "rest": {"b": 0}}, ".rest.b: expected one of [1, 'a', None, False], got 0"),
        ({"id": "a", "pair": ["", 1]}, ".pair[1]: expected string or null, got 1"),
        ({"id": "a", "pair": ["", "", ""]}, ".pair: 3 items, at most 2 are allowed"),
        ({"id": "a", "tree": [[True], [0]]}, ".tree[1][0]: expected array, got 0"),
        ({"id": "a", "y": 1}, ": 'y' is not known"),
        ({"id": "a", "y" * 99: 1}, f": {('y' * 99)!r:.57}... is not known"),
    ],
)
def test_it_says_where_and_what(value, problem):
    assert check(value) == problem


def test_a_keyword_it_does_not_know_is_refused():
    with pytest.raises(ValueError, match="multipleOf"):
        compile_schema({"type": "object", "properties": {"a": {"multipleOf": 2}}})
