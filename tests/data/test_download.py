"""Downloads against a local server that also breaks off, lies, forgets and refuses."""

import hashlib
import http.server
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time

import pytest

from pujax import locks
from pujax.data.readers import download, http_transfer
from tests.faults import windows

CONTENT = bytes(range(256)) * 200
SHA256 = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
MD5 = f"md5:{hashlib.md5(CONTENT).hexdigest()}"
HALF = len(CONTENT) // 2


class Server:
    """Serves CONTENT; each request is answered by the next of `answers`, the last one for ever."""

    def __init__(self):
        self.answers = ["good"]
        self.ranges = []  # the Range header of every request so far
        self.delay = 0.0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *args):
                pass

            def do_GET(self):  # noqa: N802 - the name is given by http.server
                outer.ranges.append(self.headers.get("Range"))
                answers = outer.answers
                answer = answers.pop(0) if len(answers) > 1 else answers[0]
                time.sleep(outer.delay)
                outer.reply(self, answer)

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}/folder/data.bin"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def reply(self, handler, answer):
        if isinstance(answer, int):
            handler.send_error(answer)
            return
        asked = handler.headers.get("Range")
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        if "ignores range" in answer:
            start = 0
        if start >= len(CONTENT):
            handler.send_error(416)
            return
        content = CONTENT[::-1] if "wrong" in answer else CONTENT
        body = content[start:]
        announced = len(body)
        if "breaks off" in answer:
            body = body[: len(body) // 2]
        if "announces too much" in answer:
            announced += 1000
        if "announces too little" in answer:
            announced = len(body) // 2
        if "sends too much" in answer:
            body += b"more"
            announced += 4
        handler.send_response(206 if start else 200)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        handler.send_header("Content-Length", str(announced))
        handler.end_headers()
        handler.wfile.write(body)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(http_transfer, "BACKOFF_SECONDS", 0.0)
    running = Server()
    yield running
    running.http.shutdown()
    running.http.server_close()


def fetch(server, folder, **changes):
    options = {"filename": "data.bin", "checksum": SHA256, "size": len(CONTENT), "timeout": 5.0}
    return download.fetch(server.url, directory=folder, **(options | changes))


def names(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("checksum", [SHA256, MD5])
@pytest.mark.parametrize("size", [len(CONTENT), None])
def test_a_download_is_complete_and_leaves_nothing_else(server, tmp_path, checksum, size):
    path = fetch(server, tmp_path / "new" / "folder", checksum=checksum, size=size)
    assert path == tmp_path / "new" / "folder" / "data.bin"
    assert path.read_bytes() == CONTENT
    assert names(path.parent) == ["data.bin"]


def test_a_verified_file_is_not_asked_for_again(server, tmp_path):
    (tmp_path / "data.bin").write_bytes(CONTENT)
    fetch(server, tmp_path)
    assert server.ranges == []


def test_a_damaged_file_under_the_final_name_is_replaced(server, tmp_path):
    (tmp_path / "data.bin").write_bytes(CONTENT[:-1] + b"x")
    assert fetch(server, tmp_path).read_bytes() == CONTENT


def test_a_transfer_that_breaks_off_is_resumed_where_it_stopped(server, tmp_path):
    server.answers = ["breaks off", "breaks off", "good"]
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={HALF}-", f"bytes={HALF + HALF // 2}-"]


def test_progress_renews_the_patience_with_a_server_that_breaks_off(server, tmp_path):
    server.answers = ["breaks off"] * 8 + ["good"]
    assert fetch(server, tmp_path, retries=0).read_bytes() == CONTENT


def test_a_later_call_resumes_what_an_earlier_one_left(server, tmp_path):
    server.answers = ["breaks off", 404]
    with pytest.raises(download.MissingDataError):
        fetch(server, tmp_path)
    assert names(tmp_path) == ["data.bin.part"]
    server.answers = ["good"]
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert server.ranges[-1] == f"bytes={HALF}-"
    assert names(tmp_path) == ["data.bin"]


def test_a_finished_part_needs_no_request(server, tmp_path):
    (tmp_path / "data.bin.part").write_bytes(CONTENT)
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert server.ranges == []


def test_a_server_that_ignores_ranges_is_read_from_the_start(server, tmp_path):
    server.answers = ["breaks off", "good, ignores range"]
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={HALF}-"]


def test_a_server_that_always_breaks_off_at_the_same_place_is_given_up(server, tmp_path):
    server.answers = ["breaks off, ignores range"]
    with pytest.raises(download.MissingDataError, match="broke after"):
        fetch(server, tmp_path, retries=2)
    assert len(server.ranges) == 4  # one that brought something, three without progress
    assert names(tmp_path) == ["data.bin.part"]


@pytest.mark.parametrize("size", [len(CONTENT), None])
def test_wrong_bytes_leave_no_file_at_all(server, tmp_path, size):
    server.answers = ["wrong"]
    with pytest.raises(download.MissingDataError, match="wrong checksum"):
        fetch(server, tmp_path, size=size)
    assert names(tmp_path) == []


@pytest.mark.parametrize("left", [b"rubbish", b"rubbish" * 20000, CONTENT[:-1] + b"x"])
def test_a_wrong_part_of_an_earlier_call_is_thrown_away_once(server, tmp_path, left):
    (tmp_path / "data.bin.part").write_bytes(left)
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert names(tmp_path) == ["data.bin"]


@pytest.mark.parametrize("size", [len(CONTENT), None])
def test_right_bytes_with_a_length_that_is_announced_too_long_are_accepted(server, tmp_path, size):
    server.answers = ["announces too much"]
    assert fetch(server, tmp_path, size=size).read_bytes() == CONTENT
    assert len(server.ranges) == 1


def test_a_length_that_is_announced_too_short_is_noticed(server, tmp_path):
    server.answers = ["announces too little, ignores range"]
    with pytest.raises(download.MissingDataError, match=f"ends after {HALF} of {len(CONTENT)}"):
        fetch(server, tmp_path)
    assert "data.bin" not in names(tmp_path)


def test_more_bytes_than_expected_leave_no_file_at_all(server, tmp_path):
    server.answers = ["sends too much"]
    with pytest.raises(download.MissingDataError, match="sends another file"):
        fetch(server, tmp_path)
    assert names(tmp_path) == []


def test_an_address_that_does_not_exist_is_not_asked_twice(server, tmp_path):
    server.answers = [404]
    with pytest.raises(download.MissingDataError) as caught:
        fetch(server, tmp_path)
    for part in ("data.bin", server.url, SHA256, str(len(CONTENT)), str(tmp_path), "404"):
        assert part in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert len(server.ranges) == 1
    assert names(tmp_path) == []


def test_a_busy_server_is_asked_again_and_given_up_in_the_end(server, tmp_path):
    server.answers = [503, 503, "good"]
    assert fetch(server, tmp_path / "a").read_bytes() == CONTENT
    server.answers = [503]
    before = len(server.ranges)
    with pytest.raises(download.MissingDataError, match="503"):
        fetch(server, tmp_path / "b", retries=2)
    assert len(server.ranges) - before == 3


def test_without_a_server_the_error_comes_at_once_and_nothing_is_left(tmp_path, monkeypatch):
    pauses = []
    monkeypatch.setattr(http_transfer.time, "sleep", pauses.append)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/x.bin"
    with pytest.raises(download.MissingDataError, match="x.bin"):
        download.fetch(url, directory=tmp_path, filename="x.bin", checksum=MD5)
    assert pauses == []  # it is not tried again
    assert names(tmp_path) == []


@pytest.mark.thorough
def test_processes_at_once_share_one_download(server, tmp_path):
    server.delay = 1.0
    code = (
        "import sys; from pujax.data.readers import download;"
        "download.fetch(sys.argv[1], directory=sys.argv[2], filename='data.bin',"
        f"checksum={SHA256!r}, size={len(CONTENT)})"
    )
    command = [sys.executable, "-c", code, server.url, str(tmp_path)]
    root = pathlib.Path(download.__file__).parents[3]
    env = os.environ | {"PYTHONPATH": str(root)}
    running = [subprocess.Popen(command, env=env) for _ in range(3)]
    assert [process.wait(timeout=60) for process in running] == [0, 0, 0]
    assert (tmp_path / "data.bin").read_bytes() == CONTENT
    assert names(tmp_path) == ["data.bin"]
    assert len(server.ranges) == 1


def test_threads_at_once_share_one_download(server, tmp_path):
    server.delay = 0.2
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(fetch(server, tmp_path))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert results == [tmp_path / "data.bin"] * 4
    assert len(server.ranges) == 1
    assert names(tmp_path) == ["data.bin"]


@pytest.mark.parametrize("has_module", [True, False])
def test_without_file_locks_nothing_is_left_behind(server, tmp_path, monkeypatch, has_module):
    if has_module:

        def refuse(*args):
            raise OSError("no locks available")

        monkeypatch.setattr(locks.fcntl, "flock", refuse)
    else:
        monkeypatch.setattr(locks, "fcntl", None)
    server.answers = ["breaks off", "good"]
    assert fetch(server, tmp_path / "a").read_bytes() == CONTENT
    assert names(tmp_path / "a") == ["data.bin"]
    server.answers = ["breaks off", 404]
    with pytest.raises(download.MissingDataError):
        fetch(server, tmp_path / "b")
    assert names(tmp_path / "b") == []


def test_what_another_process_finished_first_is_taken_and_nothing_open_deleted(
    server, tmp_path, monkeypatch
):
    verified, unlink, asked = download.is_verified, pathlib.Path.unlink, []

    def finished_by_another(target, remote):
        asked.append(target)
        if len(asked) == 2:  # once the part is there
            target.write_bytes(CONTENT)
        return verified(target, remote)

    def unlink_as_windows_does(path):
        assert str(path) not in windows.open_files()
        unlink(path)

    monkeypatch.setattr(locks, "fcntl", None)
    monkeypatch.setattr(download, "is_verified", finished_by_another)
    monkeypatch.setattr(pathlib.Path, "unlink", unlink_as_windows_does)
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert server.ranges == [] and names(tmp_path) == ["data.bin"]


def test_several_files_are_reported_together(server, tmp_path):
    files = [
        download.RemoteFile("data.bin", server.url, SHA256, len(CONTENT)),
        download.RemoteFile("b.bin", f"{server.url}/b", SHA256, len(CONTENT)),
        download.RemoteFile("c.bin", f"{server.url}/c", SHA256, len(CONTENT)),
    ]
    server.answers = ["good", 404]
    with pytest.raises(download.MissingDataError) as caught:
        download.fetch_all(files, directory=tmp_path, hint="Other layouts are fine too.")
    message = str(caught.value)
    assert message.startswith("cannot get b.bin, c.bin: HTTP Error 404")
    assert files[1].url in message and files[2].url in message and "data.bin  from" not in message
    assert message.endswith("Other layouts are fine too.")
    server.answers = ["good"]
    paths = download.fetch_all(files, directory=tmp_path)
    assert [path.name for path in paths] == ["data.bin", "b.bin", "c.bin"]


@pytest.mark.parametrize("checksum", ["", "md5:12", "sha1:" + "0" * 40, "md5:" + "X" * 32])
def test_a_checksum_of_another_form_is_refused(tmp_path, checksum):
    with pytest.raises(ValueError, match="checksum is"):
        download.fetch("http://x.invalid", directory=tmp_path, filename="x", checksum=checksum)


@pytest.mark.parametrize("filename", ["../x", "a/b", "/x", "..", ""])
def test_a_file_name_with_a_folder_is_refused(tmp_path, filename):
    with pytest.raises(ValueError, match="filename is"):
        download.fetch("http://x.invalid", directory=tmp_path, filename=filename, checksum=MD5)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(download.MissingDataError, match="file"):
        download.fetch(
            "http://x.invalid", directory=tmp_path / "file" / "x", filename="x", checksum=MD5
        )


def test_the_default_directory_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("PUJAX_DATA", str(tmp_path / "mine"))
    assert download.default_directory() == tmp_path / "mine"
    monkeypatch.delenv("PUJAX_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert download.default_directory() == tmp_path / "cache" / "pujax" / "data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert download.default_directory() == tmp_path / ".cache" / "pujax" / "data"
