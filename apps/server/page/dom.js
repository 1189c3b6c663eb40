// SPDX-License-Identifier: Apache-2.0
// Small helpers for the document. Text of models and users reaches the document only through textContent and text nodes.
"use strict";

const byId = id => document.getElementById(id);

// Makes an element: element("a", {class: "link", href: url, onclick: f}, "text", child). Null and false children are left out.
function element(kind, attributes, ...children) {
  const node = document.createElement(kind);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  for (const child of children)
    if (child != null && child !== false) node.append(child);
  return node;
}

// One of the symbols of index.html.
function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const node = document.createElementNS(space, "svg");
  node.setAttribute("aria-hidden", "true");
  node.appendChild(document.createElementNS(space, "use")).setAttribute("href", "#icon-" + name);
  return node;
}

function iconButton(name, label, onclick, attributes) {
  return element("button", { type: "button", class: "icon", "aria-label": label, title: label, onclick, ...attributes }, icon(name));
}

const numberText = n => Math.round(n).toLocaleString("en");
const rateText = n => (n < 100 ? n.toFixed(1) : numberText(n)) + " tokens/s";

function durationText(ms) {
  if (ms < 10000) return (ms / 1000).toFixed(1) + " s";
  const seconds = Math.round(ms / 1000);
  return seconds < 60 ? seconds + " s" : Math.floor(seconds / 60) + " min " + (seconds % 60) + " s";
}

function bytesText(n) {
  return n < 1000 ? n + " B" : n < 1e6 ? (n / 1000).toFixed(1) + " kB" : (n / 1e6).toFixed(1) + " MB";
}

// For screen readers: said once, not shown.
function announce(text) { byId("status").textContent = text; }

// Shows a short message at the foot of the page; `action` is {label, run}.
let toastTimer = 0;
function toast(text, action) {
  const box = byId("toast");
  const close = () => { clearTimeout(toastTimer); box.hidden = true; };
  box.replaceChildren(element("span", {}, text));
  if (action) box.append(element("button", { type: "button", onclick: () => { close(); action.run(); } }, action.label));
  box.append(iconButton("close", "Close this message", close));
  box.hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(close, action ? 12000 : 6000);
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Pages that came without TLS from another machine have no clipboard object.
    const area = document.body.appendChild(element("textarea", { class: "hidden", "aria-hidden": "true" }));
    area.value = text;
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    if (!copied) return toast("The browser does not let this page copy. Select the text and copy it with the keyboard.");
  }
  announce("Copied");
}

function copyButton(label, text) {
  const button = iconButton("copy", label, async () => {
    await copyText(text());
    button.replaceChildren(icon("check"));
    setTimeout(() => button.replaceChildren(icon("copy")), 1500);
  });
  return button;
}

function saveFile(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
