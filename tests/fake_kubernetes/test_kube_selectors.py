"""Label and field selectors: the grammar, and equality with a plain reading of what each requirement means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_kubernetes.selectors import FieldSelector, LabelSelector, SelectorError

keys = st.sampled_from(["app", "tier", "example.com/role", "in", "notin", "a.b_c-d"])
values = st.sampled_from(["", "x", "y", "1", "7", "in", "v1.2_3-4"])
labels = st.dictionaries(keys, values, max_size=4)
spaces = st.sampled_from(["", " ", "  "])


@st.composite
def requirements(draw):
    """A requirement's text, and a function that says whether labels meet it."""
    key, space = draw(keys), draw(spaces)
    form = draw(st.sampled_from(["=", "==", "!=", "in", "notin", "exists", "absent"]))
    if form == "exists":
        return f"{space}{key}{space}", lambda found: key in found
    if form == "absent":
        return f"!{space}{key}", lambda found: key not in found
    if form in ("in", "notin"):
        several = draw(st.lists(values, min_size=1, max_size=3))
        listed = f"{space},{space}".join(several)
        wanted = form == "in"
        return f"{key} {form} ({listed}){space}", lambda found: (key in found and found[key] in several) is wanted
    value = draw(values)
    equal = form != "!="
    return f"{key}{space}{form}{space}{value}", lambda found: (key in found and found[key] == value) is equal


@given(st.lists(requirements(), max_size=4), labels)
def test_a_selector_means_what_its_requirements_mean(parts, found):
    selector = LabelSelector.parse(",".join(text for text, _ in parts))
    assert len(selector.requirements) == len(parts)
    assert selector.matches(found) == all(meaning(found) for _, meaning in parts)


@given(st.text(alphabet="ab!=<>(), in1/.-", max_size=20))
def test_any_text_is_parsed_or_refused_with_its_place(text):
    refusal = "at character"
    try:
        LabelSelector.parse(text).matches({"a": "b"})
    except SelectorError as error:
        refusal = str(error)
    assert "at character" in refusal


@pytest.mark.parametrize(
    ("text", "found", "expected"),
    [
        ("", {}, True),
        ("  ", {"a": "b"}, True),
        ("app!=x", {}, True),
        ("app notin (x)", {}, True),
        ("app=", {"app": ""}, True),
        ("app=", {}, False),
        ("app in (x,)", {"app": ""}, True),
        ("size>3", {"size": "4"}, True),
        ("size>3", {"size": "3"}, False),
        ("size<3", {"size": "-4"}, True),
        ("size<3", {}, False),
        ("size<3", {"size": "small"}, False),
        ("a,!b,c=d", {"a": "", "c": "d"}, True),
    ],
)
def test_examples(text, found, expected):
    assert LabelSelector.parse(text).matches(found) is expected


@pytest.mark.parametrize(
    "text", ["a=b=c", "a in b", "a in (b", "=b", "a,,b", "a,", "!a=b", "a>b", "a in ()x", "é=1", "-a"]
)
def test_nonsense_is_refused(text):
    with pytest.raises(SelectorError, match="unable to parse selector"):
        LabelSelector.parse(text)


OBJECT = {"metadata": {"name": "a", "namespace": "n"}, "status": {"phase": "Running"}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("metadata.name=a", True),
        ("metadata.name==a,metadata.namespace=n", True),
        ("metadata.name!=a", False),
        ("metadata.namespace != other", True),
        ("status.phase=Running", True),
        ("spec.nodeName=", True),
    ],
)
def test_field_selectors(text, expected):
    selector = FieldSelector.parse(text, selectable=("status.phase", "spec.nodeName"))
    assert selector.matches(OBJECT) is expected


@pytest.mark.parametrize("text", ["spec.image=x", "metadata.name", "=x", "metadata.name>a"])
def test_other_fields_and_nonsense_are_refused(text):
    with pytest.raises(SelectorError, match=r"not supported|invalid field selector"):
        FieldSelector.parse(text)
