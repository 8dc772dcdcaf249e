"""Faults of the 404 for models that no InferenceModel names (section Matching An InferenceModel, 0.3.0 and 0.4.0)."""
# fmt: off

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from reference_epp.changes import changed, method
from reference_epp.conversation import BAD_REQUEST, Conversation
from reference_epp.deviations import WHOLE_BODY, WITH_MODELS, fault
from reference_epp.picker import Refused, Request

model_fault = partial(fault, versions=WITH_MODELS, modes=WHOLE_BODY)

fault("unknown-model-accepted", "EPP-MODEL-01",
      "A request for a model that no InferenceModel names gets an endpoint.",
      changed(Conversation, unknown_model=lambda _, c, model: c.epp.picker.pick(Request(model=model, subset=c.subset))),
      versions=WITH_MODELS)
fault("unknown-model-400", "EPP-MODEL-01",
      "A request for a model that no InferenceModel names gets 400 instead of 404.",
      changed(Conversation, unknown_model=lambda *_: Refused(BAD_REQUEST, "unknown model")), versions=WITH_MODELS)
model_fault("models-of-small-bodies", "EPP-MODEL-01",
            "The model is looked for in bodies of up to 64 KiB; with a larger one any model gets an endpoint.",
            changed(Conversation, read_model=lambda up, _, body: up(body) if len(body) <= 65_536 else None))
model_fault("models-of-plain-paths", "EPP-MODEL-01",
            "The model is not looked for where the path has a query.",
            changed(Conversation, read_model=lambda *_: None), when=lambda c: b"?" in c.headers.get(":path", b""))
model_fault("bodyless-needs-a-model", "EPP-MODEL-02",
            "A request without a body gets 404, because no InferenceModel has the empty name.",
            changed(Conversation, choose=lambda up, c, body: decision
                    if isinstance(decision := up(body), Refused) else c.unknown_model("")),
            when=lambda c: not c.body, effect="warn")
model_fault("models-before-endpoints", "EPP-MODEL-02",
            "The model is looked up first: a GET gets 404, also where no endpoint is eligible and 503 is due.",
            changed(Conversation, choose=lambda up, c, body: up(body) if body else c.unknown_model("")),
            when=lambda c: method(c) == b"GET", effect="warn")

# -- names that are compared carelessly


def _known(same: Callable[[str, str], bool]) -> type[Conversation]:
    """Knows a model if `same(model, name)` holds for one of the names."""
    return changed(Conversation, knows=lambda _, c, model: any(same(model, name) for name in c.epp.models))


model_fault("models-in-any-case", "EPP-MODEL-01",
            "Names of models are compared without their case.",
            _known(lambda model, name: model.lower() == name.lower()))
model_fault("models-by-their-beginning", "EPP-MODEL-01",
            "The beginning of a known name passes for the name.",
            _known(lambda model, name: name.startswith(model)))
model_fault("models-with-any-end", "EPP-MODEL-01",
            "A name that begins with a known one passes for it.",
            _known(lambda model, name: model.startswith(name)))
model_fault("models-without-their-organization", "EPP-MODEL-01",
            "Only the part of the request's name after the last slash is compared.",
            _known(lambda model, name: model.rpartition("/")[2] == name.rpartition("/")[2]))
