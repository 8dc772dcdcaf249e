"""The documentation as a site: it builds without a broken link, can be searched, and asks no other machine."""

from __future__ import annotations

import functools
import http.server
import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from programs import CHROMIUM, needs_chromium

pytestmark = pytest.mark.program

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_of_docs_is_on_the_site(site):
    for page in (ROOT / "docs").rglob("*.md"):
        folder = page.parent if page.stem == "README" else page.with_suffix("")
        assert (site / folder.relative_to(ROOT / "docs") / "index.html").is_file()


def test_a_linked_file_of_the_repository_is_shown(site):
    assert "runs:" in re.sub(r"<[^>]+>", "", (site / "repository" / "action.yml" / "index.html").read_text())
    page = (site / "how-to" / "ci" / "index.html").read_text()
    assert 'href="../../repository/action.yml/"' in page
    back = (site / "repository" / "examples" / "rust-epp" / "index.html").read_text()
    assert 'href="../../../tutorial/write-your-own/"' in back


ELSEWHERE = r"[^>]*\b(?:src|href)=[\"']?(?:\w+:)?//"
LOADING = re.compile(
    rf"<(?:script|img|iframe|source)\b{ELSEWHERE}|<link\b(?=[^>]*(?:stylesheet|preload|icon|preconnect)){ELSEWHERE}"
)
IN_STYLE = re.compile(r"(@import|url\()\s*[\"']?(\w+:)?//")


def test_nothing_is_loaded_from_elsewhere(site):
    pages = [*site.rglob("*.html")]
    assert pages
    assert [page for page in pages if LOADING.search(page.read_text())] == []
    assert [one for one in site.rglob("*.css") if IN_STYLE.search(one.read_text())] == []


PROBE = """<!doctype html><title>probe</title><iframe id="f" width="1280" height="800" src="/%s"></iframe><script>
const told = setInterval(() => {
  const { contentDocument: d, contentWindow: w } = document.getElementById("f");
  const results = [...d.querySelectorAll(".md-search-result__item a")].map((one) => one.href);
  if (%s) return;
  clearInterval(told);
  const resources = w.performance.getEntriesByType("resource").map((one) => one.name);
  const low = [...d.querySelectorAll("h1, .md-content img")].map((one) => one.getBoundingClientRect().top);
  fetch("/answer", { method: "POST", body: JSON.stringify({ results, resources, low }) });
}, 100);
</script>"""


class Server(http.server.ThreadingHTTPServer):
    """Serves the site, and a page that looks at one of its pages and posts what it sees."""

    def __init__(self, site: Path) -> None:
        super().__init__(("127.0.0.1", 0), functools.partial(Handler, directory=str(site)))
        self.probe = b""
        self.answer: dict = {}
        self.answered = threading.Event()


class Handler(http.server.SimpleHTTPRequestHandler):
    server: Server

    def do_GET(self):
        if self.path != "/probe":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(self.server.probe)

    def do_POST(self):
        self.server.answer = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()
        self.server.answered.set()

    def log_message(self, *_):
        """Say nothing."""


def seen(site, tmp_path, path, unless):
    """What the page at `path` shows in a browser that reaches no other machine, once `unless` no longer holds."""
    with Server(site) as server:
        server.probe = (PROBE % (path, unless)).encode()
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        origin = f"http://127.0.0.1:{server.server_port}"
        command = [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--window-size=1300,850",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", f"--user-data-dir={tmp_path / 'browser'}",
            "--remote-debugging-port=0", f"{origin}/probe",
        ]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as browser:
            try:
                assert server.answered.wait(100), f"{path} did not get there"
            finally:
                browser.terminate()
                browser.wait(30)
                server.shutdown()
                thread.join()
        assert [one for one in server.answer["resources"] if not one.startswith(origin)] == []
        return {**server.answer, "results": [one.removeprefix(origin) for one in server.answer["results"]]}


@needs_chromium
def test_the_search_finds_a_requirement(site, tmp_path):
    found = seen(site, tmp_path, "?q=EPP-SUB-06", "!results.length")
    assert found["results"][0].startswith("/requirement/EPP-SUB-06/")
    assert found["resources"]


@needs_chromium
def test_the_first_screen_has_the_picture(site, tmp_path):
    found = seen(site, tmp_path, "", '!d.querySelector(".md-content img")?.complete')
    assert len(found["low"]) == 2
    assert max(found["low"]) < 800
