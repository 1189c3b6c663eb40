# SPDX-License-Identifier: Apache-2.0
"""Makes hostile_markdown.json: texts that run a script, fetch something or leave the page if a chat shows them carelessly.

    python3 hostile_markdown.py > data/hostile_markdown.json
"""

import json
import sys

HIT = "window.hit=1"
FAR = "http://far.example/x"

VECTORS = [
    f"<script>{HIT}</script>", f"<SCRIPT SRC={FAR}.js></SCRIPT>", f"<scr<script>ipt>{HIT}</scr</script>ipt>", f"<script\n>{HIT}</script\n>",
    f"<img src=x onerror={HIT}>", f"<img src=\"{FAR}.png\">", f"<IMG SRC=javascript:{HIT}>", f"<img srcset='{FAR} 1x' src=x>",
    f"<svg onload={HIT}>", f"<svg><script>{HIT}</script></svg>", f"<svg><a xlink:href=javascript:{HIT}><text>x</text></a></svg>",
    f"<svg><animate onbegin={HIT} attributeName=x dur=1s>", f"<iframe src=javascript:{HIT}></iframe>", "<iframe srcdoc='<script>parent.hit=1</script>'></iframe>",
    f"<iframe src={FAR}></iframe>", f"<object data={FAR}></object>", f"<embed src={FAR}>", f"<video autoplay src={FAR} onerror={HIT}></video>",
    f"<audio src=x onerror={HIT}>", f"<body onload={HIT}>", f"<input autofocus onfocus={HIT}>", f"<details open ontoggle={HIT}>x</details>",
    f"<marquee onstart={HIT}>x</marquee>", f"<style>*{{background:url({FAR})}}</style>", f"<style>@import '{FAR}.css';</style>", f"<link rel=stylesheet href={FAR}.css>",
    f"<meta http-equiv=refresh content='0;url={FAR}'>", f"<base href={FAR}/>", f"<form action={FAR}><button autofocus>x</button></form>",
    f"<p style='background:url({FAR})'>x</p>", f"<math><maction actiontype=statusline xlink:href=javascript:{HIT}>x</maction></math>",
    f"<a href=javascript:{HIT}>x</a>", f"<div onmouseover={HIT}>x</div>", f"<template><img src=x onerror={HIT}></template>", f"<noscript><p title='</noscript><img src=x onerror={HIT}>'>",
    f"[x](javascript:{HIT})", f"[x](JaVaScRiPt:{HIT})", f"[x](&#106;avascript:{HIT})", f"[x](&#x6A;&#x61;vascript&colon;{HIT})", f"[x](java&#10;script:{HIT})",
    f"[x](<java\tscript:{HIT}>)", f"[x](\x01javascript:{HIT})", f"[x](data:text/html,<script>{HIT}</script>)", "[x](data:text/html;base64,PHNjcmlwdD53aW5kb3cuaGl0PTE8L3NjcmlwdD4=)",
    f"[x](vbscript:{HIT})", "[x](file:///etc/passwd)", f"[x](blob:{FAR})", f"[x](http://a.example/\"onmouseover=\"{HIT})", f"[x](http://a.example 'a\" onclick=\"{HIT}')",
    f"![x]({FAR}.png)", f"![x](javascript:{HIT})", f"![x\" onerror=\"{HIT}]({FAR})", f"[![x]({FAR}.png)](javascript:{HIT})", f"<javascript:{HIT}>", "&lt;script&gt;window.hit=1&lt;/script&gt;",
    f"`<img src=x onerror={HIT}>`", f"**<img src=x onerror={HIT}>**", f"$<img src=x onerror={HIT}>$", f"\\<script>{HIT}\\</script>", f"<!-- --!><script>{HIT}</script> -->",
]
REFERENCES = [f"[x][1]\n\n[1]: javascript:{HIT}", f"![x][1]\n\n[1]: {FAR}.png", f"[x]\n\n[x]: data:text/html,<script>{HIT}</script>"]
BLOCKS = [f"```<img src=x onerror={HIT}>\nx\n```", f"```html\n<script>{HIT}</script>\n```", f"```js\" onmouseover=\"{HIT}\nx\n```", f"~~~\n</code></pre><script>{HIT}</script>\n~~~",
          f"    <script>{HIT}</script>", f"<script>\n\n{HIT}\n\n</script>", f"<div>\n<script>{HIT}</script>\n</div>", f"<![CDATA[<script>{HIT}</script>]]>", f"<?php {HIT} ?>",
          f"$$\n<script>{HIT}</script>\n$$", f"```xml\n<a href=javascript:{HIT}>\n```", f"| a\" onclick=\"{HIT} | b |\n|---|---|\n| <script>{HIT}</script> | ![x]({FAR}) |"]
WRAPPERS = ["{}", "- item {}\n- next", "> quoted {}\n> more", "# Title {}", "| a | b |\n|---|---|\n| {} | y |"]
NESTED = ["> " * 200 + f"<script>{HIT}</script>", "- " * 200 + f"<img src=x onerror={HIT}>", "[" * 200 + f"x](javascript:{HIT})", "*" * 400 + f"<svg onload={HIT}>"]


def cases():
    found = REFERENCES + BLOCKS + NESTED
    for vector in VECTORS:
        found += [wrapper.format(vector if "|" not in wrapper else vector.replace("\n", " ")) for wrapper in WRAPPERS]
    return list(dict.fromkeys(found))


if __name__ == "__main__":
    json.dump(cases(), sys.stdout, indent=0, ensure_ascii=True)
    sys.stdout.write("\n")
