// SPDX-License-Identifier: Apache-2.0
// The page: which conversation is shown, what its buttons do, and what other tabs and the server change.
"use strict";

const log = byId("log"), text = byId("text"), send = byId("send");

// The conversation that is shown. is_new: it is not in the database until its first message. One that is left keeps its draft.
const shown = { conversation: null, is_new: true, messages: new Map(), views: [] };
const runs = new Map();       // answers that are being written, by conversation
const notices = new Map();    // errors, by conversation
const drafts = new Map();     // {text, files} by conversation; those of new ones, which are in no list, have the key ""
const elsewhere = new Map();  // time at which another tab last wrote to a growing message, by message

const currentId = () => shown.conversation.id;
const draftKey = () => (shown.is_new ? "" : currentId());
const currentRun = () => runs.get(currentId());
const currentPath = () => pathTo(shown.conversation.leaf, shown.messages);

// Writes to the database, one after the other, and says if one fails. Returns the result of `work`.
let saving = Promise.resolve();
function save(work) {
  saving = saving.then(work).catch(error => {
    toast(error?.name === "QuotaExceededError" ? "The browser's storage is full: this is not saved. Export conversations and delete some." :
      "The browser could not save this (" + (error?.message || error) + "). Export the conversation to keep it.");
  });
  return saving;
}

// ---- what is shown

const isAtEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 60;
function goToEnd() { log.scrollTop = log.scrollHeight; }

function standOf(message) {
  const run = currentRun(), branches = branchesOf(message, shown.messages);
  return { growing: run?.message === message, elsewhere: Date.now() - (elsewhere.get(message.id) || 0) < 3000, branches: branches.length,
    at: branches.indexOf(message), is_last: message.id === shown.conversation.leaf, is_busy: !!run };
}

// Brings the views in line with the path: those of the same messages stay.
function showPath() {
  const path = currentPath(), views = shown.views;
  let n_same = 0;
  while (n_same < path.length && views[n_same]?.message.id === path[n_same].id) ++n_same;
  for (const view of views.splice(n_same)) view.node.remove();
  views.forEach((view, i) => {
    if (view.message !== path[i]) view.update(path[i]);
    view.refresh();
  });
  for (const message of path.slice(n_same)) {
    const view = messageView(message, messageActions, standOf);
    views.push(view);
    byId("messages").append(view.node);
  }
  document.body.classList.toggle("empty", !path.length);
  showState();
}

function showState() {
  const run = currentRun(), { title } = shown.conversation;
  const label = run ? "Stop" : "Send";
  if (send.textContent !== label) send.replaceChildren(icon(run ? "stop" : "send"), element("span", { class: "hidden" }, label));
  send.title = run ? "Stop (Esc)" : "Send (Enter)";
  byId("title").textContent = title;
  document.title = shown.is_new ? "minim" : title + " – minim";
  showNotice();
  showContext();
  conversationList.mark(currentId(), runs.keys());
}

function showNotice() {
  const notice = notices.get(currentId()) || notices.get("");
  if (byId("notice").shown === notice) return;
  byId("notice").shown = notice;
  byId("notice").replaceChildren();
  byId("messages").append(byId("notice"));
  if (!notice) return;
  const { error, again } = notice;
  byId("notice").append(element("small", { class: "error" }, error.message));
  if (error.advice) byId("notice").append(element("small", {}, error.advice));
  const buttons = byId("notice").appendChild(element("div"));
  if (error.code === "invalid_api_key") buttons.append(element("button", { type: "button", onclick: () => openSettings(true) }, "Enter the key"));
  if (again) buttons.append(element("button", { type: "button", onclick: () => { clearNotice(notice); again(); } }, "Try again"));
  buttons.append(element("button", { type: "button", onclick: () => clearNotice(notice) }, "Close"));
  goToEnd();
}

function clearNotice(notice) {
  for (const [id, other] of notices) if (other === notice) notices.delete(id);
  showNotice();
}

// ---- the context

let counted = { leaf: null, n: 0 };       // tokens of a path without figures of the server
const draft = { n_tokens: 0, timer: 0 };  // tokens of the text in the field

function usedTokens() {
  const last = currentPath().findLast(message => message.role === "assistant" && message.usage?.total_tokens);
  if (last && last.id === shown.conversation.leaf) return last.usage.total_tokens;
  return counted.leaf === shown.conversation.leaf ? counted.n : last?.usage.total_tokens || 0;
}

async function countPath() {
  const leaf = shown.conversation.leaf, path = currentPath();
  if (!path.length || counted.leaf === leaf || currentRun() || (path.at(-1).usage?.total_tokens && !isCut(path.at(-1)))) return;
  counted = { leaf, n: path.findLast(message => message.usage)?.usage.total_tokens || 0 };
  try {
    const { count } = await postJson("tokenize", withModel({ messages: toRequest(path, shown.conversation.settings.system), add_generation_prompt: false }));
    if (counted.leaf === leaf) counted.n = count;
    showContext();
  } catch { /* the figure stays a guess until the next answer */ }
}

function showContext() {
  const n_context = contextSize(), tools = document.querySelector(".tools");
  const used = usedTokens() + draft.n_tokens + attached.nTokens();
  byId("context").hidden = !n_context;
  if (!n_context) return;
  const part = used / n_context, state = part >= 0.95 ? "full" : part >= 0.8 ? "near" : "";
  byId("context").setAttribute("aria-valuemax", n_context);
  byId("context").setAttribute("aria-valuenow", Math.min(used, n_context));
  byId("context-fill").style.width = Math.min(100, 100 * part) + "%";
  const figures = numberText(used) + " of " + numberText(n_context) + " tokens";
  const words = used >= n_context ? figures + ": too long for the context" : state === "full" ? figures + ": the context is full" : state ? figures + ": the context is nearly full" : used ? figures : "";
  if (state && !tools.classList.contains(state)) announce(words);
  byId("context-text").textContent = words;
  tools.classList.toggle("near", state === "near");
  tools.classList.toggle("full", state === "full");
}

function countDraft() {
  clearTimeout(draft.timer);
  if (!text.value.trim()) {
    draft.n_tokens = 0;
    return showContext();
  }
  draft.timer = setTimeout(async () => {
    const now = text.value;
    try {
      const n = await countTokens(now);
      if (text.value !== now) return;
      draft.n_tokens = n;
      showContext();
    } catch { /* sending says what is wrong */ }
  }, 300);
}

function fitText() {
  text.style.height = "auto";
  text.style.height = text.scrollHeight + "px";
}

function setComposer(value, files) {
  text.value = value;
  attached.set(files);
  fitText();
  countDraft();
}

// ---- answers

let frame = 0, pause = 0;

// Shows what the answer of this conversation has got since the last frame. After a frame that took long, some are left out.
function showGrowth() {
  frame = 0;
  const run = currentRun(), view = shown.views.at(-1);
  if (!run || view?.message !== run.message) return;
  if (performance.now() < pause) return requestGrowth();
  const begun = performance.now(), follows = isAtEnd();
  view.update();
  if (follows) goToEnd();
  byId("down").hidden = follows;
  performance.measure("minim-render", { start: begun, end: performance.now() });  // for profilers
  performance.clearMeasures("minim-render");
  pause = performance.now() + 3 * (performance.now() - begun);
}

function showEnd(message) {
  const view = shown.views.find(other => other.message === message);
  view?.update();
  view?.end();
}

function requestGrowth() { frame ||= requestAnimationFrame(showGrowth); }

// Lets the server write the answer below `parent`, or continue `message`.
function answer(parent, message, sent) {
  const { conversation } = shown, { id } = conversation;
  if (runs.has(id)) return;
  const before = conversation.leaf;
  const reply = message || { id: newId(), conversation: id, parent, created: Date.now(), role: "assistant", content: "", reasoning_content: "",
    reasoning_ms: null, tool_calls: [], model: server.model, finish: null, error: "", usage: null, timings: null };
  shown.messages.set(reply.id, reply);
  conversation.leaf = reply.id;
  const { messages } = shown;
  const path = pathTo(reply.id, messages);
  const run = startAnswer(reply, message ? path : path.slice(0, -1), conversation.settings, () => {
    // What is said of a message that was taken out stays above the next one.
    if (notices.get(id) && !notices.get(id).stays) { notices.delete(id); showNotice(); }
    if (notices.delete("")) loadServer();
    requestGrowth();
  }, error => endAnswer({ conversation, messages, reply, before, sent, error }));
  runs.set(id, run);
  showPath();
  goToEnd();
  announce("The answer is being written");
}

// What is shown changes at once; the database follows.
function endAnswer({ conversation, messages, reply, before, sent, error }) {
  const { id } = conversation, is_shown = currentId() === id, follows = is_shown && isAtEnd();
  if (is_shown) ({ conversation, messages } = shown);  // it may have been opened again meanwhile
  const is_too_long = error?.code === "context_length_exceeded", is_kept = hasText(reply);
  const again = () => { if (currentId() === id) answer(reply.parent); };
  runs.delete(id);
  if (is_too_long && !sent) error.advice = "Start a new conversation, or edit an earlier message so that there is less of it.";
  if (error) notices.set(id, { error, again: is_too_long ? null : again, stays: is_too_long });
  let taken = null;
  if (!is_kept) {
    messages.delete(reply.id);
    conversation.leaf = before;
    if (!error) notices.set(id, { error: failure("Stopped before the answer began."), again });
    if (is_too_long && sent) taken = takeBack(conversation, messages, sent);
  }
  if (is_shown) {
    if (is_kept) showEnd(reply);
    showPath();
    if (follows) goToEnd();
    byId("down").hidden = true;
    countPath();
  }
  announce(error ? "" : "The answer is complete");
  if (server.models.length > 1) loadServer();  // the model may have been loaded for it
  save(async () => {
    await (is_kept ? store.putMessage(reply, false) : store.deleteMessage(reply));
    if (taken) await store.deleteMessage(taken);
    await store.changeConversation(id, { leaf: conversation.leaf, ...(is_kept && { updated: Date.now() }) });
    await conversationList.load();
  });
}

// Takes a message that is too long out of the conversation, and gives its text back.
function takeBack(conversation, messages, sent) {
  messages.delete(sent.id);
  const rest = [...messages.values()].filter(message => message.parent === sent.parent);
  conversation.leaf = sent.parent ?? (rest.length ? newestLeaf(rest.at(-1), messages).id : null);
  if (currentId() !== conversation.id) drafts.set(conversation.id, { text: sent.content, files: sent.files });
  else if (!text.value) setComposer(sent.content, sent.files);
  return sent;
}

// ---- messages

function addMessage(fields) {
  const { conversation } = shown;
  const message = { id: newId(), conversation: conversation.id, created: Date.now(), ...fields };
  shown.messages.set(message.id, message);
  conversation.leaf = message.id;
  conversation.updated = message.created;
  const is_new = shown.is_new;
  if (is_new) {
    conversation.title = titleOf(message.content || message.files[0]?.name || "");
    shown.is_new = false;
    history.replaceState(null, "", "#" + conversation.id);
  }
  showPath();
  save(async () => {
    if (is_new) await store.createConversation({ ...conversation });
    await store.putMessage(message, false);
    await store.changeConversation(conversation.id, { leaf: message.id, updated: message.created });
    await conversationList.load();
  });
  return message;
}

function submit() {
  if (currentRun()) return stop();
  const content = text.value, files = attached.all();
  if (!content.trim() && !files.length) return;
  // A message that got no answer does not stand before this one: it stays as a branch.
  const last = shown.messages.get(shown.conversation.leaf);
  const parent = last?.role === "user" ? last.parent : last?.id ?? null;
  setComposer("", []);
  drafts.delete(draftKey());
  const message = addMessage({ parent, role: "user", content, files });
  answer(message.id, null, message);
}

function stop() { currentRun()?.controller.abort(); }

function saveLeaf() {
  const { id, leaf } = shown.conversation;
  save(() => store.changeConversation(id, { leaf }));
}

const messageActions = {
  edit(message, content) {
    if (currentRun()) return;
    const { parent, role, files } = message;
    if (role === "user") {
      const edited = addMessage({ parent, role, content, files });
      answer(edited.id, null, edited);
    } else {
      const { reasoning_content, reasoning_ms, tool_calls, model } = message;
      addMessage({ parent, role, content, reasoning_content, reasoning_ms, tool_calls, model, finish: "stop", error: "", usage: null, timings: null });
      countPath();
    }
  },
  again(message) { answer(message.parent); },
  proceed(message) { answer(message.parent, message); },
  branch(message, step) {
    const branches = branchesOf(message, shown.messages);
    const other = branches[branches.indexOf(message) + step];
    if (!other || currentRun()) return;
    shown.conversation.leaf = newestLeaf(other, shown.messages).id;
    showPath();
    const view = shown.views.find(v => v.message === other);
    view?.node.querySelector(`[aria-label="${step < 0 ? "Previous" : "Next"} branch"]`)?.focus();
    saveLeaf();
    countPath();
  },
};

// ---- conversations

function leave() {
  if (!shown.conversation) return;
  if (text.value || attached.all().length) drafts.set(draftKey(), { text: text.value, files: attached.all() });
  else drafts.delete(draftKey());
}

function showConversation(conversation, messages, is_new) {
  leave();
  for (const view of shown.views) view.node.remove();
  Object.assign(shown, { conversation, messages, is_new, views: [] });
  byId("notice").shown = null;
  const { text: words, files } = drafts.get(draftKey()) || { text: "", files: [] };
  setComposer(words, files);
  showPath();
  goToEnd();
  byId("down").hidden = true;
  countPath();
}

function startNew() {
  const now = Date.now();
  ++n_opened;
  showConversation({ id: newId(), title: "New conversation", created: now, updated: now, leaf: null, settings: settingsForNew() }, new Map(), true);
  if (location.hash) history.pushState(null, "", location.pathname + location.search);
  if (usesEnter()) text.focus();  // on phones this would open the keyboard
}

// Opens a conversation of the database. False if it is not there.
let n_opened = 0;
async function openConversation(id) {
  const turn = ++n_opened;
  if (shown.conversation && currentId() === id) return true;
  await saving;
  const conversation = await store.conversation(id);
  if (!conversation) return false;
  const messages = new Map((await store.messages(id)).map(message => [message.id, message]));
  if (turn !== n_opened) return true;  // another one was asked for meanwhile
  const run = runs.get(id);
  if (run) {
    messages.set(run.message.id, run.message);
    conversation.leaf = run.message.id;
  }
  // An answer that was cut off by the end of its page is below the last message that was saved as such.
  const last = messages.get(conversation.leaf) || [...messages.values()].at(-1);
  conversation.leaf = last ? newestLeaf(last, messages).id : null;
  conversation.settings = readSettings(conversation.settings);
  showConversation(conversation, messages, false);
  if (location.hash !== "#" + id) history.pushState(null, "", "#" + id);
  return true;
}

async function openAddress() {
  const id = location.hash.slice(1);
  if (!id || !await openConversation(id)) startNew();
}

async function removeConversation(id) {
  runs.get(id)?.controller.abort();
  const records = await save(() => store.deleteConversation(id));
  if (!records?.conversation) return conversationList.load();
  if (currentId() === id) startNew();
  await conversationList.load();
  toast("Deleted: " + records.conversation.title, { label: "Undo", run: async () => {
    await save(() => store.restore([records]));
    await conversationList.load();
    await openConversation(id);
  } });
}

async function exportConversations(ids) {
  const list = [];
  await saving;
  for (const id of ids) list.push({ conversation: await store.conversation(id), messages: await store.messages(id) });
  if (!list.length) return toast("There are no conversations yet.");
  const name = list.length === 1 ? list[0].conversation.title.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 40) : "conversations";
  saveFile("minim-" + name + ".json", exportText(list));
}

async function importConversations(file) {
  try {
    const list = readExport(await file.text());
    await store.restore(list);
    await conversationList.load();
    toast(list.length === 1 ? "One conversation imported." : list.length + " conversations imported.");
    if (list.length) await openConversation(list[0].conversation.id);
  } catch (error) {
    toast(file.name + " was not imported, and nothing is changed: " + error.message + ".");
  }
}

// ---- settings, models

function openSettings(wantsKey) {
  const key = apiKey.get();
  settingsDialog.open(shown.conversation.settings, settings => {
    shown.conversation.settings = settings;
    const { id } = shown.conversation;
    if (!shown.is_new) save(() => store.changeConversation(id, { settings }));
    if (apiKey.get() !== key) loadServer();
  }, wantsKey === true);
}

const statusOf = model => model.status?.value || "";

function showModels() {
  const { models } = server;
  byId("name").hidden = models.length > 1;
  byId("model").hidden = models.length < 2;
  if (!models.length) return;
  if (!models.some(model => model.id === server.model)) {
    const chosen = localStorage.getItem("minim-model");
    server.model = models.find(model => model.id === chosen)?.id || (models.find(model => statusOf(model) === "loaded") || models[0]).id;
  }
  byId("name").textContent = byId("name").title = models[0].id;
  byId("model").replaceChildren(...models.map(model => element("option", { value: model.id }, model.id + (statusOf(model) && statusOf(model) !== "loaded" ? " (" + statusOf(model) + ")" : ""))));
  byId("model").value = server.model;
  showContext();
}

async function loadServer() {
  try {
    server.models = (await getJson("v1/models")).data || [];
    showModels();
    const query = server.models.length > 1 ? "?model=" + encodeURIComponent(server.model) : "";
    server.props = await getJson("props" + query).catch(error => {
      if (["invalid_api_key", "network"].includes(error.code)) throw error;
      return null;  // a model that is not loaded need not have any yet
    });
    notices.delete("");
    counted.leaf = null;
    showState();
    countPath();
  } catch (error) {
    notices.set("", { error, again: loadServer });
    showNotice();
  }
}

// ---- keys, buttons

function showSidebar(is_shown, is_chosen) {
  const is_narrow = matchMedia("(max-width: 48rem)").matches;
  document.body.classList.toggle("folded", !is_shown);
  byId("shade").hidden = !is_shown;
  byId("chat").inert = is_shown && is_narrow;
  if (is_chosen) {
    localStorage.setItem("minim-folded", is_shown || is_narrow ? "" : "1");
    (is_shown ? byId("new") : byId("menu")).focus();
  }
}
const closeOnPhones = () => { if (matchMedia("(max-width: 48rem)").matches) showSidebar(false); };

byId("form").onsubmit = event => { event.preventDefault(); submit(); };
text.onkeydown = event => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing && usesEnter()) {
    event.preventDefault();
    if (!currentRun()) submit();
  }
};
text.oninput = () => { fitText(); countDraft(); };
document.onkeydown = event => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    showSidebar(true);
    byId("search").focus();
    byId("search").select();
  }
  if (event.key === "Escape" && !byId("settings-dialog").open) {
    if (!byId("shade").hidden && matchMedia("(max-width: 48rem)").matches) showSidebar(false, true);
    else stop();
  }
};
log.onscroll = () => { if (!byId("down").hidden && isAtEnd()) byId("down").hidden = true; };
byId("down").onclick = () => { goToEnd(); byId("down").hidden = true; text.focus(); };
byId("skip").onclick = event => { event.preventDefault(); text.focus(); };
byId("new").onclick = () => { closeOnPhones(); startNew(); };
byId("fold").onclick = () => showSidebar(false, true);
byId("menu").onclick = () => showSidebar(true, true);
byId("shade").onclick = () => showSidebar(false, true);
byId("settings").onclick = openSettings;
byId("export").onclick = async () => exportConversations((await store.conversations()).map(conversation => conversation.id));
byId("import").onclick = () => byId("import-file").click();
byId("import-file").onchange = async event => {
  const [file] = event.target.files;
  if (file) await importConversations(file);
  event.target.value = "";
};
byId("model").onchange = () => {
  server.model = byId("model").value;
  localStorage.setItem("minim-model", server.model);
  loadServer();
};
byId("model").onfocus = async () => {
  try { server.models = (await getJson("v1/models")).data; showModels(); } catch { /* the list stays */ }
};
window.onpopstate = openAddress;
attached.onChange(() => { if (shown.conversation) showContext(); });

conversationList.start({
  open: id => { closeOnPhones(); openConversation(id); },
  async rename(id, title) {
    await save(() => store.changeConversation(id, { title }));
    if (currentId() === id) { shown.conversation.title = title; showState(); }
    await conversationList.load();
  },
  remove: removeConversation,
  exportOne: id => exportConversations([id]),
});

// ---- other tabs

let reading = 0;
async function readAgain() {
  reading = 0;
  await saving;
  const id = currentId(), messages = await store.messages(id);
  if (currentId() !== id) return;
  const run = currentRun(), follows = isAtEnd();
  const now = new Map(messages.map(message => [message.id, message]));
  if (run) now.set(run.message.id, run.message);
  for (const [key, message] of now) {
    const old = shown.messages.get(key);
    if (old && run?.message !== old && JSON.stringify(old) === JSON.stringify(message)) now.set(key, old);
  }
  shown.messages.clear();
  for (const [key, message] of now) shown.messages.set(key, message);
  // A message that was added below the last one is shown.
  const last = now.get(shown.conversation.leaf);
  if (last && !run) shown.conversation.leaf = newestLeaf(last, now).id;
  showPath();
  if (follows) goToEnd();
}

store.onChange(event => {
  if (event.kind === "message") {
    if (event.is_growing) {
      elsewhere.set(event.id, Date.now());
      setTimeout(() => { for (const view of shown.views) if (view.message.id === event.id) view.refresh(); }, 3100);  // that tab may be gone
    } else {
      elsewhere.delete(event.id);
    }
    if (event.conversation === currentId() && !shown.is_new) reading ||= setTimeout(readAgain, 150);
    if (event.is_growing) return;
  }
  if (event.kind === "deleted") {
    runs.get(event.conversation)?.controller.abort();
    if (event.conversation === currentId()) { startNew(); toast("This conversation was deleted in another tab."); }
  }
  if (event.kind === "list") readTitle();
  conversationList.load();
});

async function readTitle() {
  const conversation = await store.conversation(currentId());
  if (conversation?.id !== currentId() || conversation.title === shown.conversation.title) return;
  shown.conversation.title = conversation.title;
  showState();
}

(async () => {
  const narrow = matchMedia("(max-width: 48rem)"), fitSidebar = () => showSidebar(!narrow.matches && !localStorage.getItem("minim-folded"));
  narrow.onchange = fitSidebar;
  fitSidebar();
  await store.start();
  await openAddress();
  document.body.classList.add("ready");
  loadServer();
  await conversationList.load();
})();
