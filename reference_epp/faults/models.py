"""Faults of the 404 for models that no InferenceModel names (section Matching An InferenceModel, 0.3.0 and 0.4.0)."""

from __future__ import annotations

from reference_epp.conversation import BAD_REQUEST, Conversation
from reference_epp.deviations import WITH_MODELS, fault
from reference_epp.picker import Decision, Refused, Request


@fault(
    "unknown-model-accepted",
    breaks="EPP-MODEL-01",
    why="A request for a model that no InferenceModel names gets an endpoint.",
    versions=WITH_MODELS,
)
class UnknownModelAccepted(Conversation):
    def unknown_model(self, model: str) -> Decision:
        return self.epp.picker.pick(Request(model=model, subset=self.subset))


@fault(
    "unknown-model-400",
    breaks="EPP-MODEL-01",
    why="A request for a model that no InferenceModel names gets 400 instead of 404.",
    versions=WITH_MODELS,
)
class UnknownModel400(Conversation):
    def unknown_model(self, model: str) -> Decision:
        return Refused(BAD_REQUEST, f"unknown model {model!r}")


@fault(
    "models-of-small-bodies",
    breaks="EPP-MODEL-01",
    why="The model is looked for in bodies of up to 64 KiB; with a larger one any model gets an endpoint.",
    versions=WITH_MODELS,
    modes=("full-duplex", "buffered"),
)
class ModelsOfSmallBodies(Conversation):
    def read_model(self, body: bytes) -> str | None:
        return super().read_model(body) if len(body) <= 65_536 else None


@fault(
    "models-of-plain-paths",
    breaks="EPP-MODEL-01",
    why="The model is looked for where the path is one of the API's, to the letter: not where it has a query.",
    versions=WITH_MODELS,
    modes=("full-duplex", "buffered"),
)
class ModelsOfPlainPaths(Conversation):
    def read_model(self, body: bytes) -> str | None:
        return None if b"?" in self.headers.get(":path", b"") else super().read_model(body)


@fault(
    "bodyless-needs-a-model",
    breaks="EPP-MODEL-02",
    why="A request without a body gets 404, because no InferenceModel has the empty name.",
    versions=WITH_MODELS,
    modes=("full-duplex", "buffered"),  # else the body comes too late for its model to count
    effect="warn",
)
class BodylessNeedsAModel(Conversation):
    def choose(self, body: bytes) -> Decision:
        decision = super().choose(body)
        return decision if self.body or isinstance(decision, Refused) else self.unknown_model("")


# -- names that are compared carelessly


@fault(
    "models-in-any-case",
    breaks="EPP-MODEL-01",
    why="Names of models are compared without their case.",
    versions=WITH_MODELS,
    modes=("full-duplex", "buffered"),
)
class ModelsInAnyCase(Conversation):
    def knows(self, model: str) -> bool:
        return model.lower() in {one.lower() for one in self.epp.models}


@fault(
    "models-by-their-beginning",
    breaks="EPP-MODEL-01",
    why="The beginning of a known name passes for the name.",
    versions=WITH_MODELS,
    modes=("full-duplex", "buffered"),
)
class ModelsByTheirBeginning(Conversation):
    def knows(self, model: str) -> bool:
        return any(one.startswith(model) for one in self.epp.models)


@fault(
    "models-with-any-end",
    breaks="EPP-MODEL-01",
    why="A name that begins with a known one passes for it.",
    versions=WITH_MODELS,
    modes=("full-duplex", "buffered"),
)
class ModelsWithAnyEnd(Conversation):
    def knows(self, model: str) -> bool:
        return model.startswith(tuple(self.epp.models))


@fault(
    "models-without-their-organization",
    breaks="EPP-MODEL-01",
    why="Of the name in a request only what is behind the last slash is compared.",
    versions=WITH_MODELS,
    modes=("full-duplex", "buffered"),
)
class ModelsWithoutTheirOrganization(Conversation):
    def knows(self, model: str) -> bool:
        return model.rpartition("/")[2] in {one.rpartition("/")[2] for one in self.epp.models}


@fault(
    "models-before-endpoints",
    breaks="EPP-MODEL-02",
    why="The model is looked up first: a GET gets 404, also where no endpoint is eligible and 503 is due.",
    versions=WITH_MODELS,
    modes=("full-duplex", "buffered"),
    effect="warn",
)
class ModelsBeforeEndpoints(Conversation):
    def choose(self, body: bytes) -> Decision:
        bodyless = not body and self.headers.get(":method") == b"GET"
        return self.unknown_model("") if bodyless else super().choose(body)
