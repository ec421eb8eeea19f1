"""What a reservation takes of its nodes: what its user says that an instance needs, or all of them.

Who names sizes has as much, where the batch system can hold that apart from the rest of a node. Where it
cannot, the reservation has whole nodes, and its user is told so.
"""

from __future__ import annotations

from outrider.core.model import Resources
from outrider.metadata.workspace import DeploymentSection, RoleSection
from outrider.service.desk.state.node_list import is_part, part, parts, whole
from outrider.service.settings import Settings

WORDS = {"cpus": "processors", "memory_mib": "memory", "gpus": "gpus"}


def named(deployment: DeploymentSection) -> frozenset[str]:
    """The resources of which it says how much an instance needs."""
    found = {"cpus"} & deployment.model_fields_set
    if deployment.memory_mib is not None:
        found |= {"memory_mib"}
    if deployment.gpus:
        found |= {"gpus"}
    return frozenset(found)


def named_by(role: RoleSection) -> frozenset[str]:
    """The same of a role."""
    given = {"cpus": role.cpus, "memory_mib": role.memory_mib, "gpus": role.gpus or None}
    return frozenset(name for name, amount in given.items() if amount is not None)


def taken(resources: Resources, names: frozenset[str], settings: Settings) -> tuple[Resources, str]:
    """What is taken of each node for these needs, of which those named were asked for; and a sentence if
    that is more than was asked for."""
    if not names:
        return whole(resources), ""
    amounts = dict(resources.amounts)
    held = set(settings.parts)
    of_cpu_mib = settings.memory_of_cpu_mib
    if "memory_mib" in names and "memory_mib" not in held and "cpus" in held and of_cpu_mib:
        # The batch system lets no job have more memory than belongs to its processors.
        amounts["cpus"] = max(amounts.get("cpus", 0), -(-amounts.get("memory_mib", 0) // of_cpu_mib))
        held.add("memory_mib")
    missing = sorted(names - held)
    if missing:
        what = " and ".join(WORDS.get(name, name) for name in missing)
        return whole(resources), (
            f"the batch system cannot keep {what} of a node for a reservation beside others: its nodes are "
            "its own as a whole"
        )
    step = settings.cpus_at_once
    cpus = -(-max(1, amounts.get("cpus", 0)) // step) * step
    words = ""
    if cpus != resources["cpus"]:
        words = f"each of its nodes gives it {cpus} processors, the least that can be kept for what is asked"
    return part(Resources.from_mapping(amounts | {"cpus": cpus})), words


def changed(
    before: Resources, asked: dict[str, int], per_node: int, settings: Settings
) -> tuple[Resources, str]:
    """What is taken of each node if instances, of which there are so many on it, get other sizes."""
    amounts = dict(parts(before).amounts)
    names = set(asked)
    if is_part(before):
        # What was named before still is.
        names |= amounts.keys()
    amounts |= {name: amount * per_node for name, amount in asked.items()}
    return taken(Resources.from_mapping(amounts), frozenset(names), settings)
