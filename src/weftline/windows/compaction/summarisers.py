"""Chooses what writes the summaries of a run: the configured language model, or the words of the original."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weftline.models.language_models.chat_model import ChatCaller
from weftline.windows.compaction.model_summariser import ModelSummariser, SummaryContext
from weftline.windows.compaction.summariser import ExtractiveSummariser, SummariserFailed

if TYPE_CHECKING:
    from weftline.models.language_models.catalog import Catalog
    from weftline.models.language_models.chat_model import ChatModel
    from weftline.safety.injection.model import InjectionDetector
    from weftline.windows.compaction.runs import FrozenCut
    from weftline.windows.compaction.summariser import Summariser, SummaryRequest, SummaryText

# As the setting ``model`` of an agent: summaries without a model.
NO_MODEL = "none"
NOT_CONFIGURED = "The server has no such model as the settings name; the words of the original were used."
NO_POLICY = "The tenant's policy cannot be read, so nothing leaves for the model; the words of the original were used."


class Summarisers(NamedTuple):
    """What summarisers need, for the life of the application. ``model`` is None if none is configured."""

    model: ChatModel | None
    catalog: Catalog
    detector: InjectionDetector

    def of(self, tenant: str, cut: FrozenCut) -> Summariser:
        """Return the summariser of a run. Facts alone need no model."""
        compaction = cut.compaction
        wanted = compaction.model
        if wanted == NO_MODEL or (self.model is None and wanted is None):
            return ExtractiveSummariser()
        if self.model is None or wanted not in {None, self.model.name}:
            return FailedSummariser(NOT_CONFIGURED)
        if cut.policy is None:
            return FailedSummariser(NO_POLICY)
        caller = ChatCaller(tenant, compaction.agent_id, compaction.session_id)
        context = SummaryContext(caller, cut.policy, self.detector, cut.view)
        return ModelSummariser(self.model, self.catalog.find(self.model.name), context)


class FailedSummariser(NamedTuple):
    """Has no text for any group, for one reason: another summariser takes its place, and the result says why."""

    reason: str

    async def summarise(self, request: SummaryRequest) -> SummaryText:
        del request
        raise SummariserFailed(self.reason)
