// SPDX-License-Identifier: Apache-2.0
// Requests to the server, and what its errors mean to a user.
"use strict";

const apiKey = {
  get: () => sessionStorage.getItem("minim-key") || localStorage.getItem("minim-key") || "",
  isKept: () => localStorage.getItem("minim-key") !== null,
  set(key, is_kept) {
    sessionStorage.removeItem("minim-key");
    localStorage.removeItem("minim-key");
    if (key) (is_kept ? localStorage : sessionStorage).setItem("minim-key", key);
  },
};

// An error with what the user can do about it. code: the server's, "network", or "".
function failure(message, advice, code) { return Object.assign(new Error(message), { advice, code }); }

const advices = {
  400: "Change the message or the settings and try again.",
  401: "Enter the server's API key in the settings.",
  403: "The log of the server says which option allows this.",
  404: "Choose another model, or check that the address of this page is that of the server.",
  413: "The message is too large for the server. Send less at once.",
  429: "The server is busy: wait a little, then try again.",
  503: "The server cannot answer now: wait until it runs again, then try again.",
};

async function failureOf(response) {
  let message = "", code = "";
  try {
    const { error } = await response.json();
    message = typeof error === "string" ? error : error.message;
    code = error.code || "";
  } catch { /* not the server's own answer: a proxy's, without JSON */ }
  message ||= "The server answered " + response.status + " " + response.statusText + ".";
  if (code === "context_length_exceeded")
    return failure(message, "Your message is back in the field below: shorten it, take out files, or start a new conversation.", code);
  if (response.status === 401) code = "invalid_api_key";
  return failure(message, advices[response.status] || "Try again; the log of the server says more.", code);
}

async function request(path, options) {
  const headers = { "Content-Type": "application/json" };
  if (apiKey.get()) headers.Authorization = "Bearer " + apiKey.get();
  let response;
  try {
    response = await fetch(base + path, { headers, ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw failure("The server cannot be reached.", "Check that it runs and that this machine is connected, then try again.", "network");
  }
  if (!response.ok) throw await failureOf(response);
  return response;
}

const getJson = async path => (await request(path)).json();
const postJson = async (path, body) => (await request(path, { method: "POST", body: JSON.stringify(body) })).json();

// Yields the chunks of a stream of server-sent events.
async function* chunksOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", has_ended = false;
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      break;
    }
    if (part.done) break;
    const blocks = (rest + part.value).replaceAll("\r\n", "\n").split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.split("\n").filter(line => line.startsWith("data:")).map(line => line.slice(5).trimStart()).join("\n");
      if (data === "[DONE]") has_ended = true;
      else if (data) yield JSON.parse(data);
    }
  }
  if (!has_ended) throw failure("The connection to the server broke.", "What came is kept: continue the answer, or let it be written again.", "network");
}

// What the server says about itself. Without an answer yet: no models.
const server = { models: [], props: null, model: "" };

function contextSize() {
  const entry = server.models.find(model => model.id === server.model);
  return entry?.meta?.n_ctx || entry?.max_model_len || server.props?.default_generation_settings?.n_ctx || 0;
}

// Adds the chosen model to a request if there is a choice.
const withModel = body => (server.models.length > 1 ? { model: server.model, ...body } : body);

async function countTokens(text) { return (await postJson("tokenize", withModel({ content: text, parse_special: false }))).count; }
