"""What Grid Engine's submit filter makes of a job whose script runs in a virtual machine (`run: vm`).

Apart from the filter, which asks it. What a machine cannot give is refused here, when the job is submitted.
"""

import re

CHECKPOINT = "outrider_machine"
"""The checkpoint object by which a machine is saved when its job is suspended."""
OVERHEAD_MIB = 256
"""What QEMU takes beside the guest's memory, at most."""
LEAST_MIB, MOST_MIB = 32, 16 << 20
MEMORY = ("mem_free", "mf")
"""The request for memory that sets no limit to addresses, and its short name."""
ADDRESSES = ("h_vmem", "s_vmem", "h_data", "s_data", "h_rss", "s_rss")
AMOUNT = re.compile(r"([0-9]{1,12})(?:\.0*)?([kKmMgG]?)")
UNITS = {"": 1, "k": 1000, "K": 1 << 10, "m": 10**6, "M": 1 << 20, "g": 10**9, "G": 1 << 30}


def contradiction(found):
    """What is wrong with the job's metadata as far as machines go; nothing if all is well."""
    if found.get("run") != "vm":
        if "boot" in found:
            return "boot has no effect without run=vm: leave boot out"
        if found.get("preemptible") == "suspend":
            return (
                "only a job in a virtual machine can be suspended: add run=vm, or write preemptible=requeue"
            )
    elif found.get("format", "qcow2") not in ("qcow2", "raw"):
        return "a machine has disks: its format is qcow2 or raw"
    return ""


def obstacle(found, parameters, environments, several):
    """Why such a job cannot run in a machine as it was submitted; `environments` have one node, and of those
    of `several` each node has a machine."""
    if parameters.get("b", "n") == "y":
        return "run=vm is for a script: leave out -b y"
    if "cwd" not in parameters:
        return "its working folder is copied into the machine: name one with -cwd or -wd"
    if parameters.get("pe_name", "") not in ("", "NONE", *environments, *several):
        return "no machines run in this parallel environment: leave out -pe, or use one of " + (
            ", ".join([*environments, *several]) or "none: this site has named no environment for machines"
        )
    if parameters.get("pe_name") in several and found.get("preemptible") == "suspend":
        return (
            "machines on several nodes cannot be suspended here: write preemptible=requeue, or leave it out"
        )
    if parameters.get("notify", "n") == "y" or "s_rt" in [name for name, _ in _asked(parameters)]:
        return "-notify and s_rt send USR1, by which a machine is suspended: leave them out"
    if parameters.get("ckpt", CHECKPOINT) not in ("", "NONE", CHECKPOINT):
        return "a machine is saved by a checkpoint object of its own: leave out -ckpt"
    is_array = parameters.get("t_max", "1") != "1"
    if is_array and found.get("preemptible") == "suspend":
        return "an array's machines cannot be suspended: leave out preemptible"
    limited = [name for name, _ in _asked(parameters) if name in ADDRESSES]
    if limited:
        return f"{limited[0]} limits QEMU itself: ask for the machine's memory with -l mem_free=2G instead"
    if memory_mib(parameters) is None:
        return f"say how much memory the machine has: -l mem_free=2G, {LEAST_MIB}M or more"
    return ""


def memory_mib(parameters):
    """The guest's memory, as the job asks for it; None if no machine can have that."""
    found = [AMOUNT.fullmatch(text) for name, text in _asked(parameters) if name in MEMORY]
    if len(found) != 1 or found[0] is None:
        return None
    mib = int(found[0][1]) * UNITS[found[0][2]] >> 20
    return mib if LEAST_MIB <= mib <= MOST_MIB else None


def changes(found, parameters, several):
    """The lines of the answer that put its script into a machine, with QEMU's own memory beside."""
    memory = memory_mib(parameters)
    boot = f",boot={found['boot']}" if "boot" in found else ""
    lines = [f"ENV ADD OUTRIDER_MACHINE run=vm,memory={memory}{boot}"]
    for name in ("l_hard", "global_l_hard"):
        asked = [each for each in parameters.get(name, "").split(",") if each]
        given = [
            f"{each.partition('=')[0]}={memory + OVERHEAD_MIB}M" if each.partition("=")[0] in MEMORY else each
            for each in asked
        ]
        if given != asked:
            lines.append(f"PARAM {name} {','.join(given)}")
    if parameters.get("t_max", "1") == "1" and parameters.get("pe_name") not in several:
        lines.append(f"PARAM ckpt {CHECKPOINT}")
    return lines


def _asked(parameters):
    """What it asks for, by its name."""
    named = [parameters.get(name, "") for name in ("l_hard", "global_l_hard")]
    return [each.partition("=")[::2] for text in named for each in text.split(",") if each]
