# SPDX-License-Identifier: Apache-2.0
"""The chat page in headless Chromium, through the DevTools protocol over a pipe. Without Chromium it exits with 77, which
CTest reports as skipped. MINIM_SCREENSHOTS names a folder for screenshots."""

import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from support import Server

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if BROWSER is None:
    print("skipped: Chromium is missing")
    sys.exit(77)


class Browser:
    """One page of a headless browser."""

    def __init__(self):
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
        self.buffer, self.n_calls, self.session = b"", 0, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.output)
        os.close(self.input)
        self.folder.cleanup()

    def call(self, method, **params):
        self.n_calls += 1
        message = {"id": self.n_calls, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.output, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            while b"\0" in self.buffer:
                one, self.buffer = self.buffer.split(b"\0", 1)
                answer = json.loads(one)
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

    def run(self, script):
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    def wait_for(self, script, seconds=60):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            value = self.run(script)
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError(f"{script} stays false; the page shows {self.run('document.body.innerText')[-500:]!r}")

    def size(self, width, height, is_phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if is_phone else 1,
                  mobile=is_phone)
        self.call("Emulation.setTouchEmulationEnabled", enabled=is_phone)

    def screenshot(self, name):
        folder = os.environ.get("MINIM_SCREENSHOTS")
        if folder:
            data = self.call("Page.captureScreenshot", format="png")["data"]
            pathlib.Path(folder, name).write_bytes(base64.b64decode(data))


SEND = """(() => { const text = document.getElementById("text"); text.value = %s; text.oninput();
  document.getElementById("form").requestSubmit(); return true; })()"""
IS_DONE = 'document.getElementById("send").textContent === "Send" && document.querySelectorAll("article small").length === %d'


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server("--temp", "0"))
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def open(self, width=1280, height=800, is_phone=False):
        self.browser.size(width, height, is_phone)
        self.browser.call("Page.navigate", url="http://%s:%d/" % self.server.address)
        self.browser.wait_for('document.readyState === "complete" && document.getElementById("name").textContent !== "minim"')

    def ask(self, text, n_answers):
        self.browser.run(SEND % json.dumps(text))
        self.browser.wait_for(IS_DONE % n_answers)

    def has_no_overflow(self):
        return self.browser.run("document.documentElement.scrollWidth <= innerWidth && document.getElementById('log').scrollWidth "
                                "<= document.getElementById('log').clientWidth")

    def test_a_conversation(self):
        self.open()
        self.assertEqual(self.browser.run('document.getElementById("key").value'), "")
        self.browser.screenshot("empty.png")
        self.ask("What is the capital of France?", 1)
        texts = self.browser.run('[...document.querySelectorAll("article")].map(a => a.innerText)')
        self.assertEqual(texts[0].strip(), "What is the capital of France?")
        self.assertIn("The capital of France is Paris.", texts[1])
        self.assertRegex(texts[1], r"18 tokens, [\d.]+ tokens/s")
        self.assertFalse(self.browser.run('document.querySelector("details").open'))
        self.assertEqual(self.browser.run('document.querySelector("details div").textContent').strip(),
                         "The user asks for the capital of France.")
        self.ask("Count from 1 to 9.\n\nThen <b>stop</b>.", 2)
        self.assertEqual(self.browser.run('document.querySelectorAll("article b").length'), 0)  # text, not markup
        self.browser.run('document.querySelector("details summary").click()')
        self.assertTrue(self.browser.run('document.querySelector("details").open'))
        self.browser.screenshot("conversation.png")
        self.assertTrue(self.has_no_overflow())
        self.browser.run('document.getElementById("new").click()')
        self.assertEqual(self.browser.run('document.querySelectorAll("article").length'), 0)

    def test_a_key_is_asked_for_and_kept(self):
        with Server("--temp", "0", "--api-key", "s3cret") as server:
            self.browser.size(1280, 800)
            url = "http://%s:%d/" % server.address
            self.browser.call("Page.navigate", url=url)
            self.browser.wait_for('document.readyState === "complete" && !!document.getElementById("form").onsubmit')
            self.ask("Hello!", 1)
            self.assertIn("key", self.browser.run('document.querySelector("small.error").textContent'))
            self.browser.run('(() => { const key = document.getElementById("key"); key.value = "s3cret"; key.onchange(); })()')
            self.browser.call("Page.navigate", url=url)
            self.browser.wait_for('document.readyState === "complete" && document.getElementById("name").textContent !== "minim"')
            self.ask("Hello!", 1)
            self.assertEqual(self.browser.run('document.querySelectorAll("small.error").length'), 0)

    def test_stop(self):
        self.open()
        self.browser.run("""(() => { const ask = fetch; window.fetch = (url, options) => ask(url, options && options.body ?
            {...options, body: JSON.stringify({...JSON.parse(options.body), ignore_eos: true, max_tokens: 3500})} : options); })()""")
        self.browser.run(SEND % '"Hello!"')
        self.browser.wait_for('document.getElementById("send").textContent === "Stop" && !!document.querySelector("details")')
        self.browser.run('document.getElementById("form").requestSubmit()')
        self.browser.wait_for(IS_DONE % 1)
        self.assertIn("stopped", self.browser.run('document.querySelector("article small").textContent'))
        self.server.wait_until_free(10)

    def test_tool_calls_are_shown(self):
        self.open()
        self.browser.run("""(() => { const ask = fetch; window.fetch = (url, options) => ask(url, options && options.body ?
            {...options, body: JSON.stringify({...JSON.parse(options.body), tools: %s})} : options); })()""" % json.dumps(
                [{"type": "function", "function": {"name": "get_weather", "parameters": {
                    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]))
        self.ask("What is the weather in Paris?", 1)
        call = self.browser.run('document.querySelector("article pre").textContent')
        self.assertIn("get_weather", call)
        self.assertIn('"city": "Paris"', call)

    def test_an_error_is_shown(self):
        self.open()
        self.ask("word " * 5000, 1)
        self.assertIn("context", self.browser.run('document.querySelector("small.error").textContent'))

    def test_a_phone(self):
        self.open(360, 640, is_phone=True)
        self.browser.screenshot("phone-empty.png")
        self.ask("What is the capital of France? " + "Averylongwordwithoutanyspace" * 8, 1)
        self.assertTrue(self.has_no_overflow())
        self.browser.screenshot("phone.png")
        box = self.browser.run('JSON.stringify(document.getElementById("send").getBoundingClientRect())')
        box = json.loads(box)
        self.assertLessEqual(box["right"], 360)
        self.assertLessEqual(box["bottom"], 640)
        self.assertGreaterEqual(min(box["width"], box["height"]), 32)  # large enough for a thumb


if __name__ == "__main__":
    unittest.main()
