"""Raw in any S3-compatible store: path-style addresses, own hashes, one conditional put an object.

An ETag is no hash of the content everywhere (parts, encryption), and stores differ in the checksums they take: none
of that is used. What was uploaded is hashed by the server before it is put here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import IO, TYPE_CHECKING, Any, Final

from aiobotocore.config import AioConfig  # type: ignore[import-untyped]
from aiobotocore.session import get_session  # type: ignore[import-untyped]
from aiohttp import ClientConnectionError
from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

from prosa.events.errors import ProsaError
from prosa.server.raws import StoreAway
from prosa.server.settings import S3Settings

if TYPE_CHECKING:
    from types_aiobotocore_s3 import S3Client

PIECE: Final = 1024 * 1024
CONFIG: Final = AioConfig(
    signature_version="s3v4",
    s3={"addressing_style": "path"},
    # the trailing checksums that SDKs add by themselves are refused by older stores
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
    connect_timeout=5,
    read_timeout=60,
    retries={"mode": "standard", "total_max_attempts": 4},
    max_pool_connections=50,
)
THERE: Final = ("412", "PreconditionFailed", "409", "ConditionalRequestConflict")
UNKNOWN: Final = ("501", "NotImplemented", "XNotImplemented")
GONE: Final = ("404", "NoSuchKey", "NotFound")


async def open_s3(settings: S3Settings) -> S3Raws:
    """Raises ProsaError where the store or the bucket is not there or the keys are wrong."""
    opened = AsyncExitStack()
    client = await opened.enter_async_context(
        get_session().create_client(
            "s3",
            endpoint_url=settings.endpoint,
            aws_access_key_id=settings.access_key,
            aws_secret_access_key=settings.secret_key,
            region_name=settings.region,
            config=CONFIG,
        )
    )
    raws = S3Raws(client, settings.bucket, opened)
    try:
        await raws.ensure_bucket(settings.region)
    except BaseException:
        await opened.aclose()
        raise
    return raws


class S3Raws:
    """Objects of one bucket."""

    def __init__(self, client: S3Client, bucket: str, opened: AsyncExitStack) -> None:
        self._client, self._bucket, self._opened = client, bucket, opened
        self._is_conditional = True

    async def ensure_bucket(self, region: str) -> None:
        try:
            try:
                await self._client.head_bucket(Bucket=self._bucket)
            except ClientError as error:
                if _code(error) not in (*GONE, "NoSuchBucket"):
                    raise
                await self._client.create_bucket(Bucket=self._bucket, **_location(region))
        except (BotoCoreError, ClientError) as refused:
            raise ProsaError(
                f"The bucket {self._bucket} cannot be used: {refused}.",
                "Nothing was started.",
                "Check PROSA_S3_ENDPOINT, PROSA_S3_BUCKET and the keys.",
            ) from None

    def uri(self, name: str) -> str:
        return f"s3://{self._bucket}/{name}"

    async def put(self, name: str, file: IO[bytes], size: int) -> None:
        """The file ends at `size`."""
        if self._is_conditional:
            with _asking(THERE + UNKNOWN) as codes:
                await self._put(name, file, size, {"IfNoneMatch": "*"})
            if not set(codes) & set(UNKNOWN):
                return
            self._is_conditional = False  # a store without conditions: two uploads put the same content
        if await self.size(name) is None:
            with _asking():
                await self._put(name, file, size, {})

    async def size(self, name: str) -> int | None:
        with _asking(GONE):
            return int((await self._client.head_object(Bucket=self._bucket, Key=name))["ContentLength"])
        return None

    async def read(self, name: str) -> AsyncIterator[bytes]:
        with _asking(GONE) as gone:
            found = await self._client.get_object(Bucket=self._bucket, Key=name)
        if gone:
            raise FileNotFoundError(name)
        with _asking():
            async with found["Body"] as body:
                while piece := await body.read(PIECE):
                    yield piece

    async def remove(self, name: str) -> None:
        with _asking():
            await self._client.delete_object(Bucket=self._bucket, Key=name)

    async def check(self) -> None:
        with _asking():
            await self._client.head_bucket(Bucket=self._bucket)

    async def close(self) -> None:
        await self._opened.aclose()

    async def _put(self, name: str, file: IO[bytes], size: int, more: dict[str, Any]) -> None:
        file.seek(0)
        await self._client.put_object(Bucket=self._bucket, Key=name, Body=file, ContentLength=size, **more)


@contextmanager
def _asking(expected: tuple[str, ...] = ()) -> Iterator[list[str]]:
    """Collects the codes that are expected; whatever else goes wrong is StoreAway."""
    codes: list[str] = []
    try:
        yield codes
    except ClientError as error:
        if (code := _code(error)) not in expected:
            raise StoreAway(f"the raw store answers {code}") from None
        codes.append(code)
    except (BotoCoreError, ClientConnectionError) as down:
        raise StoreAway(f"the raw store cannot be reached: {type(down).__name__}") from None


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _location(region: str) -> dict[str, Any]:
    """us-east-1 is the default, and is refused where it is named."""
    return {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
