"""The journeys of people through the pages, with a keyboard alone, with and without JavaScript."""

import pytest

from tests.browser.chromium import Browser, Tab

# Where the suite is the gate, the first test may have to wait for Debian's package.
pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]
SCRIPTS = pytest.mark.parametrize("script", [True, False], ids=["script", "no-script"])
MANIFEST = """apiVersion: v1
kind: Pod
metadata: {name: new, namespace: team-a}
spec:
  containers:
  - name: main
    image: example.com/a:1
    resources: {limits: {volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 15000}}
"""


def at(browser: Browser, address: str, *, script: bool = True) -> Tab:
    tab = browser.tab(script=script)
    tab.open(address)
    return tab


@SCRIPTS
def test_my_pod_is_pending(browser: Browser, site: str, script: bool) -> None:
    """From the list of waiting pods to Fit with the values of the pod: two steps."""
    tab = at(browser, f"{site}/waiting", script=script)

    assert "short by 10640 MiB" in tab.text()
    tab.tab_to("Fit with its values")
    tab.press("Enter", loads=True)

    assert tab.address().startswith("/fit?memory=15000")
    assert "FITS NOW" in tab.text()
    assert tab.evaluate("document.querySelector('[name=memory]').value") == "15000"


@SCRIPTS
def test_my_deployment_made_no_pods(browser: Browser, site: str, script: bool) -> None:
    """Decisions of a namespace that were refused, found by the search box, and what helps."""
    tab = at(browser, f"{site}/decisions", script=script)

    tab.tab_to("Find")
    tab.write("ns:team-a verdict:refused")
    tab.press("Enter", loads=True)
    assert "team-b" not in tab.evaluate("document.querySelector('table').innerText")
    tab.tab_to("team-a/big-")
    tab.press("Enter", loads=True)

    text = tab.text()
    assert "ask for at most 40192" in text
    assert "Last of 14" in text
    assert "The same request on the GPUs of today" in text


@SCRIPTS
def test_why_did_my_pod_get_mig(browser: Browser, site: str, script: bool) -> None:
    """The page of the decision names the rule, the costs, and the settings that were in force."""
    tab = at(browser, f"{site}/decisions/k7q2m4x7tb", script=script)

    text = tab.text()
    assert "isolation wins" in text
    assert "would withhold 44.9 % of a GPU from others" in text
    tab.tab_to("sha256:5e77")
    tab.press("Enter", loads=True)
    assert "- prefer: density" in tab.text()


@SCRIPTS
def test_who_holds_gpus(browser: Browser, site: str, script: bool) -> None:
    """From namespaces to the decisions of one of them, with owner and person."""
    tab = at(browser, f"{site}/namespaces", script=script)

    assert "No Prometheus is configured" in tab.text()
    tab.tab_to("team-b")
    tab.press("Enter", loads=True)
    text = tab.text()
    assert "bob@example.org" in text
    assert "team-a/" not in tab.evaluate("document.querySelector('table').innerText")


@SCRIPTS
def test_we_lost_a_gpu(browser: Browser, site: str, script: bool) -> None:
    """From the first page to the node, the reason, and the pods that are there."""
    tab = at(browser, f"{site}/", script=script)

    tab.tab_to("gpu-a GPU-gpu-a-2")
    tab.press("Enter", loads=True)

    text = tab.text()
    assert "XID 79: it has fallen off the bus" in text
    assert "GPU left service" in text
    tab.tab_to("team-a/train-0")
    tab.press("Enter", loads=True)
    assert tab.address() == "/pods?ns=team-a&pod=train-0"


@SCRIPTS
def test_can_we_take_this_workload(browser: Browser, site: str, script: bool) -> None:
    """A manifest that is pasted is answered, and kept in the form."""
    tab = at(browser, f"{site}/fit", script=script)

    tab.tab_to("Pod, Deployment, Job or other workload")
    tab.write(MANIFEST)
    tab.tab_to("Would these fit?")
    tab.press("Enter", loads=True)

    assert "FITS NOW" in tab.text()
    assert tab.evaluate("document.querySelector('textarea').value").strip() == MANIFEST.strip()


@SCRIPTS
def test_a_mistake_in_a_form_is_named(browser: Browser, site: str, script: bool) -> None:
    """The field, the value and what would be accepted; the other values stay."""
    tab = at(browser, f"{site}/fit", script=script)

    tab.tab_to("Memory per GPU")
    tab.write("8Gb")
    tab.press("Tab")
    tab.write("40")
    tab.press("Enter", loads=True)

    assert '"8Gb" is not accepted; give MiB' in tab.text()
    field = "document.querySelector('[name=memory]')"
    assert tab.evaluate(f"{field}.getAttribute('aria-invalid')") == "true"
    assert tab.evaluate("document.querySelector('[name=cores]').value") == "40"


@SCRIPTS
def test_prove_it_to_the_auditor(browser: Browser, site: str, script: bool) -> None:
    """Decisions of one person as CSV, and one decision with its records as JSON."""
    tab = at(browser, f"{site}/decisions?by=amy@example.org&since=30d", script=script)

    link = "[...document.querySelectorAll('.after a')].find(a => a.textContent.startsWith('CSV'))"
    table = tab.evaluate(f"fetch({link}.href).then(answer => answer.text())")
    assert table.startswith("pod,decided,times,verdict,requester,")
    assert "bob@example.org" not in table
    tab.open(f"{site}/decisions/k7q2m4x7tb")
    found = tab.evaluate(
        "fetch(document.querySelector('.live a').href).then(answer => answer.json())"
    )
    kinds = [record["record"]["kind"] for record in found["records"]]
    assert kinds[0] == "admission" or "admission" in kinds
    assert found["decision"]["requester"] == "amy@example.org"


@SCRIPTS
def test_numbers_look_wrong(browser: Browser, site: str, script: bool) -> None:
    """Health says who is heard, what is in force, and which nodes need attention."""
    tab = at(browser, f"{site}/health", script=script)

    text = tab.text()
    for expected in ("its records arrive", "sha256:5e77", "any container may name GPUs"):
        assert expected in text


def test_the_first_stop_of_the_keyboard_skips_the_navigation(browser: Browser, site: str) -> None:
    """Whoever uses a keyboard need not pass eleven links on each page, and sees where they are."""
    tab = at(browser, f"{site}/decisions")

    tab.press("Tab")
    assert tab.focused() == "Skip to the content"
    assert tab.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    tab.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "content"
    tab.press("Tab")
    outline = tab.evaluate("getComputedStyle(document.activeElement).outlineWidth")
    assert outline == "2px"


def test_refreshing_can_be_paused_and_stays_so(browser: Browser, site: str) -> None:
    """The switch works by keyboard, says its state, and is remembered."""
    tab = at(browser, f"{site}/decisions")

    tab.tab_to("Pause refreshing")
    tab.press("Space")
    state = "document.getElementById('pause').getAttribute('aria-pressed')"
    assert tab.evaluate(state) == "true"
    assert tab.evaluate("document.getElementById('status').textContent") == "Paused"
    tab.open(f"{site}/pods")
    assert tab.evaluate(state) == "true"


def test_a_refresh_changes_what_changed_alone(browser: Browser, site: str) -> None:
    """Rows follow the console; the place in the page and the focus stay."""
    tab = at(browser, f"{site}/decisions")
    tab.evaluate("document.querySelector('tbody tr').remove()")
    tab.tab_to("Find")

    tab.evaluate("refresh()")

    assert tab.evaluate("document.querySelectorAll('tbody tr').length") == 5
    assert tab.focused() == "Find"
    assert tab.evaluate("document.getElementById('status').textContent") == "1 new row"
