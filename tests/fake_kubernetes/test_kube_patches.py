"""Patches: the rules of the RFCs, and that the object patched is left alone."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_kubernetes.errors import ApiError
from fake_kubernetes.patches import apply_patch

JSON, MERGE = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"

names = st.sampled_from(["a", "b", "c/d", "~"])
documents = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(names, documents, max_size=3)


def _without_nulls(value):
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return value


@given(objects, objects)
def test_a_merge_patch_is_idempotent_and_leaves_its_target_alone(target, patch):
    before = copy.deepcopy(target)
    once = apply_patch(MERGE, target, patch)
    assert target == before
    assert apply_patch(MERGE, once, patch) == once
    assert apply_patch(MERGE, {}, patch) == _without_nulls(patch)


@given(objects, st.lists(st.fixed_dictionaries(
    {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "turn"]),
     "path": st.sampled_from(["/a", "/b/0", "/b/-", "/c~1d/a", "/~0", "", "a", "/b/01"]),
     "from": st.sampled_from(["/a", "/b", "/b/0", "/c~1d"]),
     "value": documents}), max_size=3))  # fmt: skip
def test_a_json_patch_is_applied_or_refused_and_leaves_its_target_alone(target, patch):
    before = copy.deepcopy(target)
    code = 200
    try:
        apply_patch(JSON, target, patch)
    except ApiError as error:
        code = error.code
    assert code in (200, 400, 422)
    assert target == before


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
        ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": [1, 2]}, [{"op": "remove", "path": "/a/0"}], {"a": [2]}),
        ({"a": {"x/y": 1}}, [{"op": "replace", "path": "/a/x~1y", "value": 2}], {"a": {"x/y": 2}}),
        ({"a": {"b": 1}}, [{"op": "move", "from": "/a/b", "path": "/c"}], {"a": {}, "c": 1}),
        ({"a": {"b": 1}}, [{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"b": 1}, "c": {"b": 1}}),
        ({"a": {"b": 1}}, [{"op": "move", "from": "/a", "path": "/a"}], {"a": {"b": 1}}),
        ({"a": 1}, [{"op": "test", "path": "/a", "value": 1}, {"op": "remove", "path": "/a"}], {}),
    ],
)
def test_json_patch(target, patch, expected):
    assert apply_patch(JSON, target, patch) == expected


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": True},
        {"op": "remove", "path": "/b"},
        {"op": "replace", "path": "/b", "value": 1},
        {"op": "add", "path": "/l/9", "value": 1},
        {"op": "add", "path": "/a/b", "value": 1},
        {"op": "move", "from": "/l", "path": "/l/0"},
        {"op": "fold", "path": "/a"},
        {"path": "/a"},
        {"op": "add", "path": "a", "value": 1},
    ],
)
def test_a_json_patch_that_does_not_fit_is_unprocessable(operation):
    with pytest.raises(ApiError) as refused:
        apply_patch(JSON, {"a": 1, "l": []}, [operation])
    assert refused.value.code == 422


def test_a_strategic_patch_is_a_merge_patch_without_directives():
    patch = {
        "metadata": {"labels": {"a": None, "b": "2"}},
        "$setElementOrder/x": [],
        "l": [{"$patch": "merge", "n": 1}],
    }
    assert apply_patch(STRATEGIC, {"metadata": {"labels": {"a": "1"}}, "l": [5]}, patch) == {
        "metadata": {"labels": {"b": "2"}},
        "l": [{"n": 1}],
    }
    assert apply_patch(APPLY, {"a": 1}, {"b": 2}) == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("content_type", "patch", "code"),
    [("text/plain", {}, 415), (JSON, {}, 400), (MERGE, [], 400), (JSON, [{"op": "remove", "path": ""}], 400)],
)
def test_what_is_no_patch_is_refused(content_type, patch, code):
    with pytest.raises(ApiError) as refused:
        apply_patch(content_type, {"a": 1}, patch)
    assert refused.value.code == code
