"""The contract of TokenFactorStore."""
# ruff: noqa: S101 - tests that others run

from __future__ import annotations

from weft.capabilities.language_models.factors import TokenFactor
from weft.testing.contracts.stores import ContractStores


class TokenFactorStoreContract:
    """A model has one factor in each tenant."""

    async def test_the_last_factor_of_a_model_is_stored(self, stores: ContractStores) -> None:
        await stores.token_factors.put(TokenFactor("a", 1.25, 1, 10))
        await stores.token_factors.put(TokenFactor("a", 0.5, 2, 20))
        await stores.token_factors.put(TokenFactor("b", 2.0, 1, 30))
        assert await stores.token_factors.find("a") == TokenFactor("a", 0.5, 2, 20)
        assert await stores.token_factors.find("c") is None
        assert await stores.token_factors.count() == 2  # noqa: PLR2004 - a and b

    async def test_tenants_have_their_own_factors(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await stores.token_factors.put(TokenFactor("a", 1.25, 1, 10))
        assert await elsewhere.token_factors.find("a") is None
        assert await elsewhere.token_factors.count() == 0
