"""The service from its start to its end: what it opens, tells systemd, keeps, and leaves behind."""

from __future__ import annotations

import http.client
import json
import os
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from outrider.metadata.errors import MetadataError
from outrider.service.daemon.configuration.policies import PolicyBook
from outrider.service.daemon.errors import ServiceInputError, SocketError
from outrider.service.daemon.lead.keeping import create_store
from outrider.service.daemon.sockets import Sockets
from outrider.service.daemon.threads.workers import Workers
from outrider.store.errors import Conflict, Full, Locked, StoreMissing
from outrider.store.sqlite.store import SqliteStore
from tests.unit.service.daemon.conftest import Running
from tests.unit.service.daemon.fakes import PATIENCE_S, eventually, written

Make = Callable[..., Running]


def test_service_answers_over_its_socket_and_ends_cleanly(running: Make) -> None:
    service = running().start()
    status, body = service.ask("GET", "/healthz")
    missing, _ = service.ask("GET", "/v1/reservations/render-1")
    mode = stat.S_IMODE(service.socket.stat().st_mode)
    service.stop()

    assert (status, missing) == (200, 404), body
    assert mode == 0o666
    assert service.error is None
    assert service.fake.backend.started == service.fake.backend.stopped == 1
    assert not service.socket.exists()
    # The store was closed: it opens without its log.
    SqliteStore.open(Path(service.config.store_path), 1).close()


def test_systemd_is_told_of_the_whole_life(running: Make) -> None:
    service = running().start()
    eventually(lambda: service.has_told("WATCHDOG=1"), "the watchdog", service.stream)
    eventually(lambda: service.has_told("STATUS=promises"), "the status", service.stream)
    service.orders.stop.set()
    eventually(lambda: service.has_told("STOPPING=1"), "the end", service.stream)

    kinds = list(dict.fromkeys(each.partition("=")[0] for each in service.told))
    assert kinds[0] == "READY"
    assert kinds[-1] == "STOPPING"


def test_readiness_follows_the_desk(running: Make) -> None:
    service = running().start()
    eventually(lambda: service.ask("GET", "/readyz")[0] == 200, "being ready", service.stream)
    service.fake.desks[0].is_promising = False
    eventually(lambda: service.ask("GET", "/readyz")[0] == 503, "not being ready", service.stream)
    alive, _ = service.ask("GET", "/healthz")

    assert alive == 200


def test_metrics_are_served_with_requests_counted(running: Make) -> None:
    service = running().start()
    service.ask("GET", "/v1/reservations/render-1")
    status, body = service.ask("GET", "/metrics")

    assert status == 200
    assert b'outrider_requests_total{code="404",route="/v1/reservations/{name}"} 1.0' in body
    assert b'outrider_desk_seconds_count{event="show"} 1.0' in body


def test_failing_desk_costs_its_request_and_not_the_service(running: Make) -> None:
    service = running().start()
    status, body = service.ask("GET", "/v1/reservations/boom")
    after, _ = service.ask("GET", "/v1/reservations/render-1")

    assert (status, json.loads(body)["code"]) == (503, "unavailable")
    assert after == 404
    assert len(service.fake.desks) == 2


def test_store_is_not_made_in_silence(running: Make) -> None:
    service = running()
    Path(service.config.state).mkdir()
    service.start(is_new=False)

    assert isinstance(service.error, StoreMissing)
    assert "outriderd --init" in str(service.error)
    assert not Path(service.config.store_path).exists()
    assert service.fake.backend.started == 0


def test_second_service_on_the_socket_is_refused_and_the_first_goes_on(running: Make) -> None:
    service = running().start()
    with pytest.raises(SocketError, match="another daemon listens"):
        Sockets(service.config)

    assert service.ask("GET", "/healthz")[0] == 200


def test_second_service_on_the_store_is_refused(running: Make, folder: Path) -> None:
    service = running().start()
    with pytest.raises(Locked):
        SqliteStore.open(Path(service.config.store_path), 1)

    assert service.ask("GET", "/healthz")[0] == 200


def test_socket_that_a_killed_service_left_is_replaced(running: Make) -> None:
    service = running()
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(service.socket))
    left.close()
    service.start()

    assert service.ask("GET", "/healthz")[0] == 200


def test_mode_of_the_socket_is_as_configured(running: Make) -> None:
    service = running('socket_mode: "0660"\n').start()

    assert stat.S_IMODE(service.socket.stat().st_mode) == 0o660


def test_stop_waits_for_the_request_in_hand(running: Make) -> None:
    service = running().start()
    answers: list[tuple[int, bytes]] = []
    client = threading.Thread(target=lambda: answers.append(service.ask("GET", "/v1/reservations/stuck")))
    client.start()
    eventually(lambda: "stuck" in service.fake.desks[0].heard, "being stuck", service.stream)
    service.orders.stop.set()
    eventually(lambda: service.has_told("STOPPING=1"), "the end", service.stream)
    service.fake.desks[0].go.set()
    client.join(PATIENCE_S)

    assert [status for status, _ in answers] == [404]


def test_store_that_fails_for_good_ends_the_service_with_its_error(running: Make) -> None:
    service = running().start()
    os.unlink(service.config.store_path)
    service.ask("GET", "/v1/reservations/boom")
    eventually(lambda: not service.is_alive, "the end", service.stream)

    assert isinstance(service.error, StoreMissing)
    assert not isinstance(service.error, Full)
    assert service.fake.backend.stopped == 1


POLICIES = "version: 1\nrules:\n  - {name: all}\n"


def test_policies_are_read_again_on_demand(running: Make, folder: Path) -> None:
    path = written(folder / "p.yaml", POLICIES)
    service = running(f"policies: {path}\n").start()
    path.write_text(
        f"{POLICIES}  - {{name: more, users: [ada]}}\n".replace("{name: all}", "{name: all, users: [bob]}")
    )
    service.orders.reload.set()
    eventually(lambda: "policies read" in service.stream.getvalue(), "the new policies", service.stream)
    policies = service.fake.desks[0].policies

    assert len(service.fake.desks) == 1
    assert policies is not None
    assert [each.name for each in policies.rules] == ["all", "more"]


def test_policies_are_read_again_after_the_copy_during_which_it_was_ordered(
    running: Make, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_begun, may_end = threading.Event(), threading.Event()
    turns: list[Workers] = []
    monkeypatch.setattr(
        "outrider.service.daemon.threads.workers.Workers.tend", lambda workers: turns.append(workers)
    )

    def copies(backups: object) -> None:
        is_begun.set()
        may_end.wait(PATIENCE_S)
        monkeypatch.setattr("outrider.service.daemon.threads.backups.Backups.is_due", False)

    monkeypatch.setattr("outrider.service.daemon.threads.backups.Backups.tend", copies)
    path = written(folder / "p.yaml", POLICIES)
    service = running(f"policies: {path}\nbackup: {{folder: {folder}, every: 1h}}\n").start()
    assert is_begun.wait(PATIENCE_S)
    service.orders.reload.set()
    before = len(turns)
    eventually(lambda: len(turns) >= before + 2, "the main thread's look at its orders", service.stream)
    assert "policies read" not in service.stream.getvalue()
    may_end.set()

    eventually(lambda: "policies read" in service.stream.getvalue(), "the new policies", service.stream)


def test_faulty_policies_leave_the_old_ones_in_force(running: Make, folder: Path) -> None:
    path = written(folder / "p.yaml", POLICIES)
    service = running(f"policies: {path}\n").start()
    path.write_text("version: 1\nrules: [{nam: all}]\n")
    service.orders.reload.set()
    eventually(lambda: "policies not read" in service.stream.getvalue(), "the complaint", service.stream)
    status, body = service.ask("POST", "/v1/policies/reload")

    assert (status, json.loads(body)["code"]) == (422, "invalid")
    assert "did you mean name?" in json.loads(body)["message"]
    assert len(service.fake.desks) == 1
    assert service.ask("GET", "/healthz")[0] == 200


def test_faulty_policies_at_the_start_are_an_error(running: Make, folder: Path) -> None:
    path = written(folder / "p.yaml", "version: 2\n")
    service = running(f"policies: {path}\n").start()

    assert isinstance(service.error, ServiceInputError)
    assert "p.yaml:1:10: version" in str(service.error)


def test_configuration_in_force_is_shown_to_administrators(running: Make) -> None:
    service = running("site: hpc\n").start()
    status, body = service.ask("GET", "/v1/config")
    shown = json.loads(body)

    assert status == 200
    assert shown["settings"]["site"] == "hpc"
    assert shown["settings"]["link"]["rate_bytes_per_s"] == 125_000_000
    assert shown["policies"]["rules"][0]["name"] == "everybody"


def test_administrator_gets_a_copy_of_the_store(running: Make, folder: Path) -> None:
    service = running().start()
    target = folder / "copy.sqlite"
    status, body = service.ask("POST", "/v1/backups", {"path": str(target)})
    again, _ = service.ask("POST", "/v1/backups", {"path": str(target)})

    assert (status, json.loads(body)) == (200, {"path": str(target), "reservations": 0})
    assert again == 409
    SqliteStore.open(target, 1).close()


def test_copies_are_made_while_the_service_runs(running: Make, folder: Path) -> None:
    (folder / "copies").mkdir()
    service = running(f"backup: {{folder: {folder}/copies, every: 1h}}\n").start()
    eventually(lambda: any((folder / "copies").glob("outriderd-*.sqlite")), "the copy", service.stream)
    eventually(lambda: "store copied" in service.stream.getvalue(), "the line", service.stream)
    status, body = service.ask("GET", "/metrics")

    assert status == 200
    assert b'outrider_backups_total{result="done"} 1.0' in body


def test_job_is_handed_over_once_for_a_key(running: Make) -> None:
    service = running().start()
    body = {"argv": ["/bin/true"], "nodes": 1, "duration": "10m"}
    first = service.ask("POST", "/v1/submissions", body)

    assert first[0] == 201, first
    assert json.loads(first[1])["job"]


def test_nobody_is_known_over_the_network_without_munge(running: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    running(f"tcp: {{listen: '127.0.0.1:{port}', munge: true}}\n").start()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request("GET", "/v1/status")
    status = connection.getresponse().status
    connection.close()

    assert status == 401


def test_store_is_created_where_there_has_never_been_one(running: Make) -> None:
    config = running().config
    create_store(config)
    before = Path(config.store_path).read_bytes()
    create_store(config, only_if_empty=True)
    with pytest.raises(Conflict):
        create_store(config)

    assert Path(config.store_path).read_bytes() == before


def test_lost_store_beside_what_else_is_in_the_state_folder_is_not_made_anew(running: Make) -> None:
    config = running().config
    written(Path(config.state) / "embedded/n1/x", "")
    create_store(config, only_if_empty=True)

    assert not Path(config.store_path).exists()


def test_socket_that_is_removed_is_made_anew(running: Make) -> None:
    service = running().start()
    service.socket.unlink()
    eventually(service.socket.exists, "the new socket", service.stream)
    status, _ = service.ask("GET", "/healthz")
    service.stop()

    assert status == 200
    assert "socket is gone, and made again" in service.stream.getvalue()
    assert service.error is None
    assert not service.socket.exists()


def test_service_whose_folder_of_the_socket_is_gone_ends_with_words(running: Make, folder: Path) -> None:
    service = running().start()
    folder.rename(f"{folder}-elsewhere")
    eventually(lambda: not service.is_alive, "the end", service.stream)
    Path(f"{folder}-elsewhere").rename(folder)

    assert isinstance(service.error, SocketError)
    assert str(service.socket) in str(service.error)


@pytest.mark.parametrize("name", ["o.sock", "o.sock.new"])
def test_file_where_the_socket_would_be_is_not_replaced(running: Make, folder: Path, name: str) -> None:
    service = running()
    (folder / name).write_text("of somebody")
    service.start()

    assert isinstance(service.error, SocketError)
    assert f"{folder}/{name} is there and is not a socket: move it away" in str(service.error)
    assert (folder / name).read_text() == "of somebody"
    assert service.fake.backend.started == service.fake.backend.stopped


def test_folder_of_somebody_else_beside_the_socket_is_refused_at_the_start(
    running: Make, folder: Path
) -> None:
    service = running()
    (folder / "begin").mkdir()
    (folder / "begin/notes.txt").write_text("of somebody")
    service.start()

    assert isinstance(service.error, ServiceInputError)
    assert "holds 'notes.txt': name another folder" in str(service.error)
    assert (folder / "begin/notes.txt").read_text() == "of somebody"


def test_store_behind_a_link_that_is_turned_elsewhere_stays_the_same_store(
    running: Make, folder: Path
) -> None:
    (folder / "disk").mkdir()
    (folder / "state").mkdir()
    (folder / "state/outriderd.sqlite").symlink_to(folder / "disk/real.sqlite")
    service = running().start()
    (folder / "state/outriderd.sqlite").unlink()
    (folder / "state/outriderd.sqlite").symlink_to(folder / "disk/other.sqlite")
    status, body = service.ask("POST", "/v1/backups", {"path": f"{folder}/copy.sqlite"})
    service.stop()

    assert status == 200, body
    assert service.error is None
    SqliteStore.open(folder / "disk/real.sqlite", 1).close()
    assert not (folder / "disk/other.sqlite").exists()


def test_account_of_holders_is_refused_where_no_machine_moves_in_one(tmp_path: Path) -> None:
    path = tmp_path / "policies.yaml"
    path.write_text("version: 1\nholder_account: machines\nrules: [{name: everybody}]\n")

    assert PolicyBook(str(path), has_holders=True).current.holder_account == "machines"
    with pytest.raises(MetadataError, match=r"holder_account has no effect.*set jobs\.live"):
        PolicyBook(str(path))


def test_overbooking_is_refused_where_no_machine_moves(tmp_path: Path) -> None:
    path = tmp_path / "policies.yaml"
    path.write_text("version: 1\noverbook: {}\nrules: [{name: everybody}]\n")

    found = PolicyBook(str(path)).current.overbook
    assert found is not None
    assert (found.margin_percent, found.age_s, found.most) == (25, 120, 2)
    with pytest.raises(MetadataError, match=r"overbook has no effect, since no machine can leave"):
        PolicyBook(str(path), unmoved="no machine can leave")
