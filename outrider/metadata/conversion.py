"""From what a user wrote to what the core decides about, and to what each instance is told.

Texts of a file stay texts here: none becomes a path on a node, a word of a shell or a header.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from outrider.core.model import Image, Resources, Workspace
from outrider.metadata.errors import MetadataError
from outrider.metadata.workspace import (
    DeploymentSection,
    FileSection,
    ImageSection,
    RoleSection,
    WorkspaceFile,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class InstanceSpec:
    """What one instance is told when it is made from the image: it is *bound*, as the thesis says.

    `number` counts from 0 through all roles in the order in which they are written.
    """

    number: int
    role: str
    host: str
    address: str = ""
    files: tuple[FileSection, ...] = ()
    user_data: str = ""


def image_of(section: ImageSection, *, found_size_bytes: int | None = None, found_digest: str = "") -> Image:
    """The image, with what was found at its URI. What the file says must be what was found."""
    if section.digest and found_digest and section.digest != found_digest:
        raise MetadataError(
            f"image {section.uri} is {found_digest} by now, and the file wants {section.digest}: "
            "put that one back, or change the file"
        )
    if None not in (section.size_bytes, found_size_bytes) and section.size_bytes != found_size_bytes:
        raise MetadataError(
            f"image {section.uri} has {found_size_bytes} bytes, and the file says {section.size_bytes}: "
            "change its size, or leave it out"
        )
    size_bytes = section.size_bytes if found_size_bytes is None else found_size_bytes
    if size_bytes is None:
        raise MetadataError(
            f"the size of image {section.uri} is not known: write it down as metadata.image.size"
        )
    return Image(uri=section.uri, size_bytes=size_bytes, digest=section.digest or found_digest)


def workspace_of(file: WorkspaceFile, image: Image, *, now_s: int, name: str | None = None) -> Workspace:
    """The workspace as the core knows it; `name` is what it is booked under, if not its own.

    The core's instance is one node's worth: all instances of a node together. Two of these may
    share a larger node, but what the user wants side by side is never torn apart, as it would
    be if each were placed on its own.
    """
    deployment = deployment_of(file)
    start_s, duration_s = deployment.start_s, deployment.duration_s
    if deployment.open_from_s is not None:
        # Its nodes are its own from the first instant at which its event may come.
        assert deployment.open_until_s is not None
        assert deployment.ready_within_s is not None
        start_s = deployment.open_from_s
        duration_s += deployment.open_until_s - start_s + deployment.ready_within_s
    if start_s is None and deployment.finish_by_s is not None:
        start_s = now_s
    if deployment.finish_by_s is not None and start_s is not None:
        short_s = start_s + deployment.duration_s - deployment.finish_by_s
        if short_s > 0:
            raise MetadataError(
                f"workspace {file.metadata.name} cannot end by its finish_by any more: it lacks {short_s} s"
            )
    return Workspace(
        name=name or file.metadata.name,
        instances=deployment.nodes,
        resources=_resources(deployment),
        duration_s=duration_s,
        image=image,
        start_s=start_s,
        finish_by_s=deployment.finish_by_s,
        is_preemptible=deployment.preemptible is not False,
        may_yield=deployment.preemptible is True and start_s is not None,
    )


def deployment_of(file: WorkspaceFile) -> DeploymentSection:
    """The deployment, which a file may leave to options."""
    if file.deployment is None:
        raise MetadataError(
            f"workspace {file.metadata.name} has no deployment: "
            "add that section, or give at least --nodes and --duration"
        )
    return file.deployment


def instances_of(file: WorkspaceFile) -> tuple[InstanceSpec, ...]:
    """One value for each instance wanted; empty if all are alike, because there are no roles.

    Hosts are taken in the order written, so a deployment smaller than the metadata gets the
    first ones: the head, if it is written first.
    """
    wanted = deployment_of(file).instances
    addressed = (
        (role, host, role.addresses[number] if role.addresses else "")
        for role in file.metadata.roles
        for number, host in enumerate(role.hosts)
    )
    return tuple(
        InstanceSpec(
            number=number,
            role=role.name,
            host=host,
            address=address,
            files=role.files,
            user_data=role.user_data,
        )
        for number, (role, host, address) in enumerate(islice(addressed, wanted))
    )


def role_resources(deployment: DeploymentSection, role: RoleSection) -> Resources:
    """What a node has to give to an instance of a role."""
    memory_mib = deployment.memory_mib if role.memory_mib is None else role.memory_mib
    return Resources.of(
        cpus=deployment.cpus if role.cpus is None else role.cpus,
        memory_mib=memory_mib or 0,
        gpus=deployment.gpus if role.gpus is None else role.gpus,
    )


def _resources(deployment: DeploymentSection) -> Resources:
    """What a node has to give: the needs of an instance, as often as there are instances on it."""
    each = deployment.instances_per_node
    return Resources.of(
        cpus=deployment.cpus * each,
        memory_mib=(deployment.memory_mib or 0) * each,
        gpus=deployment.gpus * each,
    )
