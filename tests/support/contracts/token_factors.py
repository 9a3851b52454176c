"""The contract of TokenFactorStore."""

from __future__ import annotations

from support.contracts.stores import ContractStores
from weftline.models.sql import TokenFactor


class TokenFactorStoreContract:
    """An agent has one factor for each model."""

    async def test_the_last_factor_of_a_model_is_stored(self, stores: ContractStores) -> None:
        await stores.token_factors.put(TokenFactor("me", "a", 1.25, 1, 10))
        await stores.token_factors.put(TokenFactor("me", "a", 0.5, 2, 20))
        await stores.token_factors.put(TokenFactor("me", "b", 2.0, 1, 30))
        assert await stores.token_factors.find("me", "a") == TokenFactor("me", "a", 0.5, 2, 20)
        assert await stores.token_factors.find("me", "c") is None
        assert await stores.token_factors.count("me") == 2

    async def test_agents_have_their_own_factors(self, stores: ContractStores) -> None:
        await stores.token_factors.put(TokenFactor("me", "a", 1.25, 1, 10))
        assert await stores.token_factors.find("you", "a") is None
        assert await stores.token_factors.count("you") == 0

    async def test_tenants_have_their_own_factors(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await stores.token_factors.put(TokenFactor("me", "a", 1.25, 1, 10))
        assert await elsewhere.token_factors.find("me", "a") is None
        assert await elsewhere.token_factors.count("me") == 0
