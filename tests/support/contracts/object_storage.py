"""The contract of ObjectIndex."""

from __future__ import annotations

from support.contracts.stores import ContractStores
from weftline.history.object_storage import (
    GRACE_MICROS,
    PENDING_MICROS,
    ObjectState,
    StoredObject,
    UploadDecision,
    UploadStart,
)

PATH = "tenant/agent/" + "0" * 64
OTHER = "tenant/agent/" + "1" * 64


async def keep(stores: ContractStores, path: str = PATH, now: int = 1) -> None:
    """Upload an object and keep it."""
    begun = await stores.objects.begin(path, 5, now)
    assert await stores.objects.uploaded(path, begun.at, "v1")
    assert await stores.objects.keep(path)


class ObjectIndexContract:
    """An object is in the index before it is in the store, and until after it is deleted there."""

    async def test_an_object_is_kept_once_it_is_uploaded(self, stores: ContractStores) -> None:
        assert await stores.objects.find(PATH) is None
        assert await stores.objects.begin(PATH, 5, 1) == UploadStart(UploadDecision.TO_UPLOAD, 1)
        assert not await stores.objects.keep(PATH)
        assert await stores.objects.uploaded(PATH, 1, "v1")
        assert await stores.objects.find(PATH) == StoredObject(PATH, ObjectState.PENDING, 5, True, "v1", 1)  # noqa: FBT003
        assert await stores.objects.keep(PATH)
        assert await stores.objects.keep(PATH)
        assert await stores.objects.find(PATH) == StoredObject(PATH, ObjectState.KEPT, 5, True, "v1", 1)  # noqa: FBT003
        assert await stores.objects.begin(PATH, 5, 9) == UploadStart(UploadDecision.THERE, 1, "v1")

    async def test_a_store_without_versions_is_fine(self, stores: ContractStores) -> None:
        await stores.objects.begin(PATH, 5, 1)
        assert await stores.objects.uploaded(PATH, 1, None)
        assert await stores.objects.find(PATH) == StoredObject(PATH, ObjectState.PENDING, 5, True, None, 1)  # noqa: FBT003
        assert await stores.objects.begin(PATH, 5, 2) == UploadStart(UploadDecision.THERE, 1)

    async def test_concurrent_uploads_of_one_object(self, stores: ContractStores) -> None:
        assert await stores.objects.begin(PATH, 5, 1) == await stores.objects.begin(PATH, 5, 2)
        assert await stores.objects.uploaded(PATH, 1, "v1")
        assert await stores.objects.uploaded(PATH, 1, "v2")
        found = await stores.objects.find(PATH)
        assert found is not None
        assert found.version == "v2"

    async def test_an_object_marked_for_deletion_can_be_uploaded_again(self, stores: ContractStores) -> None:
        await keep(stores)
        await stores.objects.doom(PATH)
        assert not await stores.objects.keep(PATH)
        assert await stores.objects.begin(PATH, 5, 7) == UploadStart(UploadDecision.TO_UPLOAD, 7)
        assert not await stores.objects.keep(PATH)
        assert await stores.objects.uploaded(PATH, 7, None)
        assert await stores.objects.keep(PATH)

    async def test_a_superseded_upload_is_ignored(self, stores: ContractStores) -> None:
        await keep(stores)
        await stores.objects.doom(PATH)
        await stores.objects.begin(PATH, 5, 8)
        assert not await stores.objects.uploaded(PATH, 1, "late")
        assert not await stores.objects.uploaded(OTHER, 1, "never begun")
        assert not await stores.objects.keep(PATH)

    async def test_a_late_uploader_restarts_the_upload(self, stores: ContractStores) -> None:
        await stores.objects.begin(PATH, 5, 1)
        now = 1 + PENDING_MICROS // 2
        assert await stores.objects.begin(PATH, 5, now) == UploadStart(UploadDecision.TO_UPLOAD, now)
        assert await stores.objects.claim(1 + PENDING_MICROS, 10) == []

    async def test_only_what_is_kept_can_be_doomed(self, stores: ContractStores) -> None:
        await stores.objects.doom(PATH)
        assert await stores.objects.find(PATH) is None
        await stores.objects.begin(PATH, 5, 1)
        await stores.objects.doom(PATH)
        assert await stores.objects.uploaded(PATH, 1, None)

    async def test_what_is_kept_is_never_claimed(self, stores: ContractStores) -> None:
        await keep(stores)
        assert await stores.objects.claim(2**60, 10) == []

    async def test_abandoned_uploads_are_claimed_after_an_hour(self, stores: ContractStores) -> None:
        await stores.objects.begin(PATH, 5, 1)
        assert await stores.objects.claim(PENDING_MICROS, 10) == []
        assert await stores.objects.claim(PENDING_MICROS + 1, 10) == [PATH]

    async def test_doomed_objects_are_claimed_after_a_grace_period_and_cannot_be_revived_then(
        self, stores: ContractStores
    ) -> None:
        await keep(stores)
        await stores.objects.doom(PATH)
        assert await stores.objects.claim(10, 10) == []
        assert await stores.objects.claim(9 + GRACE_MICROS, 10) == []
        assert await stores.objects.claim(10 + GRACE_MICROS, 10) == [PATH]
        assert (await stores.objects.begin(PATH, 5, 20)).decision is UploadDecision.LEAVING
        assert not await stores.objects.keep(PATH)

    async def test_doomed_objects_are_noticed_in_batches(self, stores: ContractStores) -> None:
        for path in (PATH, OTHER):
            await keep(stores, path)
            await stores.objects.doom(path)
        assert await stores.objects.claim(GRACE_MICROS, 1) == []
        assert await stores.objects.claim(2 * GRACE_MICROS, 5) in ([PATH], [OTHER])
        assert len(await stores.objects.claim(3 * GRACE_MICROS, 5)) == 2

    async def test_a_claim_expires_and_only_the_last_one_clears(self, stores: ContractStores) -> None:
        await keep(stores)
        await stores.objects.doom(PATH)
        assert await stores.objects.claim(1, 10) == []
        first, second = 1 + GRACE_MICROS, 1 + 2 * GRACE_MICROS
        assert await stores.objects.claim(first, 10) == [PATH]
        assert await stores.objects.claim(second - 1, 10) == []
        assert await stores.objects.claim(second, 10) == [PATH]
        await stores.objects.cleared(PATH, first)
        assert await stores.objects.find(PATH) is not None
        await stores.objects.cleared(PATH, second)
        assert await stores.objects.find(PATH) is None
        assert await stores.objects.begin(PATH, 5, 9) == UploadStart(UploadDecision.TO_UPLOAD, 9)

    async def test_claims_are_limited_and_oldest_first(self, stores: ContractStores) -> None:
        await stores.objects.begin(PATH, 5, 2)
        await stores.objects.begin(OTHER, 5, 1)
        assert await stores.objects.claim(2 * PENDING_MICROS, 1) == [OTHER]
        assert await stores.objects.claim(2 * PENDING_MICROS, 5) == [PATH]

    async def test_tenants_have_their_own_objects(self, stores: ContractStores, elsewhere: ContractStores) -> None:
        await keep(stores)
        assert await elsewhere.objects.find(PATH) is None
        assert not await elsewhere.objects.keep(PATH)
        await elsewhere.objects.doom(PATH)
        assert await elsewhere.objects.claim(2**60, 10) == []
        found = await stores.objects.find(PATH)
        assert found is not None
        assert found.state is ObjectState.KEPT
