// SPDX-License-Identifier: Apache-2.0
// How one message looks.
"use strict";

// The server's own figures for an answer.
function figuresOf(message) {
  const { usage, timings } = message, parts = server.models.length > 1 && message.model ? [message.model] : [];
  if (usage?.completion_tokens != null) parts.push(numberText(usage.completion_tokens) + " tokens");
  if (timings?.predicted_per_second > 0) parts.push(rateText(timings.predicted_per_second));
  if (usage?.prompt_tokens != null) {
    const n_cached = usage.prompt_tokens_details?.cached_tokens || 0;
    parts.push("prompt " + numberText(usage.prompt_tokens) + (n_cached ? " (" + numberText(n_cached) + " cached)" : "") +
      (timings?.prompt_per_second > 0 ? ", " + rateText(timings.prompt_per_second) : ""));
  }
  return parts.join(" · ");
}

function cutText(message) {
  if (message.finish === "length") return "Cut: the limit of tokens was reached.";
  if (message.finish === "stopped") return "Cut: stopped.";
  if (message.finish === "error") return "Cut: " + (message.error || "an error ended it.");
  return "Cut: the page was closed while it was written.";
}

function prettyJson(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

// A part that is folded: a thought, a call, a result.
function foldedBox(name, iconName) {
  const label = element("span"), body = element("div");
  const node = element("details", { class: name }, element("summary", {}, iconName && icon(iconName), label), body);
  const box = { node, label, body, is_touched: false };
  node.firstChild.addEventListener("click", () => { box.is_touched = true; });
  return box;
}

// The view of a message. `about(message)` says how it stands: {growing, elsewhere (another tab writes it), branches, at, is_last, is_busy}.
function messageView(first, actions, about) {
  let message = first;
  const names = { user: "You", assistant: "Answer", tool: "Tool result", system: "System" };
  const node = element("article", { class: message.role, "data-id": message.id, "aria-label": names[message.role] });
  const content = element("div", { class: "content" }), calls = element("div"), under = element("div", { class: "under" });
  const waiting = element("p", { class: "waiting" }, "Reading the prompt …"), cut = element("p", { class: "cut", hidden: true });
  const markdown = message.role === "assistant" ? markdownView(content) : null;
  let thinking = null, callBoxes = [];

  if (message.role === "user" && message.files?.length)
    node.append(element("div", { class: "files" }, ...message.files.map(file => fileChip(file, null))));
  if (message.role === "tool") {
    const box = foldedBox("tool", "tool");
    box.body.append(element("pre", { tabindex: "0" }, prettyJson(message.content)));
    box.label.textContent = "Result" + (message.name ? " of " + message.name : "");
    node.append(box.node);
  } else {
    node.append(content);
  }
  if (message.role === "assistant") node.append(calls, cut);
  node.append(under);

  function showThinking(is_growing) {
    if (!message.reasoning_content) return;
    if (!thinking) {
      thinking = foldedBox("thinking");
      thinking.node.open = is_growing;
      node.insertBefore(thinking.node, content);
    }
    const shown = thinking.body.textContent, text = message.reasoning_content;
    if (text.startsWith(shown)) { if (text.length > shown.length) thinking.body.append(text.slice(shown.length)); } else thinking.body.textContent = text;
    const is_thinking = is_growing && !message.content && !message.tool_calls.length;
    if (!is_thinking && !thinking.is_touched) thinking.node.open = false;
    thinking.label.textContent = is_thinking ? "Thinking …" : message.reasoning_ms == null ? "Thought" : "Thought for " + durationText(message.reasoning_ms);
  }

  function showCalls() {
    (message.tool_calls || []).forEach((call, i) => {
      if (!callBoxes[i]) {
        callBoxes[i] = foldedBox("tool", "tool");
        callBoxes[i].node.open = true;
        callBoxes[i].pre = callBoxes[i].body.appendChild(element("pre", { tabindex: "0" }));
        calls.append(callBoxes[i].node);
      }
      callBoxes[i].label.textContent = "Call of " + call.function.name;
      callBoxes[i].pre.textContent = prettyJson(call.function.arguments);
    });
  }

  function showUnder() {
    const { growing, elsewhere, branches, at, is_last, is_busy } = about(message);
    under.replaceChildren();
    cut.replaceChildren();
    cut.hidden = growing || elsewhere || !isCut(message);
    if (growing) return;
    if (elsewhere) return under.append(element("span", { class: "waiting" }, "Another tab writes this answer …"));
    if (branches > 1) {
      under.append(element("span", { class: "branches" },
        iconButton("previous", "Previous branch", () => actions.branch(message, -1), { disabled: at === 0 }),
        element("span", { "aria-label": "Branch " + (at + 1) + " of " + branches }, at + 1 + "/" + branches),
        iconButton("next", "Next branch", () => actions.branch(message, 1), { disabled: at === branches - 1 })));
    }
    under.append(copyButton("Copy the message", () => message.content));
    if (!is_busy && message.role !== "tool") under.append(iconButton("edit", "Edit", () => edit()));
    if (message.role !== "assistant") return;
    if (!is_busy) under.append(iconButton("again", "Answer again", () => actions.again(message)));
    if (!cut.hidden) {
      cut.append(cutText(message));
      // The server ends a thought that was cut, and goes on with the answer.
      const label = message.content ? "Continue" : "Answer from this thought";
      if (is_last && !is_busy && !message.tool_calls?.length) cut.append(element("button", { type: "button", onclick: () => actions.proceed(message) }, icon("continue"), label));
    }
    under.append(element("small", {}, figuresOf(message)));
  }

  function edit() {
    const area = element("textarea", { "aria-label": "Edit the message" });
    const close = () => { form.replaceWith(content); under.hidden = false; node.querySelector('[aria-label="Edit"]')?.focus(); };
    const form = element("form", { class: "edit", onsubmit: event => {
      event.preventDefault();
      const text = area.value;
      close();
      if (text !== message.content && text.trim()) actions.edit(message, text);
    } }, area, element("div", {}, element("button", { type: "button", onclick: close }, "Cancel"),
      element("button", { class: "primary" }, message.role === "user" ? "Send" : "Save")));
    area.value = message.content;
    area.onkeydown = event => {
      if (event.key === "Escape") { event.stopPropagation(); close(); }
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing && message.role === "user" && usesEnter()) { event.preventDefault(); form.requestSubmit(); }
    };
    content.replaceWith(form);
    under.hidden = true;
    area.style.height = Math.min(area.scrollHeight + 4, innerHeight / 2) + "px";
    area.focus();
  }

  const view = {
    node,
    get message() { return message; },
    // Shows what was added to the message, or the message that took its place.
    update(now) {
      message = now || message;
      const { growing } = about(message);
      if (message.role === "assistant") {
        showThinking(growing);
        markdown.update(message.content);
        showCalls();
        const is_empty = growing && !message.content && !message.reasoning_content && !message.tool_calls.length;
        if (is_empty) node.insertBefore(waiting, under);
        else waiting.remove();
      } else if (message.role !== "tool") {
        content.textContent = message.content;
      }
    },
    refresh: showUnder,
    end() { markdown?.end(); showUnder(); },
  };
  view.update();
  if (about(message).growing) showUnder();
  else view.end();
  return view;
}

// On phones, Enter starts a new line: there is no Shift.
const usesEnter = () => !matchMedia("(pointer: coarse)").matches;
