"""Files that S3 creates only if they do not exist, by the client of Hadoop's file system S3A.

S3 has had it since 2024 (`PUT` with `If-None-Match: *`), Hadoop's `createFile` from 3.4.2 on. The
client of an earlier Hadoop sends the header as well. It has the credentials, endpoint, region,
proxy and encryption that S3A is configured with, and no later release changes it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j has no types

from arrester.agents.spark.jvm.classes import has_jvm_class, jvm_class, method_names

S3A: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_REASON: Final = "Arrester creates files of a checkpoint only if they do not exist"
_IF_ABSENT: Final = ("If-None-Match", "*")
_OPTIONS: Final = "org.apache.hadoop.fs.s3a.impl.PutObjectOptions"
#: Packages of the two versions of the client.
_V1: Final = "com.amazonaws.services.s3.model"
_V2: Final = "software.amazon.awssdk"


def s3_uploads(jvm: Any, files: Any) -> S3Uploads | None:
    """Return the uploads of an S3A of Hadoop 3.3.2 to 3.4.1; None for another one."""
    try:
        return S3Uploads(jvm, files)
    except Py4JError:
        return None


class S3Uploads:
    """The uploads to one bucket."""

    def __init__(self, jvm: Any, files: Any) -> None:
        self._jvm = jvm
        self._files = files
        self._requests = files.getRequestFactory()
        # An argument of requests from Hadoop 3.3.5 on.
        has_options = has_jvm_class(jvm, _OPTIONS)
        self._options = (jvm_class(jvm, _OPTIONS).keepingDirs(),) if has_options else ()
        if "getAmazonS3ClientForTesting" in method_names(files.getClass()):
            self._client = files.getAmazonS3ClientForTesting(_REASON)
            self._put = self._put_v1
        else:
            self._client = files.getS3AInternals().getAmazonS3Client(_REASON)
            self._put = self._put_v2

    def open(self, path: Any) -> tuple[Any, Callable[[], None]]:
        """Return a stream for the content of a file, and the call that uploads it.

        The call raises Py4JJavaError if the file exists.
        """
        stream = jvm_class(self._jvm, "java.io.ByteArrayOutputStream")()
        return stream, partial(self._upload, str(self._files.pathToKey(path)), stream)

    def _upload(self, key: str, stream: Any) -> None:
        # S3A can be set to refuse requests outside of a span.
        span = self._files.createSpan("op_create", key, None)
        try:
            self._put(key, bytearray(stream.toByteArray()))
        finally:
            span.close()

    def _put_v1(self, key: str, content: bytearray) -> None:
        metadata = jvm_class(self._jvm, f"{_V1}.ObjectMetadata")()
        metadata.setContentLength(len(content))
        stream = jvm_class(self._jvm, "java.io.ByteArrayInputStream")(content)
        request = self._requests.newPutObjectRequest(key, metadata, *self._options, stream)
        request.putCustomRequestHeader(*_IF_ABSENT)
        self._client.putObject(request)

    def _put_v2(self, key: str, content: bytearray) -> None:
        overrides = jvm_class(self._jvm, f"{_V2}.awscore.AwsRequestOverrideConfiguration")
        request = self._requests.newPutObjectRequestBuilder(
            key, *self._options, len(content), False
        ).overrideConfiguration(overrides.builder().putHeader(*_IF_ABSENT).build())
        body = jvm_class(self._jvm, f"{_V2}.core.sync.RequestBody").fromBytes(content)
        self._client.putObject(request.build(), body)
