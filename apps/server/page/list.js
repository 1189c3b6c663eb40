// SPDX-License-Identifier: Apache-2.0
// The list of conversations: search, rename, delete.
"use strict";

function ageOf(time) {
  const day = new Date().setHours(0, 0, 0, 0);
  if (time >= day) return "Today";
  if (time >= day - 864e5) return "Yesterday";
  if (time >= day - 7 * 864e5) return "Last 7 days";
  return new Date(time).toLocaleDateString("en", { month: "long", year: "numeric" });
}

// Returns some words around the first place of `words` in a text, or null.
function excerptOf(text, words) {
  const at = text.toLowerCase().indexOf(words);
  if (at < 0) return null;
  return (at > 20 ? "…" : "") + text.slice(Math.max(0, at - 20), at + 60).replace(/\s+/g, " ");
}

const conversationList = (() => {
  const maxShown = 200;  // at once: the others on demand, and by search
  let showsAll = false;
  let actions = null, all = [], texts = null, current = "", running = new Set(), n_shown = 0;

  // Returns the conversations with the words, each with an excerpt if they are in a message.
  async function found(words) {
    if (!words) return all.map(conversation => ({ conversation }));
    texts ??= store.allMessages();
    const excerpts = new Map();
    for (const message of await texts) {
      if (excerpts.has(message.conversation)) continue;
      const excerpt = excerptOf(message.content || "", words);
      if (excerpt) excerpts.set(message.conversation, excerpt);
    }
    return all.filter(c => excerpts.has(c.id) || c.title.toLowerCase().includes(words)).map(conversation => ({ conversation, excerpt: excerpts.get(conversation.id) }));
  }

  const runningMark = () => element("span", { class: "running", role: "img", "aria-label": "An answer is being written" });

  function rename(item, conversation) {
    const input = element("input", { "aria-label": "New title", maxlength: "200" });
    let is_done = false;
    const finish = async is_kept => {
      if (is_done) return;
      is_done = true;
      const title = input.value.trim();
      if (is_kept && title && title !== conversation.title) await actions.rename(conversation.id, title);
      input.remove();
      await show();
      byId("list").querySelector(`[data-id="${conversation.id}"] .open`)?.focus();
    };
    input.value = conversation.title;
    input.onkeydown = event => {
      if (event.key === "Enter") finish(true);
      if (event.key === "Escape") { event.stopPropagation(); finish(false); }
    };
    input.onblur = () => finish(true);
    item.replaceChildren(input);
    input.select();
  }

  function itemOf({ conversation, excerpt }) {
    const { id, title } = conversation;
    const item = element("li", { "data-id": id, class: id === current && "current" });
    const open = element("button", { type: "button", class: "open", title, "aria-current": id === current && "true", onclick: () => actions.open(id) }, title,
      excerpt && element("small", {}, excerpt));
    if (running.has(id)) item.append(runningMark());
    item.append(open,
      element("span", { class: "actions" }, iconButton("edit", "Rename " + title, () => rename(item, conversation)),
        iconButton("export", "Export " + title, () => actions.exportOne(id)), iconButton("delete", "Delete " + title, () => actions.remove(id))));
    return item;
  }

  async function show() {
    const turn = ++n_shown, words = byId("search").value.trim().toLowerCase();
    const entries = await found(words);
    if (turn !== n_shown) return;                            // a later one has begun
    if (byId("list").querySelector("li input")) return;  // a title is being written
    const box = document.createDocumentFragment();
    let list = null, age = "";
    for (const entry of showsAll ? entries : entries.slice(0, maxShown)) {
      const its_age = ageOf(entry.conversation.updated);
      if (its_age !== age) {
        age = its_age;
        box.append(element("h2", {}, age));
        list = box.appendChild(element("ul"));
      }
      list.append(itemOf(entry));
    }
    if (entries.length > maxShown && !showsAll)
      box.append(element("button", { type: "button", class: "more", onclick: () => { showsAll = true; show(); } }, "Show all " + numberText(entries.length)));
    if (!entries.length) box.append(element("p", { class: "none" }, words ? "No conversation has these words." : "No conversations yet."));
    byId("list").replaceChildren(box);
  }

  let timer = 0;
  byId("search").oninput = () => { clearTimeout(timer); timer = setTimeout(show, 120); };
  byId("search").onkeydown = event => {
    if (event.key === "Escape") { event.stopPropagation(); byId("search").value = ""; show(); byId("text").focus(); }
    if (event.key === "Enter") byId("list").querySelector(".open")?.click();
    if (event.key === "ArrowDown") { event.preventDefault(); byId("list").querySelector(".open")?.focus(); }
  };
  byId("list").onkeydown = event => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || !event.target.classList.contains("open")) return;
    event.preventDefault();
    const items = [...byId("list").querySelectorAll(".open")];
    (items[items.indexOf(event.target) + step] || byId("search")).focus();
  };

  return {
    start(given) { actions = given; },
    // Reads the list again.
    async load() {
      all = await store.conversations();
      texts = null;
      await show();
    },
    mark(id, ids) {
      current = id;
      running = new Set(ids);
      for (const item of byId("list").querySelectorAll("li")) {
        const is_current = item.dataset.id === id, is_running = running.has(item.dataset.id);
        item.classList.toggle("current", is_current);
        if (is_current) item.querySelector(".open")?.setAttribute("aria-current", "true");
        else item.querySelector(".open")?.removeAttribute("aria-current");
        const mark = item.querySelector(".running");
        if (is_running && !mark) item.prepend(runningMark());
        if (!is_running) mark?.remove();
      }
    },
  };
})();
