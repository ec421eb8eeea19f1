#!/usr/bin/python3 -ISBWignore
"""Grid Engine's submit filter: a persistent job submission verifier of the server.

It reads what a job says of its image (`-ac OUTRIDER=…` or `-v OUTRIDER=…`), refuses what cannot be meant, and
holds the job until the image is where it will run; in queues of which Outrider starts all jobs, others, too.
It decides from the job and three small files, and asks nobody: what hangs costs the qmaster nothing.

Nothing is written that was not checked before: Grid Engine rejects a job for a line that it does not
understand, and takes the rest of the answer for the verdict on the next job. It copies line breaks of users'
options, so that a line BEGIN or START may be a user's: the BEGIN that asks for a verdict is the one after
which nothing follows. A fault of ours refuses jobs that name an image and lets all others pass.
"""

import base64
import hashlib
import hmac
import json
import mmap
import os
import pwd
import re
import select
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import outrider_jsv_machines as machines
import outrider_jsv_options as options
from outrider_jsv_lines import MOST_KEPT_BYTES, TOO_LONG, Lines

CONFIG, QUEUES = "/etc/outrider/jsv.json", "/etc/outrider/queues"
OURS_TO_START = "outrider starts"
WAKE = "/run/outrider/wake"
"""Opened and closed when a job is held: the service hears of that, and looks for the job."""
METADATA, HELD, TICKET, MACHINE = "OUTRIDER", "OUTRIDER_HELD", "OUTRIDER_TICKET", "OUTRIDER_MACHINE"
HOLD, WANTED, ENCODED = "PARAM h u", "OUTRIDER_IMAGE_WANTED", "base64:"
MARKED = "ENV ADD OUTRIDER_RESERVED 1"
"""For jobs in any advance reservation: the starter on a job's other nodes asks for an image by it."""
NONE = "none"
"""The ticket of a managed job that has none of ours: it says that this filter has seen it."""
# The lines that a verdict depends on; of all others nothing is kept, however long they are.
HEARD = re.compile(
    rb"PARAM (?:ac|ar|b|ckpt|cwd|h|notify|q_hard|l_hard|global_l_hard|pe_name|USER|JOB_ID|t_min|t_max) "
    rb"|ENV ADD OUTRIDER(?:_TICKET|_IMAGE_WANTED|_MACHINE|_OPTIONS)? "
)
OF_RESERVATIONS = ("outrider_reservation", "orsv")
"""The request without which the queue of Outrider's reservations takes no job, and its short name."""
CONTEXT_LINE, WELCOME = b"PARAM ac ", b"SEND ENV\nSTARTED\n"
OPTION_LINES = (b"PARAM ", b"ENV ADD ", b"BEGIN")
QUIET_S = 0.002
"""For how long nothing follows a BEGIN that asks for a verdict. Grid Engine looks for that every 10 ms."""
ACCEPTED, READ_BYTES = ["RESULT STATE ACCEPT"], 65536
MOST_ANSWER_BYTES = 8000
"""Of a line: Grid Engine reads it into 10000 bytes, and does not count."""
MOST_LINES, MOST_DEATHS = 64, 100
MOST_METADATA_CHARACTERS = 4000
MOST_CODED_CHARACTERS = 6 * MOST_METADATA_CHARACTERS
"""Four bytes a character, and four letters for three of these."""
MOST_FILE_BYTES, MOST_USERS, TICKET_S = 4 << 20, 10000, 30 * 86400

# What may stand in an answer, one pattern a kind of line; names and values of ours only.
LINES = re.compile(
    r"PARAM ac [^\x00-\x1f\x7f]+"
    r"|PARAM h u|PARAM r y|PARAM (?:global_)?l_hard [^\x00-\x1f\x7f]+|PARAM ckpt outrider_machine"
    r"|ENV ADD OUTRIDER_MACHINE run=vm[a-zA-Z0-9.,=_-]{1,100}|ENV DEL OUTRIDER_MACHINE"
    r"|ENV ADD OUTRIDER_OPTIONS [0-9,]{1,100}|ENV DEL OUTRIDER_OPTIONS"
    r"|ENV ADD OUTRIDER_TICKET [0-9a-zA-Z._-]{1,300}"
    r"|ENV DEL OUTRIDER_TICKET|ENV ADD OUTRIDER_RESERVED 1"
    r"|RESULT STATE (?:ACCEPT|CORRECT|REJECT [ -~]{1,400})"
)
VALUES = {
    "image": (re.compile(r"[^\s\x00-\x1f\x7f,]{1,2000}"), "an address or a name, without blanks and commas"),
    "digest": (re.compile(r"(?:sha256:)?[0-9a-f]{64}"), "sha256: and 64 hexadecimal digits in lower case"),
    "size": (re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,3})?\s?[kKMGTP]?i?B?"), "bytes, or a size like 2GiB"),
    "format": (re.compile(r"[a-z0-9+_-]{1,32}"), "qcow2, raw, squashfs, sif, bundle, file or layers"),
    "private": (re.compile(r"true|false|yes|no"), "true or false"),
    "name": (re.compile(r"[^\x00-\x1f\x7f]{1,200}"), "up to 200 characters on one line"),
    "preemptible": (re.compile(r"requeue|suspend|no"), "requeue, suspend or no"),
    "run": (re.compile(r"vm"), "vm, or leave it out"),
    "finish-by": (re.compile(r"[0-9A-Za-z:+-]{1,32}"), "a time like 2026-01-31T14:00:00Z, 18:00 or now+3h"),
    "value": (re.compile(r"[0-9.]{1,13}"), "a number, like 12.5"),
    "boot": (re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}"), "the name of a kernel of the site's, or disk"),
}
CONTEXT = re.compile(r"[A-Za-z_]\w*(?:=[^,\x00-\x1f\x7f]*)?(?:,[A-Za-z_]\w*(?:=[^,\x00-\x1f\x7f]*)?)*")
OURS = ("USER", "JOB_ID")
NUMBER = re.compile(r"[0-9]{1,10}")


class Mistake(Exception):
    """What is wrong with a job, and what its user can do about it."""


class Files:
    """A file of JSON that is read again when it changes."""

    def __init__(self, path):
        self.path, self._stamp, self._found = path, None, {}

    def read(self):
        """What it says; nothing, if it is not there. A broken one is a mistake that names it."""
        try:
            status = os.stat(self.path)
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if stamp != self._stamp:
                with open(self.path, "rb") as file:
                    found = json.loads(file.read(MOST_FILE_BYTES))
                if not isinstance(found, dict):
                    raise ValueError("it is not an object")
                self._found, self._stamp = found, stamp
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise Mistake(f"the submit filter cannot read {self.path}: tell an administrator") from error
        return self._found


class Site:
    """What an administrator has set, the site's key, and who may use which image."""

    def __init__(self, path):
        self._config, self.queues_file = Files(path), Files(QUEUES)
        self._images, self._uids = None, {}

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

    def queues(self):
        """Those of which Outrider starts all jobs; `*` is for jobs that name none."""
        try:
            return self.queues_file.read().get(OURS_TO_START, [])
        except Mistake:
            return []

    def key(self):
        try:
            with open(self.get("key", "") or os.devnull, "rb") as file:
                lines = [line.strip() for line in file.read(4096).splitlines()]
        except OSError:
            return None
        return next((line for line in lines if len(line) >= 16), None)

    def wake(self):
        """Let the service look at once. Nothing is read or written, and nobody is waited for."""
        try:
            path = self.get("wake", WAKE)
            if path:
                os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY))
        except (OSError, ValueError, Mistake):
            """It looks every few seconds anyhow."""

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
    if "\n" in text or re.match(r"(?:{}):\s".format("|".join(VALUES)), text):
        pairs = [line.partition(":") for line in text.splitlines() if line.strip()]
    elif re.match(r"[A-Za-z_-]{1,32}=", text):
        pairs = [part.partition("=") for part in text.split(";") if part.strip()]
    else:
        pairs = [("image", ":", text)]
    found, ways = {}, []
    for key, sign, value in pairs:
        key, value = key.strip(), value.strip()
        if sign and key == "option":
            ways.append(value)
            continue
        if sign and key in options.REFUSED:
            raise Mistake(options.REFUSED[key])
        if not sign or key not in VALUES:
            raise Mistake(f"{key[:40]!r} is not a key of its metadata: use {', '.join(VALUES)}, option")
        if key in found:
            raise Mistake(f"{key} is named twice in its metadata")
        if VALUES[key][0].fullmatch(value) is None:
            raise Mistake(f"{value[:60]!r} cannot be its {key}: write {VALUES[key][1]}")
        found[key] = value
    if "image" not in found:
        raise Mistake("its metadata names no image: write -ac OUTRIDER=image=ADDRESS")
    wrong = machines.contradiction(found) or options.fault(ways, found)
    if wrong:
        raise Mistake(wrong)
    return found, ways


def decoded(word):
    if len(word) > MOST_CODED_CHARACTERS:
        raise Mistake(f"its metadata has more than {MOST_METADATA_CHARACTERS} characters")
    if not word.startswith(ENCODED):
        return word
    try:
        return base64.b64decode(word[len(ENCODED) :], altchars=b"-_", validate=True).decode()
    except ValueError as error:
        raise Mistake("its metadata is not base64: write it plainly, or use outrider submit") from error


def encoded(text):
    return ENCODED + base64.urlsafe_b64encode(text.encode()).decode()


def ticket(key, job, uid, digest, expires_s):
    text = f"1.{job}.{uid}.{digest}.{expires_s}"
    return text + "." + hmac.new(key, b"outrider-job|" + text.encode(), hashlib.sha256).hexdigest()


class Job:
    """A job as the qmaster describes it, and the answer to it."""

    def __init__(self):
        self.parameters, self.environment = {}, {}

    def note(self, line):
        """A line of the qmaster's: PARAM name value, or ENV ADD name value."""
        if TOO_LONG in line:
            raise Mistake(f"its -ac and -v OUTRIDER have more than {MOST_KEPT_BYTES} bytes: shorten them")
        word, _, rest = line.partition(" ")
        name, _, value = rest.partition(" ")
        if word == "PARAM" and name in OURS:
            # They come before all that a user could write a second one into.
            self.parameters.setdefault(name, value)
        elif word == "PARAM":
            self.parameters[name] = value
        elif word == "ENV":
            name, _, value = value.partition(" ")
            if name.startswith(METADATA):
                self.environment[name] = value

    def metadata(self):
        """The text, and whether it stands in the context, where the service looks for it, on one line."""
        words = reversed(self.parameters.get("ac", "").split(","))
        context = dict(word.partition("=")[::2] for word in words)
        if METADATA in context:
            return decoded(context[METADATA]), "\n" not in context[METADATA]
        value = self.environment.get(METADATA)
        if value is None:  # what all of a user's jobs inherit counts where a job itself says nothing
            value = context.get(WANTED) or self.environment.get(WANTED, "").strip()
        if not value and METADATA not in self.environment:
            return None, False
        # The protocol writes a line break of a variable as these two letters.
        return decoded(value[: 2 * MOST_CODED_CHARACTERS].replace("\\n", "\n")), False

    def answer(self, site, now_s):
        text, is_in_context = self.metadata()
        if text is None:  # a job of ours hands its ticket on to jobs that it submits with -V
            lines = ["ENV DEL " + name for name in (TICKET, MACHINE) if name in self.environment]
            lines += [MARKED] * self._is_in_reservation()
            if self._waits(site):
                lines += [HOLD, self._with_context([HELD + "=1"])]
            return [*lines, "RESULT STATE CORRECT"] if lines else ACCEPTED
        found, ways = parsed(text)
        lines = options.changes(ways, self.environment)
        meant = options.with_instant(text, now_s)
        added = [] if is_in_context and meant == text else [METADATA + "=" + encoded(meant)]
        is_reserved = self._is_in_reservation()
        if is_reserved and not self._asks_for_ours():
            raise Mistake(
                f"no image comes to the nodes of reservation {self.parameters['ar'][:10]}, if it is not "
                f"Outrider's: leave out -ar; if it is, add -l {OF_RESERVATIONS[0]}=TRUE"
            )
        if ways and is_reserved:
            raise Mistake("a job in a reservation has nodes enough: leave option out")
        lines += self._in_machine(site, found)
        if found.get("preemptible") in ("requeue", "suspend"):
            lines.append(self._with_rerun(is_reserved))
        made = self._ticket(site, "" if options.has_images(ways) else found.get("digest", ""), now_s)
        waits = not (is_reserved and made)  # without its ticket it would start there, and fail
        if waits and site.get("hold", True) and not self.parameters.get("h", "").strip("n"):
            # Whatever is written here Grid Engine makes a user's hold, so that it is marked as ours.
            added.append(HELD + "=1")
            lines.append(HOLD)
        if added:
            lines.append(self._with_context(added))
        return [*lines, f"ENV ADD {TICKET} {made or NONE}", "RESULT STATE CORRECT"]

    def _waits(self, site):  # for its turn, or in a reservation of Outrider's for its ticket
        named = self.parameters.get("q_hard", "").split(",")[0].partition("@")[0] or "*"
        lacks_ticket = self._asks_for_ours() and site.get("hold", True)
        waits = lacks_ticket if self._is_in_reservation() else named in site.queues()
        return waits and not self.parameters.get("h", "").strip("n")

    def _in_machine(self, site, found):
        if found.get("run") != "vm":
            return ["ENV DEL " + MACHINE] * (MACHINE in self.environment)
        if not site.get("machines", True):
            raise Mistake("this site has no virtual machines for jobs: leave run=vm out")
        keys = ("machine_environments", "cluster_environments")
        one, several = ([str(each) for each in site.get(key, [])] for key in keys)
        if trouble := machines.obstacle(found, self.parameters, one, several):
            raise Mistake(trouble)
        lines = machines.changes(found, self.parameters, several)
        if any(len(line.encode("utf-8", "surrogateescape")) > MOST_ANSWER_BYTES for line in lines):
            raise Mistake(f"its requests have more than {MOST_ANSWER_BYTES} bytes")
        return lines

    def _with_rerun(self, is_reserved):
        if is_reserved or self.parameters.get("t_max", "1") != "1":  # -r n is as if nothing were said
            raise Mistake("an array, or a job in a reservation, cannot be requeued: leave out preemptible")
        return "PARAM r y"

    def _is_in_reservation(self):
        return self.parameters.get("ar", "0") not in ("", "0")

    def _asks_for_ours(self):  # if so it can run in a reservation of Outrider's, and in no other one
        asked = ",".join(self.parameters.get(name, "") for name in ("l_hard", "global_l_hard"))
        return any(word.partition("=")[0] in OF_RESERVATIONS for word in asked.split(","))

    def _with_context(self, added):
        before = self.parameters.get("ac", "")
        names = {word.partition("=")[0] for word in added}
        before = ",".join(word for word in before.split(",") if word.partition("=")[0] not in names)
        line = "PARAM ac " + ",".join(filter(None, [before, *added]))
        is_short = len(line) <= MOST_ANSWER_BYTES
        if is_short and before and CONTEXT.fullmatch(before) is None:
            raise Mistake("its context cannot be added to: use letters, digits and _ in names, and no commas")
        if not is_short or len(line.encode("utf-8", "surrogateescape")) > MOST_ANSWER_BYTES:
            raise Mistake(f"its context has more than {MOST_ANSWER_BYTES} bytes")
        return line

    def _ticket(self, site, digest, now_s):
        """A ticket for an image that its user may have, known by digest; others get theirs later, or none."""
        number, user = self.parameters.get("JOB_ID", ""), self.parameters.get("USER", "")
        digest = digest[-64:]
        key = site.key() if digest and NUMBER.fullmatch(number) else None
        if key is None:
            return None
        try:
            uid = site.uid(user)
        except KeyError:
            return None
        if not site.may_use(digest, uid):
            return None
        is_array = self.parameters.get("t_max", "1") != "1" or self.parameters.get("t_min", "1") != "1"
        return ticket(key, "-" if is_array else number, uid, digest, now_s + TICKET_S)


def verdict(lines, site, now_s):
    """The whole answer to a job, checked line by line; never an exception."""
    is_ours = any(METADATA in line or TOO_LONG in line or line.startswith("PARAM ar ") for line in lines)
    if not is_ours and not site.queues():
        return ACCEPTED
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
        if not any(re.search(r"\bOUTRIDER(?:_IMAGE_WANTED)?[= ]", line) for line in lines):
            answer = ACCEPTED
        else:
            answer = [_refusal("outrider: the submit filter has a fault: tell an administrator")]
    return answer


def _refusal(text):
    plain = "".join(letter if " " <= letter <= "~" else "?" for letter in text)
    return "RESULT STATE REJECT " + plain[:400]


class Conversation:
    """The protocol: which lines are a job's, and whether its verdict is asked for."""

    def __init__(self, site, now_s):
        self._site, self._now_s = site, now_s
        self._lines, self._bytes = None, 0
        self._is_context = self._is_answered = False
        self.is_asked = self.is_over = False

    @property
    def is_in_job(self):
        return self._lines is not None

    def hear(self, line):
        """A line of the qmaster's, or a part of one that has a user's line break."""
        if self._lines is None:
            self.is_over = line == b"QUIT"
            # What else follows a verdict belongs to the job that had it: it was asked for by that job's user.
            self._is_answered = line != b"START"
            self._lines, self._bytes = [], 0
        self.is_asked = line == b"BEGIN"
        is_heard = HEARD.match(line) is not None
        if is_heard or self._is_context:
            self._note(line, is_heard)

    def _note(self, line, is_heard):
        if is_heard and len(self._lines) < MOST_LINES:
            self._is_context = line.startswith(CONTEXT_LINE)
            self._lines.append([])
            self._keep(line)
        elif line.startswith(OPTION_LINES):
            self._is_context = False
        elif self._is_context and self._bytes <= MOST_KEPT_BYTES:
            self._keep(line)

    def _keep(self, part):
        """Adds it to the last line, as far as there is room for the job's."""
        left = MOST_KEPT_BYTES - self._bytes
        if left >= 0:
            self._lines[-1].append(part if len(part) <= left else TOO_LONG.encode())
        self._bytes += len(part) + 1

    def answer(self):
        """The verdict's lines, none if it was given before; the next START begins another job."""
        kept, self._lines = self._lines, None
        self.is_asked = self._is_context = False
        lines = [b"\n".join(parts).decode("utf-8", "surrogateescape") for parts in kept]
        return [] if self._is_answered else verdict(lines, self._site, self._now_s())

    def wake(self):
        """A job that is held is about to be there."""
        self._site.wake()


NEW, WRITING, WELCOMED, IN_JOB = range(4)


def talk(source, target, conversation, state):
    """Until the qmaster ends it; each answer is one write, and says STARTED to the next job, too.

    Grid Engine looks for an answer at once and then after 10 ms, so that a STARTED which is there before
    its START saves each job as much. `state` is shared with who comes after this process.
    """
    if state[0] not in (NEW, WELCOMED):
        return 1
    if state[0] == NEW:
        write(target, WELCOME, state)
    lines = Lines()
    while True:
        data = os.read(source, READ_BYTES)
        if not data:
            return 0
        for line in lines.of(data):
            conversation.hear(line)
            if conversation.is_over:
                return 0
        if conversation.is_in_job:
            state[0] = IN_JOB
        if conversation.is_asked and lines.is_between and not select.select([source], [], [], QUIET_S)[0]:
            said = conversation.answer()
            answer = "".join(line + "\n" for line in said)
            write(target, answer.encode("utf-8", "surrogateescape") + (WELCOME if answer else b""), state)
            if HOLD in said:
                conversation.wake()


def write(target, data, state):
    state[0] = WRITING
    while data:
        data = data[os.write(target, data) :]
    state[0] = WELCOMED


def main():
    # A word on stderr would reject a job, and a closed stderr would delay the verdicts on all of them.
    os.dup(2)
    os.dup2(os.open("/dev/null", os.O_WRONLY), 2)
    path = os.environ.get("OUTRIDER_JSV_CONFIG", CONFIG) if os.geteuid() else CONFIG
    state = mmap.mmap(-1, 1)
    for _ in range(MOST_DEATHS):
        worker = os.fork()
        if worker == 0:
            try:
                os._exit(talk(0, 1, Conversation(Site(path), lambda: int(time.time())), state))  # noqa: TID251
            finally:
                os._exit(1)
        _, status = os.waitpid(worker, 0)
        # The shell above us would say on stderr that we were killed. The next worker reads on where
        # the last one stood; had that begun with a job, all ends here, and with it the pipe.
        if not os.WIFSIGNALED(status):
            return os.WEXITSTATUS(status)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
