# SPDX-License-Identifier: Apache-2.0
"""Writes screenshots of the chat page, light, dark and on a phone: empty, long, code, tools, error, settings.

    MINIM_SERVER=build/release/apps/server/minim-server python3 tests/server/screenshots.py FOLDER
"""

import json
import pathlib
import sys

from browser import MOCK, Browser, Tab, mock
from support import Server

CODE = """A panel is a block of columns that lies together in memory, so that one pass of the kernel reads it in order:

```cpp
// Copies 16 columns of a row-major matrix into one panel.
void pack(const float* weights, float* panel, int64_t n_rows, int64_t stride) {
    for (int64_t row = 0; row < n_rows; ++row)
        std::copy_n(weights + row * stride, 16, panel + 16 * row);
}
```

| format | bits a weight | size |
|--------|--------------:|-----:|
| Q8_0 | 8.5 | 243 GB |
| IQ4_XS | 4.25 | 124 GB |

Its size is $16 \\cdot n_{rows}$ numbers. More is in [the notes](https://example.com/)."""
LONG = "\n\n".join(f"## Part {i}\n\nEach step reads the weights of **8 experts** of a layer.\n\n- one\n- two\n  1. first\n  2. second\n\n> What is read twice stays in the cache." for i in range(1, 6))
CALL = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Paris","unit":"celsius"}'}}
FIGURES = {"usage": {"prompt_tokens": 1240, "completion_tokens": 311, "total_tokens": 1551, "prompt_tokens_details": {"cached_tokens": 1105}},
           "timings": {"prompt_per_second": 642.0, "predicted_per_second": 21.4}}
CONVERSATIONS = [
    {"title": "Packing weights", "messages": [{"role": "user", "content": "How are weights packed?"}, {"role": "assistant", "content": CODE, "reasoning_content": "Panels.", "reasoning_ms": 4200, **FIGURES}]},
    {"title": "How a step works", "messages": [{"role": "user", "content": "Explain a step in five parts.", "files": [{"name": "notes.md", "text": "x", "n_tokens": 412}]},
                                               {"role": "assistant", "content": LONG, "finish": "length", **FIGURES}]},
    {"title": "Weather in Paris", "messages": [{"role": "user", "content": "What is the weather in Paris?"}, {"role": "assistant", "content": "", "reasoning_content": "I ask the tool.", "reasoning_ms": 900, "tool_calls": [CALL]},
                                               {"role": "tool", "tool_call_id": "c1", "name": "get_weather", "content": '{"degrees":21}'}, {"role": "assistant", "content": "It is **21 °C** in Paris.", **FIGURES}]},
]


def take(tab, folder, name):
    """Takes a screenshot of each state."""
    def shot(state):
        tab.run("new Promise(done => requestAnimationFrame(() => setTimeout(done, 150)))")
        tab.screenshot(folder / f"{name}-{state}.png")

    shot("empty")
    tab.run("importConversations(new File([%s], 'a.json'))" % json.dumps(json.dumps({"conversations": CONVERSATIONS})))
    tab.run("document.getElementById('toast').hidden = true")
    for title, state in (("Packing weights", "code"), ("How a step works", "long"), ("Weather in Paris", "tools")):
        tab.run(f"document.querySelector('#list .open[title={json.dumps(title)}]').click()")
        tab.wait_for(f"document.getElementById('title').textContent === {json.dumps(title)}")
        if state == "tools":
            tab.run("document.querySelectorAll('details').forEach(node => { node.open = true; })")
        shot(state)
    mock(tab, [], status=429, message="the queue is full: 64 requests wait")
    tab.send("And tomorrow?")
    shot("error")
    tab.run("openSettings()")
    shot("settings")
    tab.run("document.getElementById('settings-dialog').close(); showSidebar(true)")
    shot("list")


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with Server("--temp", "0") as server, Browser() as browser:
        url = "http://%s:%d/" % server.address
        for name, options in (("light", {}), ("dark", {"is_dark": True}), ("phone", {"width": 390, "height": 800, "is_phone": True}),
                              ("phone-dark", {"width": 390, "height": 800, "is_phone": True, "is_dark": True})):
            with browser.profile() as profile:
                tab = Tab(browser, profile, url, script=MOCK, **options)
                tab.wait_for("server.props !== null")
                take(tab, folder, name)
    print(f"{len(list(folder.glob('*.png')))} screenshots in {folder}")


if __name__ == "__main__":
    main()
