"""The contract of ModelMigrationStore."""

from __future__ import annotations

import pytest
from msgspec import structs

from support.contracts.stores import ContractStores
from weftline.indexing.model_migration import Canary, ModelComparison, ModelMigration, QueryComparison, QuerySample

MIGRATION = ModelMigration(
    from_model="old", to_model="new", state="embedding", comparable=True, started_by="human:admin", started_at=10
)


@pytest.mark.req("CE-F51")
class ModelMigrationStoreContract:
    """The latest migration of a tenant is stored."""

    async def test_a_tenant_that_never_moved_has_none(self, stores: ContractStores) -> None:
        assert await stores.model_migrations.find() is None
        assert await stores.model_migrations.find_locked() is None

    async def test_the_last_state_of_a_migration_wins(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        ended = structs.replace(
            MIGRATION,
            state="done",
            comparable=False,
            switched_at=20,
            finished_at=30,
            collection="sessions",
            number=7,
            embedded=9,
            comparison=ModelComparison(probes=4, recall_before=0.75, recall_after=1.0, agreement=0.5),
            problem="The service is away.",
            canary=Canary((0.1, 0.5), 0.3, 24)
            .next_step(15)
            .with_current(QueryComparison(0.1, 15).with_sample(QuerySample(0.5, None, 10, 8, 0.75, 0.5, 12.0, 8.0))),
        )
        for migration in (MIGRATION, ended, structs.replace(MIGRATION, to_model="newer", started_at=40)):
            await stores.model_migrations.save(migration)
            assert await stores.model_migrations.find() == migration
            assert await stores.model_migrations.find_locked() == migration
        assert await elsewhere.model_migrations.find() is None
