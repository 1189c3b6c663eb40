# SPDX-License-Identifier: Apache-2.0
"""Headless Chromium through the DevTools protocol over a pipe, and the chat page in it. Without Chromium it exits with 77, which
CTest reports as skipped."""

import base64
import contextlib
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if BROWSER is None:
    print("skipped: Chromium is missing")
    sys.exit(77)


class Browser:
    """A headless browser until the block ends."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self.output = os.pipe()
        self.input, from_browser = os.pipe()
        self.process = subprocess.Popen(
            ["sh", "-c", 'exec "$0" "$@" 3<&%d 4>&%d' % (to_browser, from_browser), BROWSER, "--headless=new", "--no-sandbox",
             "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run", "--remote-debugging-pipe",
             f"--user-data-dir={self.folder.name}", "about:blank"],
            pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.n_calls, self.events = b"", 0, []
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.output)
        os.close(self.input)
        self.folder.cleanup()

    def call(self, method, session=None, **params):
        self.n_calls += 1
        message = {"id": self.n_calls, "method": method, "params": params, **({"sessionId": session} if session else {})}
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.output, data):]
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            while b"\0" in self.buffer:
                one, self.buffer = self.buffer.split(b"\0", 1)
                answer = json.loads(one)
                if "id" not in answer:
                    self.events.append(answer)
                if answer.get("id") != self.n_calls:
                    continue
                if "error" in answer:
                    raise RuntimeError(answer["error"])
                return answer["result"]
            if select.select([self.input], [], [], 1)[0]:
                part = os.read(self.input, 1 << 20)
                if not part:
                    raise RuntimeError(f"the browser ended with {self.process.poll()}")
                self.buffer += part
        raise RuntimeError(f"no answer to {method}")

    @contextlib.contextmanager
    def profile(self):
        """A storage of its own: what tabs of other profiles keep is not in it."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        yield context
        self.call("Target.disposeBrowserContext", browserContextId=context)


class Tab:
    """One tab with the chat page."""

    def __init__(self, browser, profile, url, width=1280, height=800, is_phone=False, script="", is_dark=False):
        """script: runs before those of the page."""
        self.browser, self.url = browser, url
        self.target = browser.call("Target.createTarget", url="about:blank", browserContextId=profile)["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if is_phone else 1, mobile=is_phone)
        self.call("Emulation.setTouchEmulationEnabled", enabled=is_phone)
        if is_dark:
            self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        if script:
            self.call("Page.addScriptToEvaluateOnNewDocument", source=script)
        self.load()

    def load(self, url=None):
        self.call("Page.navigate", url=url or self.url)
        self.wait_for('document.readyState === "complete" && document.body.classList.contains("ready")')

    def reload(self):
        self.run("saving")
        self.run("document.body.classList.remove('ready')")
        self.call("Page.reload")
        self.wait_for('document.readyState === "complete" && document.body.classList.contains("ready")')

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def run(self, script):
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True, userGesture=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description") or result["exceptionDetails"])
        return result["result"].get("value")

    def wait_for(self, script, seconds=60):
        deadline = time.monotonic() + seconds
        value = None
        while time.monotonic() < deadline:
            try:
                value = self.run(script)
            except RuntimeError as error:  # while it navigates
                value = None
                if "Error:" in str(error) and "ReferenceError" not in str(error) and "TypeError" not in str(error):
                    raise
            if value or value == {}:  # {}: an element
                return value
            time.sleep(0.03)
        raise AssertionError(f"{script} stays {value!r}; the page shows {self.run('document.body.innerText')[-500:]!r}")

    def events(self, method):
        """Returns the parameters of this tab's events of this name so far."""
        self.run("1")
        return [event["params"] for event in self.browser.events if event.get("sessionId") == self.session and event["method"] == method]

    def errors(self):
        """Returns what went wrong in the page's scripts, violations of its policy included."""
        thrown = [e["exceptionDetails"].get("exception", {}).get("description", e["exceptionDetails"]["text"]) for e in self.events("Runtime.exceptionThrown")]
        return thrown + [e["entry"]["text"] for e in self.events("Log.entryAdded") if e["entry"]["source"] == "security"]

    # ---- the user

    def click(self, selector):
        self.wait_for(f"document.querySelector({json.dumps(selector)})")
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def fill(self, selector, text):
        self.run("(() => { const node = document.querySelector(%s); node.focus(); node.value = %s; node.dispatchEvent(new Event('input', {bubbles: true})); "
                 "node.dispatchEvent(new Event('change', {bubbles: true})); })()" % (json.dumps(selector), json.dumps(text)))

    def key(self, key, modifiers=0):
        """modifiers: 1 Alt, 2 Control, 8 Shift"""
        code = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowDown": 40, "ArrowUp": 38}.get(key, ord(key[0].upper()))
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=code, modifiers=modifiers, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code, modifiers=modifiers)

    def send(self, text, waits=True):
        self.fill("#text", text)
        self.click("#send")
        if waits:
            self.wait_until_done()

    def wait_until_done(self, seconds=60):
        self.wait_for("runs.size === 0 && document.getElementById('send').textContent === 'Send'", seconds)

    def texts(self, selector="article"):
        return self.run(f"[...document.querySelectorAll({json.dumps(selector)})].map(node => node.innerText.trim())")

    def text(self, selector):
        return self.run(f"document.querySelector({json.dumps(selector)})?.innerText.trim() ?? null")

    def count(self, selector):
        return self.run(f"document.querySelectorAll({json.dumps(selector)}).length")

    def choose_files(self, selector, *files):
        """Gives files to a field: (name, bytes) each."""
        folder = pathlib.Path(self.browser.folder.name, "files")
        folder.mkdir(exist_ok=True)
        for name, data in files:
            (folder / name).write_bytes(data)
        node = self.call("DOM.querySelector", nodeId=self.call("DOM.getDocument")["root"]["nodeId"], selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(folder / name) for name, _ in files])

    def has_no_overflow(self):
        return self.run("document.documentElement.scrollWidth <= innerWidth && document.getElementById('log').scrollWidth "
                        "<= document.getElementById('log').clientWidth")

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


# Answers that the page asks for come from here: mock(deltas, deltas_per_second) sets the next ones, requests are kept in `asked`. A stream stops
# at HOLD until the test calls release().
HOLD = {"hold": True}
MOCK = """
(() => {
  const real = window.fetch.bind(window);
  let next = null;
  window.asked = [];
  window.mock = (deltas, rate = 0, end = {finish: "stop"}) => { next = {deltas, rate, end}; };
  const sse = value => "data: " + JSON.stringify(value) + "\\n\\n";
  window.fetch = async (url, options = {}) => {
    if (!String(url).endsWith("v1/chat/completions")) return real(url, options);
    window.asked.push(JSON.parse(options.body));
    if (!next) return real(url, options);
    const {deltas, rate, end} = next;
    if (end.status) return new Response(JSON.stringify({error: {message: end.message, code: end.code}}), {status: end.status});
    const encoder = new TextEncoder();
    let stopped = false, at = 0;
    const body = new ReadableStream({
      async start(controller) {
        options.signal?.addEventListener("abort", () => { stopped = true; controller.error(new DOMException("stopped", "AbortError")); });
        let begun = performance.now(), n_before = 0;  // deltas sent before `begun`
        while (at < deltas.length && !stopped) {
          const due = rate ? Math.min(deltas.length, n_before + Math.ceil((performance.now() - begun) / 1000 * rate)) : deltas.length;
          let text = "";
          while (at < due && !deltas[at].hold) text += sse({choices: [{index: 0, delta: deltas[at++], finish_reason: null}]});
          if (text) controller.enqueue(encoder.encode(text));
          if (deltas[at]?.hold) {
            await new Promise(resolve => { window.release = resolve; });
            begun = performance.now();
            n_before = ++at;
          }
          if (rate) await new Promise(resolve => setTimeout(resolve, 5));
        }
        if (stopped) return;
        if (end.hold) return;
        let text = end.finish ? sse({choices: [{index: 0, delta: {}, finish_reason: end.finish}]}) : "";
        if (end.usage) text += sse({choices: [], usage: end.usage, timings: end.timings});
        if (end.error) text += sse({error: {message: end.error}});
        controller.enqueue(encoder.encode(text + (end.finish ? "data: [DONE]\\n\\n" : "")));
        controller.close();
      }});
    return new Response(body, {headers: {"Content-Type": "text/event-stream"}});
  };
})();
"""


def mock(tab, deltas, rate=0, **end):
    tab.run(f"mock({json.dumps(deltas)}, {rate}, {json.dumps(end or {'finish': 'stop'})})")


def pieces(text, size, field="content"):
    return [{field: text[i:i + size]} for i in range(0, len(text), size)]
