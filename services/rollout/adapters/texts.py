"""Long texts in the blob store, so that histories and events stay small. It refuses nothing but what is lost."""

from dataclasses import dataclass

from forgerl.common.v1.blob_pb2 import BlobRef

from services.kernel.blobs import Blobs
from services.rollout.domain.episode import Blob, Text

INLINE_BYTES = 64 * 1024
MEDIA_TYPE = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class BlobTexts:
    """Implements `ports.Texts`."""

    blobs: Blobs

    async def pack(self, text: str) -> Text:
        """Here up to 64 KiB of UTF-8, in a blob above."""
        encoded = text.encode("utf-8", "replace")
        if len(encoded) <= INLINE_BYTES:
            return Text(encoded.decode())
        ref = await self.blobs.put(encoded, MEDIA_TYPE)
        return Text(blob=Blob(ref.uri, ref.sha256, ref.size_bytes, ref.media_type))

    async def unpack(self, text: Text) -> str:
        """The text itself."""
        if text.blob is None:
            return text.inline
        ref = BlobRef(
            uri=text.blob.uri,
            sha256=text.blob.sha256,
            size_bytes=text.blob.size_bytes,
            media_type=text.blob.media_type,
        )
        return (await self.blobs.get(ref)).decode()
