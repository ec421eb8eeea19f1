"""Reading and writing the Standard Workload Format."""

import gzip
import io
from pathlib import Path

import pytest

from outrider.sim.workload.formats.files import BLOCK_BYTES
from outrider.sim.workload.formats.swf import COLUMNS, SwfLog, read_log, write_log
from outrider.sim.workload.trace import WorkloadError
from tests.repository import ROOT

EXCERPT = ROOT / "tests" / "data" / "datastar-excerpt.swf"
GOOD = "7 100 5 60 8 0.38 -1 16 600 -1 1 3 4 5 2 1 -1 -1"


def log_file(folder: Path, *lines: str) -> Path:
    path = folder / "log.swf"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_every_column_holds_the_field_that_its_name_says(tmp_path: Path) -> None:
    log = read_log(log_file(tmp_path, GOOD))

    assert {name: getattr(log, name) for name in COLUMNS} == {
        "job": [7],
        "submit_s": [100],
        "wait_s": [5],
        "run_s": [60],
        "processors": [8],
        "requested_processors": [16],
        "requested_s": [600],
        "status": [1],
        "user": [3],
        "group": [4],
        "executable": [5],
        "queue": [2],
    }


def test_unknown_allocation_falls_back_to_the_request(tmp_path: Path) -> None:
    log = read_log(log_file(tmp_path, GOOD.replace(" 8 ", " -1 ")))

    assert log.processors == [16]


def test_header_is_kept_and_its_numbers_are_understood() -> None:
    log = read_log(EXCERPT)

    assert len(log.header) == 62
    assert "Regents" in "".join(log.header)
    assert (log.max_processors, log.unix_start_s) == (1664, 1078605840)
    assert log.header_text("Installation") == "SDSC DataStar"


def test_missing_header_fact_is_none(tmp_path: Path) -> None:
    log = read_log(log_file(tmp_path, "; MaxProcs: many", GOOD))

    assert log.max_processors is None


def test_packed_log_reads_like_the_plain_one_whatever_its_name(tmp_path: Path) -> None:
    packed = tmp_path / "log.swf"
    packed.write_bytes(gzip.compress(EXCERPT.read_bytes()))

    assert read_log(packed) == read_log(EXCERPT)


def test_limit_reads_the_first_jobs_and_nothing_behind_them(tmp_path: Path) -> None:
    lines = [GOOD.replace("7", str(number), 1) for number in range(5)]
    path = log_file(tmp_path, *lines[:2], "", lines[2], lines[3], "broken")

    assert read_log(path, limit=4).job == [0, 1, 2, 3]
    assert read_log(path, limit=0).job == []


def test_log_of_many_blocks_keeps_every_line_in_order(tmp_path: Path) -> None:
    count = 3 * BLOCK_BYTES // len(GOOD)
    path = log_file(tmp_path, *(GOOD.replace("7", str(job), 1) for job in range(count)))

    assert read_log(path).job == list(range(count))


def test_last_line_needs_no_newline_and_windows_ends_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_bytes(b"; Version: 2\r\n" + GOOD.encode() + b"\r\n\r\n" + GOOD.encode())

    log = read_log(path)

    assert log.job == [7, 7]
    assert log.header == ("; Version: 2",)


def test_whole_float_is_a_number_and_a_broken_one_is_refused(tmp_path: Path) -> None:
    whole = log_file(tmp_path, GOOD.replace(" 60 ", " 60.00 "))
    assert read_log(whole).run_s == [60]

    broken = log_file(tmp_path, GOOD.replace(" 60 ", " 60.5 "))
    with pytest.raises(WorkloadError, match=r"line 1: field 4 \(run time\) is '60.5'.*round it"):
        read_log(broken)


@pytest.mark.parametrize("word", ["1_0", "ten", "nan", "0x10", "1e3", "²", "."])
def test_what_is_no_number_is_named_with_line_and_field(tmp_path: Path, word: str) -> None:
    path = log_file(tmp_path, "; a header", GOOD, "", GOOD.replace(" 60 ", f" {word} "))

    with pytest.raises(WorkloadError, match=r"log\.swf, line 4: field 4 \(run time\)"):
        read_log(path)


def test_line_number_counts_the_blocks_before(tmp_path: Path) -> None:
    count = 2 * BLOCK_BYTES // len(GOOD)
    path = log_file(tmp_path, *[GOOD] * count, "1 2 3")

    with pytest.raises(WorkloadError, match=rf"line {count + 1}: 3 fields.*has 18"):
        read_log(path)


def test_field_too_few_and_field_too_many_do_not_make_two_good_lines(
    tmp_path: Path,
) -> None:
    short = GOOD.rsplit(" ", 1)[0]
    path = log_file(tmp_path, GOOD, short, f"{GOOD} -1")

    with pytest.raises(WorkloadError, match="line 2: 17 fields"):
        read_log(path)


def test_cut_archive_is_an_error_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "log.swf.gz"
    path.write_bytes(gzip.compress(EXCERPT.read_bytes())[:-200])

    with pytest.raises(WorkloadError, match=r"log\.swf\.gz: the gzip data end too early"):
        read_log(path)


def test_damaged_archive_is_an_error_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "log.swf.gz"
    data = bytearray(gzip.compress(EXCERPT.read_bytes()))
    data[len(data) // 2 : len(data) // 2 + 20] = bytes(20)
    path.write_bytes(data)

    with pytest.raises(WorkloadError, match=r"log\.swf\.gz: the gzip data are damaged"):
        read_log(path)


def test_missing_file_is_an_error_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"nowhere\.swf: cannot be read"):
        read_log(tmp_path / "nowhere.swf")


@pytest.mark.parametrize("name", ["copy.swf", "copy.swf.gz"])
def test_written_log_reads_back_equal(tmp_path: Path, name: str) -> None:
    log = read_log(EXCERPT)

    write_log(tmp_path / name, log)

    assert read_log(tmp_path / name) == log
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_log_is_written_with_eighteen_fields_to_a_stream() -> None:
    stream = io.StringIO()
    one = {name: [number] for number, name in enumerate(COLUMNS, 1)}

    write_log(stream, SwfLog(header=("; Version: 2.2",), **one))

    assert stream.getvalue() == ("; Version: 2.2\n1 2 3 4 5 -1 -1 6 7 -1 8 9 10 11 12 -1 -1 -1\n")


def test_header_bytes_that_are_not_utf8_survive_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_bytes(b"; Acknowledge: \xc5ke\n")

    write_log(tmp_path / "copy.swf", read_log(path))

    assert (tmp_path / "copy.swf").read_bytes() == path.read_bytes()


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="column submit_s has 0 values where job has 1"):
        SwfLog(job=[1])
