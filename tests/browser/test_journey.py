"""From an empty checkout to an answer, in a real browser: build, run attention, watch, read, download,
reload, find again."""

import gzip
import json
import re
import urllib.error

import pytest
from playwright.sync_api import expect
from settling import settled

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]
LONG = 180_000  # milliseconds a compile or a job may take on a slow machine before the journey gives up
KERNELS = "/kernels?mask=sliding_window:left=8,right=8&seq=64&heads=2&impl=cpu,eager,sdpa&cache=warm&within=5"


def test_the_whole_journey(shared_server, page, chromium, tmp_path):
    at = shared_server.address
    page.goto(at + "/build")
    page.locator(".st-key-build-start button").click()
    page.get_by_text(re.compile("✓ done in")).first.wait_for(timeout=LONG)

    page.goto(at + KERNELS)
    page.get_by_text("1 case × 3 implementations").wait_for()
    settled(page)  # a slider that is drawn again under the hand loses the key
    slider = page.get_by_role("slider", name="sequence")
    slider.focus()
    slider.press("ArrowRight")  # from 64, typed, to the next typical value
    expect(page).to_have_url(re.compile("seq=128"))
    page.locator(".st-key-kernels-run button").click()
    page.get_by_test_id("stSidebar").get_by_role("button", name="Cancel").wait_for()
    page.get_by_test_id("stProgress").first.wait_for()
    chart = page.locator(".st-key-result .js-plotly-plot").first
    chart.get_by_text(re.compile("baseline")).first.wait_for(timeout=LONG)
    page.get_by_text("No job is running.").wait_for(timeout=LONG)
    # The sidebar hears of the end first: until the page follows, the chart shows what was measured by then.
    for said in ("cpu", "eager", "sdpa", re.compile("faster|slower|same within|inconclusive")):
        expect(chart).to_contain_text(said)
    text = chart.text_content()
    assert "wrong" not in text and "seq=128" in text
    expect(page).to_have_url(re.compile("run="))
    address = page.url
    run_id = re.search(r"run=([\w-]+)", address)[1]

    with page.expect_download() as saved:
        page.get_by_role("button", name="CSV").first.click()
    lines = saved.value.path().read_text().splitlines()
    assert lines[0].startswith("op,impl,") and "eager_ms" in lines[0] and len(lines) == 4

    page.get_by_role("radio", name="Trace").click()
    page.get_by_role("button", name="Collect Chrome trace").click()
    link = page.get_by_role("link", name=re.compile("Download Chrome trace"))
    link.wait_for(timeout=LONG)
    with page.expect_download() as saved:
        link.click()
    trace = json.loads(gzip.decompress(saved.value.path().read_bytes()))
    assert any(e.get("name", "").startswith(("aten::", "fusescope")) for e in trace["traceEvents"])

    page.goto(address)
    page.locator(".st-key-result .js-plotly-plot").first.get_by_text(re.compile("baseline")).first.wait_for()
    expect(page).to_have_url(re.compile(f"run={run_id}"))
    assert "seq=128" in page.url
    assert page.get_by_text("for other settings").count() == 0

    page.get_by_test_id("stSidebar").get_by_role("link", name="Runs", exact=True).click()
    words = page.get_by_role("textbox", name="Search")
    words.fill("sdpa eager cpu float32")
    words.press("Enter")
    page.get_by_text(re.compile(r"\b[12] runs?,")).wait_for()  # two where this journey is tried again
    page.goto(f"{at}/runs?run={run_id}")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download report").click()
    report = tmp_path / "report.html"
    saved.value.save_as(report)
    assert "Reproduce" in report.read_text()
    offline = chromium.new_context(offline=True).new_page()
    offline.goto(report.as_uri())
    offline.locator(".js-plotly-plot .main-svg").first.wait_for()
    offline.context.close()


@pytest.mark.long
def test_a_job_started_elsewhere_is_seen_and_cancelled_from_any_page(shared_server, page, regular):
    other = regular.new_page()
    case = "/kernels?op=add&impl=eager,cpu&sweep=n&ns=1048576,2097152,4194304,8388608,16777216"
    other.goto(shared_server.with_token(shared_server.address + case))
    page.goto(shared_server.address + "/")
    page.get_by_test_id("stSidebar").get_by_text("No job is running.").wait_for()
    other.locator(".st-key-kernels-run button").click()
    cancel = page.get_by_test_id("stSidebar").get_by_role("button", name="Cancel")
    cancel.click()
    page.get_by_test_id("stToast").get_by_text(re.compile("cancelled|done")).first.wait_for()
    page.get_by_test_id("stSidebar").get_by_text("No job is running.").wait_for()
    other.close()


def test_files_are_served_to_our_own_pages_only(shared_server, page):
    run = shared_server.profiles / "20261120-101010-bench-aaaaaa"
    run.mkdir()
    (run / "run.json").write_text(json.dumps({"id": run.name, "kind": "bench", "spec": {}, "status": "done"}))
    (run / "artifacts").mkdir()
    (run / "artifacts" / "page.html").write_text("<script>alert(1)</script>")
    (run / ".hidden").write_text("x")
    (run / "artifacts" / "away").symlink_to("/etc/hostname")

    def get(path, **headers):
        try:
            answer = shared_server.get(f"/files/{path}", **headers)
            return answer.status, dict(answer.headers), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), error.read()

    status, headers, body = get(f"{run.name}/artifacts/page.html")
    assert status == 200 and body.startswith(b"<script>")
    assert (
        headers["content-disposition"].startswith("attachment")
        and headers["content-type"] == "application/octet-stream"
    )
    assert "access-control-allow-origin" not in {k.lower() for k in headers}
    assert get(f"{run.name}/artifacts/page.html", Host="evil.example")[0] == 403
    assert get(f"{run.name}/artifacts/page.html", **{"Sec-Fetch-Site": "cross-site"})[0] == 403
    for path in (
        "../../etc/passwd",
        "%2e%2e/%2e%2e/etc/passwd",
        ".hidden",
        "artifacts/away",
        "artifacts",
        "nothing",
        "artifacts/%00",
    ):
        assert get(f"{run.name}/{path}")[0] in (400, 404), path
    assert get("nobody/run.json")[0] == 404 and get("..%2f/run.json")[0] in (400, 404)
