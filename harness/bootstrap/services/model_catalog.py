"""Open the models of a home: for turns, and for what is learned in the background.

The usage of every model is recorded for a principal, with its purpose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.messages.marking import NO_MARKS, TextMarks
from harness.models.model_name import DEMO, check_model_name
from harness.runtime.settings import Settings
from workspaces.accounts.principal import Principal
from workspaces.coordination.lazily import is_built, lazily
from workspaces.errors import Refused
from workspaces.home.locations import are_shared
from workspaces.ids import ConversationId

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.agents.record import AgentRecord
    from harness.billing.ledger import Ledger, UsageOwner, UsagePurpose
    from harness.billing.limits import AccountLimiter
    from harness.models.anthropic.clients import AnthropicClients
    from harness.models.port import Model


class ModelCatalog:
    """The models that a home can ask. Threads may share it."""

    def __init__(
        self,
        settings: Settings,
        ledger: Callable[[], Ledger],
        limiter: Callable[[], AccountLimiter],
        *,
        fixed: Model | None,
        allows_demo: bool,
    ) -> None:
        """`fixed` answers for every agent, whatever model it names."""
        self._settings = settings
        self._ledger = ledger
        self._limiter = limiter
        self._fixed = fixed
        self._allows_demo = allows_demo

    @lazily
    def _clients(self) -> AnthropicClients | None:
        """The clients of the provider. None without a key, so that the demo model answers."""
        key = self._settings.anthropic_api_key
        if key is None:
            return None
        from harness.models.anthropic.clients import AnthropicClients

        return AnthropicClients(key, self._settings.anthropic_base_url)

    def close(self) -> None:
        if is_built(self, "_clients") and self._clients is not None:
            self._clients.close()

    def name_of(self, agent: AgentRecord) -> str:
        """Return the name of the model that answers for an agent, without opening it.

        Raises: as `open`.
        """
        if self._fixed is not None:
            return self._fixed.name
        name = agent.config.model or self._settings.model
        self.check_name(name, "model")
        if not self._is_demo(name):
            return name
        self._check_demo(name)
        return DEMO

    def own(
        self,
        model: Model,
        principal: Principal,
        agent: AgentRecord,
        conversation_id: ConversationId,
    ) -> Model:
        """Return a metered model that the caller supplies."""
        from harness.billing.ledger import UsageOwner

        usage_owner = UsageOwner(
            principal.account_id, agent.id, principal.user_id, conversation_id, "turn"
        )
        return self._metered(model, usage_owner)

    def open(
        self,
        principal: Principal,
        agent: AgentRecord,
        conversation_id: ConversationId | None = None,
        purpose: UsagePurpose = "turn",
        *,
        marks: TextMarks = NO_MARKS,
    ) -> Model:
        """Return the agent's model. Its usage is recorded for the principal. Replies get `marks`."""
        from harness.billing.ledger import UsageOwner

        usage_owner = UsageOwner(
            principal.account_id, agent.id, principal.user_id, conversation_id, purpose
        )
        name = agent.config.model or self._settings.model
        return self._marked(self._named(name, "model", usage_owner), marks)

    def open_small(
        self,
        principal: Principal,
        agent: AgentRecord,
        conversation_id: ConversationId,
        purpose: UsagePurpose,
        *,
        marks: TextMarks = NO_MARKS,
    ) -> Model:
        """Return the model that reads conversations in the background.

        For an agent of the demo model it is the demo model, so that trying things out costs nothing.
        """
        from harness.billing.ledger import UsageOwner

        usage_owner = UsageOwner(
            principal.account_id, agent.id, principal.user_id, conversation_id, purpose
        )
        is_demo = (agent.config.model or self._settings.model) == DEMO
        name = DEMO if is_demo else self._settings.small_model
        return self._marked(self._named(name, "small_model", usage_owner), marks)

    def demo_notice(self, model: str | None = None) -> str | None:
        """Return a sentence for people if the demo model answers for this name; by default, the home's."""
        if self._fixed is not None:
            return None
        if (model or self._settings.model) == DEMO:
            return "the offline demo model answers, as the settings say"
        if self._settings.anthropic_api_key is None:
            return "the offline demo model answers: ANTHROPIC_API_KEY is not set"
        return None

    def check_start(self) -> None:
        """Check that the home's own model can answer.

        Raises: Refused for an unknown name, and for the demo model where it may not answer.
        """
        if self._fixed is None:
            self.check_name(self._settings.model, "model")
            self.check_name(self._settings.small_model, "small_model")
            if self.demo_notice() is not None:
                self._check_demo(self._settings.model)

    def check_name(self, name: str, field: str) -> None:
        """Raise Refused for the name of a model that nothing can ask."""
        if self._fixed is None:
            check_model_name(name, field=field, base_url=self._settings.anthropic_base_url)

    def _named(self, name: str, field: str, usage_owner: UsageOwner) -> Model:
        if self._fixed is not None:
            return self._metered(self._fixed, usage_owner)
        self.check_name(name, field)
        if self._clients is None or self._is_demo(name):
            self._check_demo(name)
            from harness.models.demo import DemoModel

            return self._metered(DemoModel(), usage_owner)
        from harness.models.anthropic.model import AnthropicModel
        from harness.models.retrying import RetryingModel

        return RetryingModel(self._metered(AnthropicModel(name, self._clients), usage_owner))

    def _is_demo(self, name: str) -> bool:
        """Return True if the demo model answers for a name: for its own, and for all without a key."""
        return name == DEMO or self._settings.anthropic_api_key is None

    def _check_demo(self, name: str) -> None:
        """Raise Refused where the demo model may not answer."""
        if self._allows_demo:
            return
        if name == DEMO:
            remedy = "set a model of the provider, or start without --no-demo"
            raise Refused(
                "model", name, "is the demo model, which --no-demo excludes", remedy=remedy
            )
        remedy = "set ANTHROPIC_API_KEY, or start without --no-demo"
        rule = "needs an API key, and --no-demo excludes the demo model"
        raise Refused("model", name, rule, remedy=remedy)

    def _marked(self, model: Model, marks: TextMarks) -> Model:
        from harness.models.marking import MarkingModel

        return MarkingModel(model, marks)

    def _metered(self, model: Model, usage_owner: UsageOwner) -> Model:
        """Return the model with its usage recorded.

        A turn and a pass write the usage of a reply in the batch that stores the reply. With a file, every
        writer waits for the one writer in any case. Where machines share the records, they all write to the
        same sums, and no reply should wait for that.
        """
        is_stored = usage_owner.purpose != "compaction" and not are_shared(self._settings.records)
        from harness.models.metered import MeteredModel

        return MeteredModel(
            model, usage_owner, self._ledger(), self._limiter(), caller_records_replies=is_stored
        )
