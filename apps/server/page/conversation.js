// SPDX-License-Identifier: Apache-2.0
// A conversation as a tree of messages: the path that is shown, branches, what is sent to the server, export and import.
"use strict";

// Returns the messages from the first one to `leaf`.
function pathTo(leaf, messages) {
  const path = [];
  for (let message = messages.get(leaf); message && path.length <= messages.size; message = messages.get(message.parent)) path.unshift(message);
  return path;
}

function branchesOf(message, messages) {
  return [...messages.values()].filter(other => other.parent === message.parent)
    .sort((a, b) => a.created - b.created || (a.id < b.id ? -1 : 1));
}

// Returns the last message below this one, by the newest branch each time.
function newestLeaf(message, messages) {
  for (;;) {
    const children = [...messages.values()].filter(other => other.parent === message.id);
    if (!children.length) return message;
    message = children.reduce((a, b) => (b.created >= a.created ? b : a));
  }
}

const isCut = message => message.role === "assistant" && (message.finish == null || ["length", "stopped", "error"].includes(message.finish));

// The text of a message with its files. A fence is longer than any in the file.
function textWithFiles(message) {
  const blocks = (message.files || []).map(file => {
    const longest = (file.text.match(/`{3,}/g) || []).reduce((n, run) => Math.max(n, run.length), 2);
    const fence = "`".repeat(longest + 1);
    return "File " + file.name + ":\n" + fence + "\n" + file.text.replace(/\n$/, "") + "\n" + fence + "\n\n";
  });
  return blocks.join("") + message.content;
}

// Returns the messages of a request.
function toRequest(path, system) {
  const messages = system ? [{ role: "system", content: system }] : [];
  for (const message of path) {
    if (message.role === "user") messages.push({ role: "user", content: textWithFiles(message) });
    if (message.role === "tool") messages.push({ role: "tool", content: message.content, tool_call_id: message.tool_call_id });
    if (message.role === "system") messages.push({ role: "system", content: message.content });
    if (message.role !== "assistant") continue;
    const sent = { role: "assistant", content: message.content };
    if (message.reasoning_content) sent.reasoning_content = message.reasoning_content;
    if (message.tool_calls?.length) sent.tool_calls = message.tool_calls;
    messages.push(sent);
  }
  return messages;
}

function titleOf(text) {
  const line = text.trim().split("\n")[0].replace(/\s+/g, " ");
  return line.length > 60 ? line.slice(0, 59).trimEnd() + "…" : line || "New conversation";
}

// ---- export and import

const exportFormat = "minim-conversations";

function exportText(list) {
  return JSON.stringify({ format: exportFormat, version: 1, exported: new Date().toISOString(),
    conversations: list.map(({ conversation, messages }) => ({ ...conversation, messages })) }, null, 1);
}

// Reads a file of conversations: a whole file or an error that says what is wrong. Returns [{conversation, messages}] with new ids, so that
// nothing that is there is replaced. Messages without ids are one after the other.
function readExport(text) {
  const fail = what => { throw new Error(what); };
  let data;
  try { data = JSON.parse(text); } catch (error) { fail("it is not JSON (" + error.message + ")"); }
  if (data === null || typeof data !== "object") fail("it has no conversations");
  if (data.format !== undefined && data.format !== exportFormat) fail("its format is '" + String(data.format).slice(0, 40) + "', not '" + exportFormat + "'");
  if (data.version !== undefined && data.version !== 1) fail("its version is " + String(data.version).slice(0, 20) + "; this page reads version 1");
  const conversations = Array.isArray(data.messages) ? [data] : data.conversations;
  if (!Array.isArray(conversations)) fail("it has no list 'conversations'");
  return conversations.map((given, i) => {
    const place = "conversation " + (i + 1);
    if (given === null || typeof given !== "object" || !Array.isArray(given.messages)) fail(place + " has no list 'messages'");
    return readConversation(given, place, fail);
  });
}

function readConversation(given, place, fail) {
  const now = Date.now(), id = newId(), ids = new Map();
  const text = (value, name, where) => {
    if (value == null) return "";
    return typeof value === "string" ? value : fail(where + ": '" + name + "' must be a string");
  };
  const time = value => (Number.isFinite(value) ? value : now);
  const messages = given.messages.map((message, k) => {
    const where = place + ", message " + (k + 1);
    if (message === null || typeof message !== "object") fail(where + " is not an object");
    if (!["user", "assistant", "tool", "system"].includes(message.role))
      fail(where + ": the role is '" + String(message.role).slice(0, 40) + "'; it must be user, assistant, tool or system");
    const own = newId();
    if (message.id !== undefined) {
      if (typeof message.id !== "string" || ids.has(message.id)) fail(where + ": its id is not a string, or is there twice");
      ids.set(message.id, own);
    }
    const read = { id: own, conversation: id, parent: message.parent, created: time(message.created), role: message.role,
      content: text(message.content, "content", where) };
    if (message.role === "user") read.files = readFiles(message.files, where, text, fail);
    if (message.role === "tool") Object.assign(read, { tool_call_id: text(message.tool_call_id, "tool_call_id", where), name: text(message.name, "name", where) });
    if (message.role === "assistant") Object.assign(read, readAnswer(message, where, text, fail));
    return read;
  });
  const places = new Map(messages.map((message, k) => [message.id, k]));
  messages.forEach((message, k) => {
    if (given.messages[k].id === undefined) message.parent = k ? messages[k - 1].id : null;
    else if (message.parent == null) message.parent = null;
    else message.parent = ids.get(message.parent) ?? fail(place + ", message " + (k + 1) + ": its parent is not there");
    // Each parent comes before its messages, as this page writes them: there can be no circle.
    if (message.parent !== null && places.get(message.parent) >= k) fail(place + ", message " + (k + 1) + " comes before its parent");
  });
  const first = messages.find(message => message.role === "user");
  const title = text(given.title, "title", place) || titleOf(first ? first.content : "");
  const leaf = ids.get(given.leaf) ?? messages.at(-1)?.id ?? null;
  return { messages, conversation: { id, title: title.slice(0, 200), created: time(given.created), updated: time(given.updated), leaf,
    settings: readSettings(given.settings) } };
}

function readFiles(files, where, text, fail) {
  if (files == null) return [];
  if (!Array.isArray(files)) fail(where + ": 'files' must be a list");
  return files.map(file => ({ name: text(file?.name, "name", where), text: text(file?.text, "text", where),
    n_tokens: Number.isFinite(file?.n_tokens) ? file.n_tokens : null }));
}

function readAnswer(message, where, text, fail) {
  const calls = message.tool_calls ?? [];
  if (!Array.isArray(calls)) fail(where + ": 'tool_calls' must be a list");
  const numbers = given => (given && typeof given === "object" ? given : null);
  return {
    reasoning_content: text(message.reasoning_content, "reasoning_content", where),
    reasoning_ms: Number.isFinite(message.reasoning_ms) ? message.reasoning_ms : null,
    tool_calls: calls.map(call => ({ id: text(call?.id, "id", where), type: "function",
      function: { name: text(call?.function?.name, "name", where), arguments: text(call?.function?.arguments, "arguments", where) } })),
    model: text(message.model, "model", where), finish: text(message.finish, "finish", where) || "stop", error: text(message.error, "error", where),
    usage: numbers(message.usage), timings: numbers(message.timings) };
}
