"""What a configuration says of registries, and of what is made of container images on the head."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from cachemgr.fetch.registry.session import PLATFORM
from outrider.metadata.fields import Account, Duration, Size
from outrider.metadata.validation import Section
from outrider.service.daemon.configuration.types import Address, Path, Registries, given


class RegistriesSection(Section):
    """Registries of container images and artefacts, from which users name images."""

    plain_http: Registries = Field(
        (),
        description="registries without TLS, `HOST` or `HOST:PORT`; the nodes' plain_http names them, too",
        json_schema_extra=given(""),
    )
    platform: Annotated[str, Field(pattern=r"^[a-z0-9]+/[a-z0-9_]+(/[a-z0-9]+)?$", max_length=64)] = Field(
        PLATFORM, description="the platform whose image of an index is used"
    )
    login_key: Path = Field(
        "/etc/outrider/logins.key",
        description="the key with which users' logins are sealed; made by the first login if it is not there",
    )
    plain_logins: bool = Field(
        False,
        description="whether passwords go to registries without TLS, too: anybody on the way reads them",
    )


class ConversionsSection(Section):
    """Container images, of which one file is made on the head before they are promised."""

    address: Address | None = Field(
        None,
        description="clusters: where nodes fetch from the head what it has made: an address of the head that "
        "they reach, and a free port; without it container images are refused there",
    )
    format: Literal["squashfs", "sif", "bundle"] = Field(
        "squashfs",
        description="what is made of an image whose user does not say: squashfs, sif for Apptainer, or "
        "bundle for Slurm's own containers",
    )
    compression: Literal["gzip", "lz4", "xz", "zstd"] = Field(
        "gzip", description="the compression; the nodes' kernels or squashfuse have to support it"
    )
    folder: Path | None = Field(
        None, description="where it is kept, on a local disk; without it conversions in the state folder"
    )
    size_bytes: Size = Field(
        200_000_000_000,
        alias="size",
        description="bytes that layers and results may take there; what has not been used for the longest "
        "time is removed first",
        json_schema_extra=given("200GB"),
    )
    largest_bytes: Size = Field(
        200_000_000_000,
        alias="largest",
        description="the most bytes of one image's files, unpacked",
        json_schema_extra=given("200GB"),
    )
    at_once: int = Field(2, ge=1, le=64, description="conversions at once; users take turns")
    processors: int = Field(2, ge=1, le=256, description="processors for one of them")
    patience_s: Duration = Field(
        3_600, alias="patience", description="when one is given up", json_schema_extra=given("1h")
    )
    user: Account = Field(
        "outrider-convert", description="the user as which conversions run; it should own nothing else"
    )
