"""The guest that others reach by ssh, with Debian's MPICH and a program that it has compiled.

What the packages need beside this system's own is fetched by apt, once; what is made stays in the folder for
temporary files.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
import zlib
from pathlib import Path

from testbed.linux_guest import linux_guest

PACKAGES = ("mpich", "libmpich-dev")
LIBRARIES = "usr/lib/x86_64-linux-gnu"
PROGRAMS = ("mpiexec.hydra", "hydra_pmi_proxy")
# Each rank adds its number, from 1 on, to what goes around; then all add up the squares of their numbers. Who
# waits sleeps between two looks: MPI_Recv would keep a processor busy, and guests may be translated.
RING = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static int received(int from) {
    int value, is_here = 0;
    MPI_Request request;
    MPI_Irecv(&value, 1, MPI_INT, from, 0, MPI_COMM_WORLD, &request);
    while (MPI_Test(&request, &is_here, MPI_STATUS_IGNORE), !is_here) usleep(20000);
    return value;
}
int main(int argc, char **argv) {
    int rank, size, length, value = 0, square, sum, rounds = atoi(argv[1]);
    char name[MPI_MAX_PROCESSOR_NAME];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_processor_name(name, &length);
    for (int round = 1; round <= rounds; round++) {
        if (rank) value = received(rank - 1);
        value += rank + 1;
        MPI_Send(&value, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD);
        if (rank) continue;
        value = received(size - 1);
        printf("round %d %d\n", round, value);
        fflush(stdout);
        usleep(200000);
    }
    square = (rank + 1) * (rank + 1);
    MPI_Allreduce(&square, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d of %d on %s: %d\n", rank, size, name, sum);
    return MPI_Finalize();
}
"""


def mpi_initrd() -> Path:
    """An initial RAM disk with /usr/bin/mpiexec.hydra and /usr/bin/ring, made if it is not there yet."""
    ssh = linux_guest().with_ssh
    made_by = zlib.crc32(Path(__file__).read_bytes() + str(ssh).encode())
    path = Path(tempfile.gettempdir()) / f"outrider-mpi-{os.getuid()}-{made_by:08x}"
    with Path(f"{path}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            with tempfile.TemporaryDirectory() as folder:
                more = _make(Path(folder))
                # The kernel unpacks one archive after the other.
                Path(f"{path}.new").write_bytes(ssh.read_bytes() + more.read_bytes())
            Path(f"{path}.new").rename(path)
    return path


def _make(folder: Path) -> Path:
    line = ["apt-get", "install", "-s", "--no-install-recommends", *PACKAGES]
    told = subprocess.run(line, capture_output=True, text=True, timeout=240, check=True).stdout
    needed = re.findall(r"^Inst (\S+)", told, re.MULTILINE)
    subprocess.run(
        ["apt-get", "download", "-q", *needed], cwd=folder, capture_output=True, timeout=300, check=True
    )
    root, tree = folder / "root", folder / "tree"
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(package), str(root)], timeout=120, check=True)
    (folder / "ring.c").write_text(RING)
    (header,) = root.rglob("mpi.h")
    libraries = root / LIBRARIES
    (tree / "usr/bin").mkdir(parents=True)
    line = ["gcc", "ring.c", "-o", "tree/usr/bin/ring", f"-I{header.parent}", f"-L{libraries}", "-lmpich"]
    subprocess.run([*line, f"-Wl,-rpath-link,{libraries}"], cwd=folder, timeout=240, check=True)
    for name in PROGRAMS:
        shutil.copy(root / "usr/bin" / name, tree / "usr/bin" / name)
    told = subprocess.run(
        ["ldd", *map(str, (tree / "usr/bin").iterdir())],
        env={"LD_LIBRARY_PATH": str(libraries), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, timeout=240, check=True,
    ).stdout  # fmt: skip
    assert "not found" not in told, told
    (tree / LIBRARIES).mkdir(parents=True)
    for found in set(re.findall(r"=> (/\S+) \(0x", told)):
        shutil.copy(found, tree / LIBRARIES / Path(found).name)
    names = "\n".join([".", *sorted(str(path.relative_to(tree)) for path in tree.rglob("*"))])
    line = ["cpio", "--quiet", "-o", "-H", "newc"]
    packed = subprocess.run(
        line, cwd=tree, input=names.encode(), capture_output=True, timeout=240, check=True
    ).stdout
    (folder / "more").write_bytes(packed)
    return folder / "more"
