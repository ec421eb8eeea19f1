"""outriderd's configuration: files over one another, the environment, and faults with their places."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.metadata.errors import FaultyFileError
from outrider.service.daemon.configuration.files import files_of, load_config, variables
from outrider.service.daemon.configuration.model import Config, administrators_of, settings_of
from outrider.service.settings import Settings
from tests.unit.service.daemon.fakes import written

D = "sha256:" + "0" * 64
LEAST = "version: 1\nbackend: {kind: embedded}\n"


def faults(folder: Path, text: str, environment: dict[str, str] | None = None) -> list[str]:
    path = written(folder / "o.yaml", text)
    with pytest.raises(FaultyFileError) as caught:
        load_config([path], environment or {})
    return [line.removeprefix(f"{folder}/") for line in str(caught.value).splitlines()]


def load(folder: Path, text: str, environment: dict[str, str] | None = None) -> Config:
    return load_config([written(folder / "o.yaml", text)], environment or {})


def test_least_configuration_gives_the_desk_its_defaults(tmp_path: Path) -> None:
    config = load(tmp_path, LEAST)

    assert settings_of(config) == Settings(best_effort_rate_bytes_per_s=12_500_000)
    assert config.store_path == "/var/lib/outrider/outriderd.sqlite"
    assert config.backend.virtual_nodes == ("n1", "n2", "n3", "n4")


@pytest.mark.parametrize(
    ("given", "rate_bytes_per_s"),
    [("4MB", 4_000_000), ("4000000", 4_000_000), ("0", 0), ("1.5 MiB", 1_572_864)],
)
def test_rate_of_best_effort_is_written_like_that_of_the_link(
    tmp_path: Path, given: str, rate_bytes_per_s: int
) -> None:
    config = load(tmp_path, LEAST + f"link: {{rate: 22MB, best_effort_rate: {given}}}\n")

    assert settings_of(config).best_effort_rate_bytes_per_s == rate_bytes_per_s


def test_best_effort_has_a_tenth_of_the_link_unless_a_site_says_otherwise(tmp_path: Path) -> None:
    config = load(tmp_path, LEAST + "link: {rate: 22MB}\n")

    assert settings_of(config).best_effort_rate_bytes_per_s == 2_200_000
    assert settings_of(config).deadline_rate_bytes_per_s == 19_800_000


@pytest.mark.parametrize("given", ["much", "-4MB", "true", "15MB"])
def test_rate_of_best_effort_that_cannot_be_is_named(tmp_path: Path, given: str) -> None:
    (line,) = faults(tmp_path, LEAST + f"link: {{rate: 22MB, best_effort_rate: {given}}}\n")

    assert "best_effort_rate" in line


def test_every_setting_of_the_desk_comes_from_a_key(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        LEAST
        + """
site: hpc
link: {rate: 1GB, reserve: 20m, shipping: per-node, spread: 5s}
pools: {size: 2TB}
timings: {look: 10s, progress: 1s, reconcile: 1h, sight: 1m, away: 30s, pins: 2d, grace: 1m, history: 30d,
  note: 4s}
limits: {reservations: 10, calls: 3, refusals: 7}
""",
    )

    assert settings_of(config) == Settings(
        site="hpc",
        link_rate_bytes_per_s=10**9,
        best_effort_rate_bytes_per_s=10**8,
        reserve_s=1200,
        shipping="per-node",
        pool_bytes=2 * 10**12,
        spread_s=5,
        look_every_s=10,
        progress_every_s=1,
        reconcile_every_s=3600,
        most_sight_age_s=60,
        away_after_s=30,
        pin_lease_s=172_800,
        grace_s=60,
        keep_history_s=30 * 86_400,
        most_reservations=10,
        most_calls=3,
        most_refusals=7,
        note_every_s=4,
    )


def test_transfers_may_begin_at_once(tmp_path: Path) -> None:
    assert settings_of(load(tmp_path, LEAST + "link: {reserve: at-once}\n")).reserve_s is None


def test_later_files_count_more_and_mappings_are_joined(tmp_path: Path) -> None:
    main = written(
        tmp_path / "outriderd.yaml",
        LEAST
        + "site: a\nlink: {rate: 1GB, spread: 7s}\n"
        + f"images: {{u: {{uri: https://h/u, size: 1GB, digest: {D}}}}}\n"
        + "administrators: {users: [ada, bob]}\n",
    )
    written(tmp_path / "conf.d/10-x.yaml", "site: b\nlink: {rate: 2GB}\n")
    written(
        tmp_path / "conf.d/20-y.yaml",
        f"site: c\nimages: {{v: {{uri: https://h/v, size: 1, digest: {D}, readers: {{users: [ada]}}}}}}\n"
        "administrators: {users: [eve]}\n",
    )
    written(tmp_path / "conf.d/30-z.yaml.old", "site: d\n")
    config = load_config(files_of(main), {})

    assert config.site == "c"
    assert (config.link.rate_bytes_per_s, config.link.spread_s) == (2 * 10**9, 7)
    assert {name: image.readers is None for name, image in config.images.items()} == {"u": True, "v": False}
    assert administrators_of(config).users == {"eve"}


def test_environment_counts_more_than_any_file(tmp_path: Path) -> None:
    environment = {
        "OUTRIDER_SITE": "env",
        "OUTRIDER_LINK_RATE": "3",
        "OUTRIDER_BACKUP_KEEP": "5",
        "OUTRIDER_X": "?",
    }
    config = load(tmp_path, LEAST + "site: file\n", {**environment, "OUTRIDER_UNHEARD_OF": "?"})

    assert (config.site, config.link.rate_bytes_per_s, config.backup.keep) == ("env", 3, 5)


def test_environment_alone_can_name_the_backend(tmp_path: Path) -> None:
    assert load(tmp_path, "version: 1\n", {"OUTRIDER_BACKEND_KIND": "twin"}).backend.kind == "twin"


def test_variable_is_named_for_the_socket_as_the_command_line_has_it() -> None:
    assert variables()["OUTRIDER_SOCKET"] == ("socket",)


def test_faults_have_the_place_in_the_file_that_they_come_from(tmp_path: Path) -> None:
    main = written(tmp_path / "o.yaml", LEAST + "link: {rate: 1GB}\n")
    more = written(tmp_path / "more.yaml", "# a remark\nlink: {rate: fast}\n")
    with pytest.raises(FaultyFileError) as caught:
        load_config([main, more], {})

    assert str(caught.value).startswith(f"{more}:2:14: link.rate: ")


def test_fault_of_a_variable_names_the_variable(tmp_path: Path) -> None:
    assert faults(tmp_path, LEAST, {"OUTRIDER_LINK_RATE": "fast"}) == [
        'OUTRIDER_LINK_RATE: "fast" is not a size: write bytes, or one like 600MB or 2GiB'
    ]


def test_misspelt_key_is_told_the_right_one(tmp_path: Path) -> None:
    assert faults(
        tmp_path, LEAST + f"link: {{rat: 1}}\nimages: {{u: {{digest: {D}, siz: 4, uri: https://h/u}}}}\n"
    ) == [
        "o.yaml:3:8: link.rat: there is no such key; did you mean rate?",
        f"o.yaml:4:{24 + len(D)}: images.u.siz: there is no such key; did you mean size?",
    ]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("socket: outriderd.sock", "is not a full path"),
        ("state: /var/../etc", "has .. as a part"),
        (f"socket: /{'s' * 110}", "103 at most"),
        ("tcp: {listen: 1.2.3.4:80}", "has to be true: without MUNGE nobody knows"),
        ("tcp: {listen: '1.2.3.4:0', munge: true}", "is not an address"),
        ("timings: {look: 5m, sight: 6m}", "less than two looks"),
        ("backup: {every: 5s}", "less than 60 seconds"),
        (f"images: {{u: {{uri: https://me:secret@h/u, size: 1, digest: {D}}}}}", "a user or a password"),
        (f"images: {{'a b': {{uri: https://h/u, size: 1, digest: {D}}}}}", "is not a name"),
        ("images: 3", "is not a mapping"),
        ("images: {u: 3}", "3 is not a mapping"),
        ("link: {reserve: soon}", "is not a number with a unit"),
        ("log: {level: loud}", "is not allowed here"),
        ("limits: {calls: 0}", "is too small"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(tmp_path: Path, line: str, says: str) -> None:
    found = faults(tmp_path, f"{LEAST}{line}\n")

    assert len(found) == 1
    assert found[0].startswith("o.yaml:3:")
    assert says in found[0]


def test_objects_of_grid_engine_have_the_names_that_are_configured(tmp_path: Path) -> None:
    section = "{work_queue: long.q, environments: whole=16 half=8, duration_offset: 5s}"
    found = load(tmp_path, f"version: 1\nbackend: {{kind: gridengine, gridengine: {section}}}\n").backend

    assert found.gridengine.work_queue == "long.q"
    assert found.gridengine.environments == ((8, "half"), (16, "whole"))
    assert found.gridengine.duration_offset_s == 5
    assert (found.gridengine.account, found.gridengine.checkpoint) == ("outrider", None)
    assert "parts" not in found.abilities


def test_parts_of_grid_engines_nodes_have_the_sizes_of_its_environments(tmp_path: Path) -> None:
    section = "{parts_queue: parts.q, environments: whole=16 half=8, slot_memory: 2GiB}"
    found = load(tmp_path, f"version: 1\nbackend: {{kind: gridengine, gridengine: {section}}}\n").backend

    assert found.abilities["parts"] == ("cpus",)
    assert found.abilities["cpu_numbers"] == (8, 16)
    assert found.abilities["memory_of_cpu_mib"] == 2048


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ("{work_queue: outrider.q}", "reservation_queue: is the work queue, too"),
        ("{slot_memory: 2GiB}", "slot_memory: keeps nothing without a queue for parts of nodes"),
        ("{parts_queue: outrider.q}", "parts_queue: has other jobs, too"),
        ("{environments: whole}", "is not a name and number of slots: write them like whole=16"),
        ("{work_queue: 'a b'}", "is not a name that Grid Engine takes"),
    ],
)
def test_names_that_grid_engine_cannot_have_are_refused(tmp_path: Path, section: str, says: str) -> None:
    found = faults(tmp_path, f"version: 1\nbackend: {{kind: gridengine, gridengine: {section}}}\n")

    assert len(found) == 1
    assert says in found[0]


def test_missing_file_is_a_fault_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(FaultyFileError, match=r"none\.yaml:1:1: cannot be read"):
        load_config([tmp_path / "none.yaml"], {})


def test_yaml_fault_in_one_file_is_told_with_those_of_the_others(tmp_path: Path) -> None:
    main = written(tmp_path / "o.yaml", "version: [\n")
    more = written(tmp_path / "more.yaml", "- a\n")
    with pytest.raises(FaultyFileError) as caught:
        load_config([main, more], {})

    files = sorted(line.split(":")[0].rpartition("/")[2] for line in str(caught.value).splitlines())
    assert files == ["more.yaml", "o.yaml"]


def test_nodes_that_are_slower_than_the_plan_are_a_fault(tmp_path: Path) -> None:
    file = tmp_path / "o.yaml"
    file.write_text("version: 1\nlink: {rate: 10MB}\nbackend: {kind: embedded, rate: 9MB}\n")

    with pytest.raises(FaultyFileError, match=r"o\.yaml:3:.*backend\.rate: is less than link\.rate"):
        load_config([file], {})


def test_machines_that_move_alive_where_there_are_none_are_a_fault(tmp_path: Path) -> None:
    found = faults(tmp_path, "version: 1\nbackend: {kind: slurm}\njobs: {live: true}\n")

    assert any("jobs.live: is true" in each for each in found), found
    for able in ("slurm", "gridengine", "embedded"):
        text = f"version: 1\nbackend: {{kind: {able}}}\njobs: {{machines: true, live: true}}\n"
        assert load(tmp_path, text).jobs.live


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        ("kind: slurm", ""),
        ("kind: gridengine", "each slot is for one job alone"),
        ("kind: embedded", "set backend.jobs_on_a_processor"),
        ("kind: embedded, jobs_on_a_processor: 2", ""),
    ],
)
def test_machines_are_packed_by_use_where_jobs_share_processors(
    tmp_path: Path, backend: str, words: str
) -> None:
    found = load(tmp_path, f"version: 1\nbackend: {{{backend}}}\njobs: {{machines: true}}\n").unmoved

    assert words in found
    assert bool(found) is bool(words), found


def test_batch_systems_of_clusters_say_how_jobs_share_processors(tmp_path: Path) -> None:
    found = faults(tmp_path, "version: 1\nbackend: {kind: slurm, jobs_on_a_processor: 2}\n")

    assert any("backend.jobs_on_a_processor: is for the embedded backend" in each for each in found), found


def test_jobs_may_have_machines_on_each_batch_system(tmp_path: Path) -> None:
    for kind in ("embedded", "slurm", "gridengine"):
        text = f"version: 1\nbackend: {{kind: {kind}}}\njobs: {{machines: true}}\n"
        assert load(tmp_path, text).jobs.machines


@pytest.mark.parametrize("kind", ["slurm", "gridengine"])
def test_site_may_be_consolidated_where_its_machines_can_move(tmp_path: Path, kind: str) -> None:
    head = f"version: 1\nbackend: {{kind: {kind}}}\njobs: "
    found = faults(tmp_path, f"{head}{{consolidate: {{enabled: true}}}}\n")

    assert any("jobs.consolidate.enabled: is true, and no job runs in a machine" in each for each in found)
    text = f"{head}{{machines: true, consolidate: {{enabled: true}}}}\n"
    assert load(tmp_path, text).jobs.consolidate.enabled
