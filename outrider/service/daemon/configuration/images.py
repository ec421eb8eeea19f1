"""What a configuration says of images that users name: the site's catalogue, its keys, tokens and logins."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from outrider.metadata.fields import Argument, Digest, Duration, Size, Uri
from outrider.metadata.validation import Section, contradiction
from outrider.service.daemon.configuration.types import Names, Path, matching

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_ENDPOINT = re.compile(r"https?://[A-Za-z0-9.\[\]:-]{1,255}")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}(:[0-9]{1,5})?")
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_REGION = re.compile(r"[a-z0-9-]{1,64}")

BucketName = Annotated[str, *matching(_BUCKET, "the name of a bucket")]
Endpoint = Annotated[str, *matching(_ENDPOINT, "a store: write one like https://s3.example.org")]
HostName = Annotated[str, *matching(_HOST, "a host: write HOST or HOST:PORT")]
Header = Annotated[str, *matching(_HEADER, "the name of a header")]
Region = Annotated[str, *matching(_REGION, "a region: write one like us-east-1")]


class ReadersSection(Section):
    """Who may use an image."""

    users: Names = Field((), description="users who may use it")
    groups: Names = Field((), description="groups whose members may use it")

    @model_validator(mode="after")
    def _is_somebody(self) -> Self:
        if not (self.users or self.groups):
            contradiction("names nobody: give users or groups, or leave it out for everybody")
        return self


class NamedImageSection(Section):
    """An image that users may name without knowing where it is. The administrator vouches for it."""

    uri: Uri = Field(description="where it is")
    digest: Digest = Field(description="what its bytes hash to")
    size_bytes: Size = Field(alias="size", description="its size, to the byte")
    format: Literal["qcow2", "raw", "squashfs", "sif", "file"] | None = Field(
        None, description="how it is packed; without it the nodes find out"
    )
    readers: ReadersSection | None = Field(None, description="who may use it; without it everybody")


class BucketSection(Section):
    """A bucket, and in whose hands its key is. Nodes get addresses that are signed for one image each."""

    endpoint: Endpoint | None = Field(
        None, description="the store, `https://HOST[:PORT]`; without it Amazon's of the region"
    )
    region: Region = Field("us-east-1", description="the region that signatures name")
    key: Path | None = Field(
        None,
        description="a file like `~/.aws/credentials` that only the service may read; without it the bucket "
        "is asked as anybody may",
    )
    profile: str = Field("default", max_length=64, description="the key's section in that file")
    readers: ReadersSection | None = Field(
        None,
        description="who may name its objects, as private images; without it everybody who may ask, whatever "
        "the store lets others read",
    )

    @model_validator(mode="after")
    def _is_meant(self) -> Self:
        if self.readers is not None and self.key is None:
            contradiction("are given, and without key everybody can read the bucket anyway", "readers")
        return self


class SiteLoginSection(Section):
    """A login of the site's at a registry, told by a program whenever it is out of date."""

    command: Annotated[tuple[Argument, ...], Field(min_length=1, max_length=16, strict=False)] = Field(
        description="a credential helper of docker's, its full path and arguments: `get` is added"
    )
    lifetime_s: Duration = Field(
        21_600,
        alias="lifetime",
        description="how long its answer is used; it is also asked again when the registry refuses the "
        "answer",
        json_schema_extra={"default": "6h"},
    )
    readers: ReadersSection | None = Field(
        None, description="who may name its images, as private ones; without it everybody who may ask"
    )


class TokenSection(Section):
    """A web server that wants a token. The head fetches its images, and nodes have them from the head."""

    header: Header = Field("X-Auth-Token", description="the header that carries the token, over TLS only")
    file: Path = Field(description="the token, in a file that only the service may read")
    path: Path | None = Field(
        None, description="the folder of the images for which the token is sent; without it for all"
    )
    readers: ReadersSection | None = Field(
        None, description="who may name its images, as private ones; without it everybody who may ask"
    )
