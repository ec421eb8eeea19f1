#!/usr/bin/python3 -ISBWignore
"""Grid Engine's submit filter: a persistent job submission verifier of the server.

It reads what a job says of its image (`-ac OUTRIDER=…` or `-v OUTRIDER=…`), refuses what cannot
be meant, and holds the job until the image is where it will run. It decides from the job and
two small files, and asks nobody: a transfer or a service that hangs costs the qmaster nothing.

Nothing is written that was not checked before. Grid Engine rejects a job for a line that it does not
understand, leaves the rest of the answer in the pipe and takes it for the verdict on the next
job: so that a START before the last job's BEGIN ends this process, and with it the pipe.
A fault of ours refuses jobs that name an image and lets all others pass.
"""

import base64
import hashlib
import hmac
import json
import os
import pwd
import re
import time

CONFIG = "/etc/outrider/jsv.json"
METADATA = "OUTRIDER"
HELD = "OUTRIDER_HELD"
TICKET = "OUTRIDER_TICKET"
ENCODED = "base64:"
HEARD = re.compile(
    rb"START$|BEGIN$|QUIT$|PARAM (?:ac|ar|h|USER|JOB_ID|N|t_min|t_max) |ENV ADD OUTRIDER(?:_TICKET)? "
)
# Each job has it, and few things that matter come after it.
LATE = "PARAM N "
WELCOME = b"SEND ENV\nSTARTED\n"
ACCEPTED = b"RESULT STATE ACCEPT\n"
TOO_LONG = "\x00too long"
# The parameters that a verdict depends on; of all others nothing is kept, however long they are.
NEEDED = re.compile(r"PARAM (?:ac|ar|h|USER|JOB_ID|t_min|t_max) |ENV ADD OUTRIDER(?:_TICKET)? ")
KEYS = ("image", "digest", "size", "format", "private", "name")
MOST_LINE_BYTES = 1 << 20
MOST_LINES = 64
MOST_DEATHS = 100
MOST_METADATA_CHARACTERS = 4000
MOST_FILE_BYTES = 4 << 20
MOST_USERS = 10000
TICKET_S = 30 * 86400

# What may stand in an answer, one pattern a kind of line; names and values of ours only.
LINES = re.compile(
    r"PARAM ac [^\x00-\x1f\x7f]{1,16000}"
    r"|PARAM h u"
    r"|ENV (?:ADD|MOD) OUTRIDER_TICKET [0-9a-zA-Z._-]{1,300}"
    r"|RESULT STATE (?:ACCEPT|CORRECT|REJECT [ -~]{1,400})"
)
VALUES = {
    "image": re.compile(r"[^\s\x00-\x1f\x7f,]{1,2000}"),
    "digest": re.compile(r"(?:sha256:)?[0-9a-f]{64}"),
    "size": re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,3})?\s?(?:[kKMGTP]?i?B?)"),
    "format": re.compile(r"[a-z0-9+_-]{1,32}"),
    "private": re.compile(r"true|false|yes|no"),
    "name": re.compile(r"[^\x00-\x1f\x7f]{1,200}"),
}
CONTEXT = re.compile(r"[A-Za-z_]\w*(?:=[^,\x00-\x1f\x7f]*)?(?:,[A-Za-z_]\w*(?:=[^,\x00-\x1f\x7f]*)?)*")
NUMBER = re.compile(r"[0-9]{1,10}")


class Mistake(Exception):
    """What is wrong with a job, and what its user can do about it."""


class Files:
    """A file of JSON that is read again when it changes."""

    def __init__(self, path):
        self.path = path
        self._stamp = None
        self._found = {}

    def read(self):
        """What it says; nothing, if it is not there. A broken one is a mistake that names it."""
        try:
            status = os.stat(self.path)
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if stamp != self._stamp:
                with open(self.path, "rb") as file:
                    found = json.loads(file.read(MOST_FILE_BYTES))
                if not isinstance(found, dict):
                    raise ValueError("it is no object")
                self._found, self._stamp = found, stamp
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise Mistake(f"the submit filter cannot read {self.path}: tell an administrator") from error
        return self._found


class Site:
    """What an administrator has set, the site's key, and who may use which image."""

    def __init__(self, path):
        self._config = Files(path)
        self._images = None
        self._uids = {}

    def get(self, name, default):
        found = self._config.read().get(name, default)
        if not isinstance(found, type(default)):
            raise Mistake(f"{name} is wrong in {self._config.path}: tell an administrator")
        return found

    def may_use(self, digest, uid):
        """Whether the service lets this user have that image: only then a ticket is made here."""
        path = self.get("images", "")
        if not path:
            return False
        if self._images is None or self._images.path != path:
            self._images = Files(path)
        allowed = self._images.read().get(digest)
        return allowed == "*" or (isinstance(allowed, list) and uid in allowed)

    def key(self):
        path = self.get("key", "")
        if not path:
            return None
        try:
            with open(path, "rb") as file:
                lines = [line.strip() for line in file.read(4096).splitlines()]
        except OSError:
            return None
        return next((line for line in lines if len(line) >= 16), None)

    def uid(self, user):
        if user not in self._uids:
            if len(self._uids) >= MOST_USERS:
                self._uids.clear()
            self._uids[user] = pwd.getpwnam(user).pw_uid
        return self._uids[user]


def parsed(text):
    """Metadata as a dictionary: lines `key: value`, or `key=value;…`, or an address alone."""
    if len(text) > MOST_METADATA_CHARACTERS:
        raise Mistake(f"its metadata has more than {MOST_METADATA_CHARACTERS} characters")
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise Mistake("its metadata is not UTF-8: write it in base64, or use outrider submit")
    if "\n" in text or re.match(r"(?:{}):\s".format("|".join(KEYS)), text):
        pairs = [line.partition(":") for line in text.splitlines() if line.strip()]
    elif re.match(r"(?:{})=".format("|".join(KEYS)), text):
        pairs = [part.partition("=") for part in text.split(";") if part.strip()]
    else:
        pairs = [("image", ":", text)]
    found = {}
    for key, sign, value in pairs:
        key, value = key.strip(), value.strip()
        if not sign or key not in KEYS:
            raise Mistake(f"{key[:40]!r} is no key of its metadata: use {', '.join(KEYS)}")
        if key in found:
            raise Mistake(f"{key} is named twice in its metadata")
        if VALUES[key].fullmatch(value) is None:
            raise Mistake(f"{value[:60]!r} cannot be its {key}: see outrider help metadata")
        found[key] = value
    if "image" not in found:
        raise Mistake("its metadata names no image: write -ac OUTRIDER=image=ADDRESS")
    return found


def decoded(word):
    if not word.startswith(ENCODED):
        return word
    try:
        return base64.b64decode(word[len(ENCODED) :], altchars=b"-_", validate=True).decode()
    except ValueError as error:
        raise Mistake("its metadata is no base64: write it plainly, or use outrider submit") from error


def encoded(text):
    return ENCODED + base64.urlsafe_b64encode(text.encode()).decode()


def ticket(key, job, uid, digest, expires_s):
    text = f"1.{job}.{uid}.{digest}.{expires_s}"
    return text + "." + hmac.new(key, b"outrider-job|" + text.encode(), hashlib.sha256).hexdigest()


class Job:
    """A job as the qmaster describes it, and the answer to it."""

    def __init__(self):
        self.parameters = {}
        self.environment = {}

    def note(self, line):
        """A line of the qmaster's: PARAM name value, or ENV ADD name value."""
        if TOO_LONG in line:
            raise Mistake(f"one of its options has more than {MOST_LINE_BYTES} bytes")
        word, _, rest = line.partition(" ")
        name, _, value = rest.partition(" ")
        if word == "PARAM":
            self.parameters[name] = value
        elif word == "ENV":
            name, _, value = value.partition(" ")
            if name.startswith(METADATA):
                self.environment[name] = value

    def metadata(self):
        """The text and whether it stands in the context, where the service looks for it."""
        for word in self.parameters.get("ac", "").split(","):
            name, _, value = word.partition("=")
            if name == METADATA:
                return decoded(value), True
        value = self.environment.get(METADATA)
        if value is None:
            return None, False
        # The protocol writes a line break of a variable as these two letters.
        return decoded(value.replace("\\n", "\n")), False

    def answer(self, site, now_s):
        """The lines of the answer."""
        text, is_in_context = self.metadata()
        if text is None:
            return ["RESULT STATE ACCEPT"]
        found = parsed(text)
        added = [] if is_in_context else [METADATA + "=" + encoded(text)]
        lines = []
        # What belongs to a reservation has its image there when that begins.
        in_reservation = self.parameters.get("ar", "0") not in ("", "0")
        if not in_reservation and site.get("hold", True) and not self.parameters.get("h", "").strip("n"):
            # Whatever is written here Grid Engine makes a user's hold, so that it is marked as ours.
            added.append(HELD + "=1")
            lines.append("PARAM h u")
        if added:
            lines.append(self._with_context(added))
        lines += self._ticket(site, found.get("digest", ""), now_s)
        return [*lines, "RESULT STATE CORRECT"] if lines else ["RESULT STATE ACCEPT"]

    def _with_context(self, added):
        before = self.parameters.get("ac", "")
        if before and CONTEXT.fullmatch(before) is None:
            raise Mistake("its context cannot be added to: use letters, digits and _ in names, and no commas")
        return "PARAM ac " + ",".join(filter(None, [before, *added]))

    def _ticket(self, site, digest, now_s):
        """A ticket for an image that its user may have, known by digest; others get theirs later."""
        number, user = self.parameters.get("JOB_ID", ""), self.parameters.get("USER", "")
        digest = digest[-64:]
        key = site.key() if digest and NUMBER.fullmatch(number) else None
        if key is None:
            return []
        try:
            uid = site.uid(user)
        except KeyError:
            return []
        if not site.may_use(digest, uid):
            return []
        is_array = self.parameters.get("t_max", "1") != "1" or self.parameters.get("t_min", "1") != "1"
        made = ticket(key, "-" if is_array else number, uid, digest, now_s + TICKET_S)
        verb = "MOD" if TICKET in self.environment else "ADD"
        return [f"ENV {verb} {TICKET} {made}"]


def verdict(lines, site, now_s):
    """The whole answer to a job, checked line by line; never an exception."""
    if not any(METADATA in line for line in lines) and not any(TOO_LONG in line for line in lines):
        return ["RESULT STATE ACCEPT"]
    try:
        job = Job()
        for line in lines:
            job.note(line)
        answer = job.answer(site, now_s)
        wrong = [line for line in answer if LINES.fullmatch(line) is None]
        if wrong:
            raise Mistake("it cannot be corrected: write its metadata in base64, or use outrider submit")
    except Mistake as mistake:
        answer = [_refusal(f"outrider: {mistake}")]
    except Exception:  # noqa: BLE001 - a fault of ours: jobs that name no image are not our business
        if not any(METADATA + "=" in line or "ENV ADD OUTRIDER" in line for line in lines):
            answer = ["RESULT STATE ACCEPT"]
        else:
            answer = [_refusal("outrider: the submit filter has a fault: tell an administrator")]
    return answer


def _refusal(text):
    plain = "".join(letter if " " <= letter <= "~" else "?" for letter in text)
    return "RESULT STATE REJECT " + plain[:400]


class Conversation:
    """The protocol: what is answered to each line of the qmaster's."""

    def __init__(self, site, now_s):
        self._site = site
        self._now_s = now_s
        self._lines = None
        self._ready = None

    def quick(self, line):
        """The answer as it is written, where nothing is left to be decided; else None.

        Grid Engine looks for an answer at once, and then after 10 ms: being some microseconds late
        costs those, so that a job's verdict is found before its BEGIN.
        """
        if line == b"BEGIN":
            return self._ready
        return WELCOME if line == b"START" and self._lines is None else None

    def hear(self, line):
        """The answer's lines, maybe none; None when it is time to end."""
        if line == "BEGIN":
            if self._lines is None:
                return None
            self._prepare()
            answer, self._lines, self._ready = self._ready, None, None
            return answer.decode("utf-8", "surrogateescape").split("\n")[:-1]
        if line == "START":
            if self._lines is not None:
                return None
            self._lines, self._ready = [], ACCEPTED
            return WELCOME.decode().split("\n")[:-1]
        if line == "QUIT":
            return None
        if self._lines is None:
            return []
        if line.startswith(LATE):
            self._prepare()
        elif len(self._lines) < MOST_LINES and NEEDED.match(line):
            self._lines.append(line)
            is_plain = self._ready is ACCEPTED and METADATA not in line and TOO_LONG not in line
            self._ready = ACCEPTED if is_plain else None
        return []

    def _prepare(self):
        if self._ready is None:
            answer = verdict(self._lines, self._site, self._now_s())
            self._ready = ("\n".join(answer) + "\n").encode("utf-8", "surrogateescape")


def talk(source, target, conversation):
    """Until the qmaster ends it; each answer is one write, whole or not at all."""
    rest, is_cut = b"", False
    while True:
        data = os.read(source, 65536)
        if not data:
            return 0
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if is_cut:
                line, is_cut = line[:MOST_LINE_BYTES] + TOO_LONG.encode(), False
            written = conversation.quick(line)
            if written is not None:
                write(target, written)
            elif HEARD.match(line) is None:
                continue
            answer = conversation.hear(line.decode("utf-8", "surrogateescape"))
            if answer is None:
                return 1 if line != b"QUIT" else 0
            if answer and written is None:
                write(target, ("\n".join(answer) + "\n").encode("utf-8", "surrogateescape"))
        if len(rest) > MOST_LINE_BYTES:
            rest, is_cut = rest[:MOST_LINE_BYTES], True


def write(target, data):
    while data:
        data = data[os.write(target, data) :]


def main():
    # A word on stderr would reject a job, and a closed stderr would delay the verdicts on all of them.
    os.dup(2)
    os.dup2(os.open("/dev/null", os.O_WRONLY), 2)
    path = os.environ.get("OUTRIDER_JSV_CONFIG", CONFIG) if os.geteuid() else CONFIG
    for _ in range(MOST_DEATHS):
        worker = os.fork()
        if worker == 0:
            try:
                os._exit(talk(0, 1, Conversation(Site(path), lambda: int(time.time()))))  # noqa: TID251
            finally:
                os._exit(1)
        _, status = os.waitpid(worker, 0)
        # The shell above us would say on stderr that we were killed. The next worker reads on where
        # the last one stood; had that begun with a job, it ends at its BEGIN.
        if not os.WIFSIGNALED(status):
            return os.WEXITSTATUS(status)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
