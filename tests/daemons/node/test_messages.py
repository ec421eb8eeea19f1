"""What the daemon and those who ask it say to each other is what `cachemgr.protocol` has, no more."""

from __future__ import annotations

import ast
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cachemgr import hook, protocol
from cachemgr.base.errors import BadRequest
from cachemgr.daemon.network.peer import NodeCaller
from cachemgr.daemon.verbs import table
from cachemgr.daemon.verbs.requests import VerbRequest, parse
from cachemgr.network import client as clients
from cachemgr.network.client import DaemonClient
from tests.daemons.node.daemons import Inside
from tests.repository import ROOT

Start = Callable[..., Inside]
ROOT_USER = NodeCaller(uid=0, real_uid=0, pid=1, is_privileged=True)
# The methods by which programs ask a daemon, and the folders of those programs.
ASKS = {"ask", "send", "order", "ask_about", "ask_all"}
ASKERS = ("cachemgr", "plugins/pyxis", "outrider/service/nodes")
# The site's converter has a verb of its own, which no daemon of nodes takes.
CONVERTERS = {"convert"}
# A value for each option of the hook.
OPTIONS = {"until": "9", "uid": "3", "user": "root", "attempt": "4", "task": "2", "nodes": "a,b"}
# What the hook reads of which message, by the names that it has for them.
READ_BY_HOOK = {
    "result": (protocol.InstanceEntry, protocol.ListedInstances),
    "each": (protocol.InstanceEntry,),
    "progress": (protocol.CopyProgress,),
}
# It keeps the line itself beside the result.
HOOKS_OWN = {"line"}


class ReadAs(Exception):
    """As which message a verb reads its request."""


class Looked(VerbRequest):
    def read(self, kind: type[Any]) -> Any:
        raise ReadAs(kind)


def fields_of(*kinds: type[Any]) -> set[str]:
    return {each for kind in kinds for each in kind.field_types}


def test_daemon_has_the_verbs_of_the_protocol() -> None:
    assert list(table.VERBS) == list(protocol.VERBS)


def test_each_verb_reads_its_message(inside: Start) -> None:
    node = inside().node
    read = {}
    for verb, carry_out in table.VERBS.items():
        with pytest.raises(ReadAs) as found:
            carry_out(node, ROOT_USER, Looked(verb, {}))
        read[verb] = found.value.args[0]

    assert read == {verb: kinds[0] for verb, kinds in protocol.VERBS.items()}


def test_each_verb_answers_with_its_messages() -> None:
    """As its signature says, which mypy compares with what it does."""
    answered = {verb: each.__annotations__["return"].split(" | ") for verb, each in table.VERBS.items()}
    named = {verb: [each.__name__ for each in kinds[1:]] for verb, kinds in protocol.VERBS.items()}

    assert answered == {**named, "stats": ["dict[str, float]"]}


@pytest.mark.parametrize("verb", protocol.VERBS)
def test_field_that_no_message_has_is_refused(inside: Start, verb: str) -> None:
    with pytest.raises(BadRequest, match=f"'{verb}' has no field 'extra'"):
        table.VerbTable(inside().node)(ROOT_USER, VerbRequest(verb, {"extra": 1}))


def options_of(verb: str) -> Iterator[tuple[str, list[str]]]:
    """Each option of the hook's that is for the daemon, with those that the verb needs."""
    _, known, needed = hook.VERBS[verb]
    for name in known.split():
        if name not in hook.LOCAL:
            said = [verb]
            for each in dict.fromkeys([*needed.split(), name]):
                said += [f"--{each}"] if each in hook.FLAGS else [f"--{each}", OPTIONS.get(each, "x")]
            yield name, said


@pytest.mark.parametrize(
    ("verb", "option", "said"),
    [(verb, option, said) for verb in hook.VERBS for option, said in options_of(verb)],
)
def test_every_option_of_the_hook_is_a_field_of_its_message(verb: str, option: str, said: list[str]) -> None:
    line = hook.request_line(*hook.read_options(said))
    request = parse(line)
    kind = protocol.VERBS[request.verb][0]
    fields = json.loads(line).keys() - {"v", "do"}

    assert request.read(kind)
    assert fields <= fields_of(kind)
    # `where` chooses among all that the daemon lists, by itself.
    assert verb == "where" or len(fields) == len({*hook.VERBS[verb][2].split(), option})


def test_hook_reads_nothing_that_no_message_has() -> None:
    read: dict[str, set[str]] = {}
    for each in ast.walk(ast.parse(Path(hook.__file__).read_text())):
        if isinstance(each, ast.Subscript):
            of, key = each.value, each.slice
        elif isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == "get":
            of, key = each.func.value, each.args[0]
        else:
            continue
        if isinstance(of, ast.Name) and of.id in READ_BY_HOOK and isinstance(key, ast.Constant):
            read.setdefault(of.id, set()).add(str(key.value))

    assert read.keys() == READ_BY_HOOK.keys()
    for name, kinds in READ_BY_HOOK.items():
        assert read[name] - HOOKS_OWN <= fields_of(*kinds)


def asked(tree: ast.AST) -> Iterator[tuple[str, list[ast.expr]]]:
    """Each verb that is asked by its name, with what follows it."""
    for each in ast.walk(tree):
        if isinstance(each, ast.Call):
            name = each.func.attr if isinstance(each.func, ast.Attribute) else getattr(each.func, "id", "")
            texts = [at for at, given in enumerate(each.args) if is_text(given)]
            if name in ASKS and texts:
                verb = each.args[texts[0]]
                assert isinstance(verb, ast.Constant)
                yield str(verb.value), each.args[texts[0] + 1 :]


def is_text(given: ast.expr) -> bool:
    return isinstance(given, ast.Constant) and isinstance(given.value, str)


def wrong_in(path: str, tree: ast.AST) -> Iterator[str]:
    """What is asked there that the protocol does not have."""
    messages = {kind.__name__ for kinds in protocol.VERBS.values() for kind in kinds}
    for verb, rest in asked(tree):
        if verb not in protocol.VERBS:
            if verb not in CONVERTERS:
                yield f"{path}: no verb {verb}"
            continue
        if rest and isinstance(rest[0], ast.Dict):
            yield f"{path}: {verb} is asked with fields, and not with its message"
        named = {each.id for given in rest for each in ast.walk(given) if isinstance(each, ast.Name)}
        others = (named & messages) - {kind.__name__ for kind in protocol.VERBS[verb]}
        yield from (f"{path}: {verb} with {each}" for each in sorted(others))


def test_programs_ask_in_messages_of_the_protocol() -> None:
    trees = {
        str(path.relative_to(ROOT)): ast.parse(path.read_text())
        for folder in ASKERS
        for path in sorted((ROOT / folder).rglob("*.py"))
    }
    verbs = {verb for tree in trees.values() for verb, _ in asked(tree)}

    assert [each for path, tree in trees.items() for each in wrong_in(path, tree)] == []
    assert verbs - CONVERTERS >= protocol.VERBS.keys() - {"claim", "metrics", "find", "machines"}


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("client.ask('explode')", "no verb explode"),
        ("client.ask('pin', {'name': 'a'})", "not with its message"),
        ("asking.order('copy', PinRequest('a', 'b', 9), CopyState)", "copy with PinRequest"),
        ("asking.order('copy', wanted, Released)", "copy with Released"),
    ],
)
def test_what_the_protocol_does_not_have_is_found(line: str, wrong: str) -> None:
    assert [each.partition(": ")[2] for each in wrong_in("x", ast.parse(line)) if wrong in each]


@pytest.mark.parametrize("version", ["0", "2", "1000", '"1"', "null", "[1]"])
def test_other_version_is_refused_and_told_which_one_is_spoken(inside: Start, version: str) -> None:
    daemon = inside()
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as connection:
        connection.settimeout(20)
        connection.connect(daemon.socket)
        lines = connection.makefile("r")
        connection.sendall(f'{{"v":{version},"do":"ping","new":1}}\n{{"do":"ping"}}\n'.encode())
        answers = [json.loads(lines.readline()) for _ in range(2)]
        connection.sendall(b'{"v":1,"do":"ping"}\n')
        after = json.loads(lines.readline())

    assert answers == 2 * [
        {
            "ok": False,
            "error": "bad-request",
            "exit_code": 2,
            "message": 'the request has no "v": 1, which is the version that this daemon speaks',
        }
    ]
    assert after["ok"] is True


def test_client_and_hook_of_another_version_report_the_refusal(
    inside: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = inside()
    line = hook.request_line("ping", {}).replace(b'"v":1', b'"v":2')
    monkeypatch.setattr(clients, "VERSION", 2)
    with DaemonClient(daemon.socket) as client, pytest.raises(BadRequest, match="which is the version"):
        client.ask("ping")
    with pytest.raises(hook.HookFailed, match='has no "v": 1') as failed:
        hook.ask(line, {"socket": daemon.socket})

    assert failed.value.status == BadRequest.exit_code
