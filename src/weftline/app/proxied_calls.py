"""Tool calls in answers of models that pass through the proxy: the guardrails of the caller decide about each."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from weftline.access.model import parse_key
from weftline.kernel.errors import InternalError, RateLimited, Unavailable, WeftlineError
from weftline.kernel.guards import collected_warnings
from weftline.models.language_models.answer_calls import CallChecks, Refusal, Replacement
from weftline.state.layers.rules import RuleLoader
from weftline.storage.sql.database import AccessChanged, Scope
from weftline.storage.sql.unit_of_work import CallerTransactions

if TYPE_CHECKING:
    from weftline.app.app import App
    from weftline.app.dispatch import CallContext
    from weftline.app.proxied_edits import GivenRequest
    from weftline.app.proxied_results import ProxiedResults
    from weftline.kernel.identity import Actor
    from weftline.models.language_models.answer_calls import Verdict
    from weftline.state.layers.rules import CallerRules
    from weftline.storage.sql.unit_of_work import Injector

# For one call, besides the time that a human gets to approve it.
_CHECK_SECONDS = 5.0
_log = logging.getLogger("weftline.proxy")


class CallsUnchecked(Unavailable):
    """The tool calls in an answer cannot be checked, and the tenant or the server lets nothing through unchecked."""

    code = "CALLS_UNCHECKED"
    hint = "Try again. The tenant's policy (proxy_fails_closed) or WEFTLINE_PROXY_FAIL_CLOSED refuses such answers."


def is_own_fault(error: WeftlineError) -> bool:
    """Tell whether an error is Weftline's and says nothing about the caller: it must not end a call."""
    return isinstance(error, Unavailable | InternalError) and not isinstance(error, RateLimited)


class ProxiedCalls:
    """Finds the guardrails that hold for the tools of callers, and whether their tenants let pass what is unchecked."""

    def __init__(self, app: App, injector: Injector, results: ProxiedResults) -> None:
        self._app = app
        self._injector = injector
        self._results = results
        self._loaders = CallerTransactions(app.database, injector, RuleLoader)
        # Tenants that fail closed, as far as this process has read their policies.
        self._closed: set[str] = set()

    def fails_closed(self, credential: object) -> bool:
        """Tell whether calls with a credential are refused while it cannot be verified."""
        if self._app.settings.proxy_fails_closed:
            return True
        key = parse_key(credential) if isinstance(credential, str) and self._closed else None
        return key is not None and key.tenant in self._closed

    async def guard(self, context: CallContext) -> CallGuard | None:
        """Return what checks tool calls and results of a caller; None if nothing has to be checked.

        Calls are checked if a rule may be about tools that are not Weftline's, results if the tenant fails closed.
        """
        actor = await self._app.identify(context)
        rules = await self._rules(actor)
        fails_closed = self._app.settings.proxy_fails_closed or rules.policy.proxy_fails_closed
        if rules.policy.proxy_fails_closed:
            self._closed.add(actor.tenant)
        else:
            self._closed.discard(actor.tenant)
        checks_calls = actor.step is not None or rules.guardrails.concerns_others(self._app.known_actions)
        if not checks_calls and not fails_closed:
            return None
        results = self._results if fails_closed else None
        return CallGuard(self._app, context, actor, rules, results, checks_calls=checks_calls)

    async def _rules(self, actor: Actor) -> CallerRules:
        known = self._app.tenant_rules.cached(actor)
        if known is not None:
            return known
        try:
            return await self._loaders.read(actor, lambda loader: loader.load())
        except AccessChanged:
            # They are loaded for good when the caller is identified again.
            scope = Scope(actor.tenant, principal=actor.path)
            return await self._app.database.read(scope, lambda tx: self._injector.build(RuleLoader, actor, tx).read())


class CallGuard:
    """Decides about the tool calls in one answer, as ``guardrail.check`` does, and about results in its request."""

    def __init__(
        self,
        app: App,
        context: CallContext,
        actor: Actor,
        rules: CallerRules,
        results: ProxiedResults | None,
        *,
        checks_calls: bool,
    ) -> None:
        self.checks_calls = checks_calls
        self.fails_closed = results is not None
        self.checks = CallChecks(self._concerns, self._verdict)
        self._app = app
        self._context = context
        self._actor = actor
        self._rules = rules.guardrails
        self._policy = rules.policy
        self._results = results

    async def withhold(self, request: GivenRequest | None) -> bytes | None:
        """Return the body to forward, without results that the gate holds; None if they may be forwarded."""
        return None if self._results is None else await self._results.withhold(self._actor, self._policy, request)

    def _concerns(self, tool: str) -> bool:
        if self._actor.step is not None:
            return True
        found = self._rules.known(tool) or self._rules.candidates(tool, self._app.known_actions.names_for(tool))
        return bool(found.before)

    async def _verdict(self, tool: str, arguments: dict[str, Any]) -> Verdict:
        app = self._app
        try:
            with collected_warnings():
                async with asyncio.timeout(_CHECK_SECONDS + app.settings.approval_wait_seconds):
                    checked = await app.call(
                        app.registry["guardrail.check"], {"tool": tool, "arguments": arguments}, self._context
                    )
        except WeftlineError as error:
            if not is_own_fault(error):
                return Refusal(f"Weftline refused this call of {tool}. {error.message} {error.hint or ''}".strip())
            _log.warning("a tool call in a proxied answer cannot be checked: %s", error.code)
        except TimeoutError:
            _log.warning("a tool call in a proxied answer cannot be checked in time")
        except Exception:  # noqa: BLE001 - an answer is passed on whatever happens here
            _log.exception("cannot check a tool call in a proxied answer")
        else:
            masked = getattr(checked, "arguments", None)
            return Replacement(masked) if isinstance(masked, dict) and masked != arguments else None
        if self.fails_closed:
            raise CallsUnchecked("A tool call in the answer cannot be checked now.")
        return None
