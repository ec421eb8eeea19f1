"""What an administrator may set for pyxis' importer and the converter, in /etc/outrider/pyxis.conf."""

from __future__ import annotations

import configparser
import os
import shlex
from dataclasses import dataclass

from cachemgr.base.errors import BadRequest
from cachemgr.base.sizes import read_size
from cachemgr.base.times import read_span
from cachemgr.network.client import SOCKET

SECTION = "pyxis"
MOST_BYTES = 64 << 10
# Every option with its default and its meaning, as pyxis.conf.example beside the importer shows them.
OPTIONS = {
    "socket": (SOCKET, "where the node's cachemgr listens"),
    "lease": ("1h", "how long an image stays in the pool for a step that never gives it back"),
    "patience": ("1h", "how long a step waits for its image at most"),
    "import_command": (
        "enroot import --output {output} {uri}",
        "what makes a squashfs file of a registry's image",
    ),
    "default_registry": ("registry-1.docker.io", "the registry of images that name none, as in enroot.conf"),
    "scratch": (
        "{runtime}/{uid}",
        "folder for a user's own conversions; {runtime} is pyxis' runtime_path",
    ),
    "fallback": ("yes", "whether a step continues without the pool if the pool does not take its image"),
    "converter": ("", "socket of the site's converter; empty: each user converts alone"),
    "converter_user": (
        "outrider-convert",
        "the user that the converter becomes for a conversion, if it is root",
    ),
    "converter_scratch": ("/var/cache/outrider-convert", "folder for the converter's unfinished images"),
    "converter_registries": ("", "registries from which the converter brings images; empty: all"),
    "converter_conversions": ("2", "conversions of the converter at once"),
    "converter_waiting": ("32", "conversions that may wait for the converter; more are refused"),
    "converter_largest": ("200GB", "the largest image that the converter makes"),
}


@dataclass(frozen=True)
class Config:
    """What holds on this node; the options of the same names, with their units."""

    socket: str
    lease_s: int
    patience_s: int
    import_command: tuple[str, ...]
    default_registry: str
    scratch: str
    fallback: bool
    converter: str
    converter_user: str
    converter_scratch: str
    converter_registries: tuple[str, ...]
    converter_conversions: int
    converter_waiting: int
    converter_largest_bytes: int


def load(path: str) -> Config:
    """The file, or the defaults if it is not there."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MOST_BYTES)
    except FileNotFoundError:
        text = ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"the configuration {path} cannot be read: {error}") from error
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#", ";"))
    try:
        parser.read_string(text, source=path)
    except configparser.Error as error:
        raise BadRequest(f"{path} is not an INI file: {' '.join(str(error).split())}") from error
    strangers = [name for name in parser.sections() if name != SECTION]
    if strangers:
        raise BadRequest(f"{path} has a section [{strangers[0]}]: all options are in [{SECTION}]")
    given = dict(parser.items(SECTION)) if parser.has_section(SECTION) else {}
    for name in given:
        if name not in OPTIONS:
            raise BadRequest(f"{path} has an option {name!r} that does not exist: use {', '.join(OPTIONS)}")
    texts = {name: given.get(name, default).strip() for name, (default, _) in OPTIONS.items()}
    try:
        return _config(texts)
    except (ValueError, BadRequest) as error:
        raise BadRequest(f"{path}: {error}") from error


def _config(texts: dict[str, str]) -> Config:
    command = tuple(shlex.split(texts["import_command"]))
    if not command or not any("{output}" in each for each in command) or "{uri}" not in command:
        raise BadRequest("import_command needs {uri} as a word and {output}: see docs/howto/tools.md")
    for name in ("socket", "scratch", "converter", "converter_scratch"):
        if texts[name] and not texts[name].startswith(("/", "{runtime}/")):
            raise BadRequest(f"{name} must be an absolute path, not {texts[name]!r}")
    return Config(
        socket=texts["socket"],
        lease_s=_above_0("lease", read_span(texts["lease"])),
        patience_s=_above_0("patience", read_span(texts["patience"])),
        import_command=command,
        default_registry=texts["default_registry"],
        scratch=texts["scratch"],
        fallback=_truth("fallback", texts["fallback"]),
        converter=texts["converter"],
        converter_user=texts["converter_user"],
        converter_scratch=texts["converter_scratch"],
        converter_registries=tuple(texts["converter_registries"].split()),
        converter_conversions=_above_0("converter_conversions", int(texts["converter_conversions"])),
        converter_waiting=_above_0("converter_waiting", int(texts["converter_waiting"])),
        converter_largest_bytes=_above_0("converter_largest", read_size(texts["converter_largest"])),
    )


def path_of_config(program: str) -> str:
    """The file beside the program if there is one, else the usual one; the environment has no say."""
    beside = os.path.join(os.path.dirname(program), "pyxis.conf")
    return beside if os.path.exists(beside) else "/etc/outrider/pyxis.conf"


def _truth(name: str, text: str) -> bool:
    if text not in ("yes", "no"):
        raise BadRequest(f"{name} is yes or no, not {text!r}")
    return text == "yes"


def _above_0(name: str, value: int) -> int:
    if value <= 0:
        raise BadRequest(f"{name} must be above 0")
    return value
