// SPDX-License-Identifier: Apache-2.0
// One answer while it is written: the request, its stream, and how it ends.
"use strict";

// Adds what a chunk has to a message.
function addChunk(message, chunk, run) {
  if (chunk.error) throw failure(chunk.error.message || String(chunk.error), "Continue the answer, or let it be written again.", chunk.error.code || "");
  if (chunk.usage) message.usage = chunk.usage;
  if (chunk.timings) message.timings = chunk.timings;
  const choice = chunk.choices?.[0];
  if (!choice) return;
  const delta = choice.delta || {};
  const thought = delta.reasoning_content ?? delta.reasoning;
  if (thought) {
    run.thinksSince ??= performance.now();
    message.reasoning_content += thought;
  }
  if ((delta.content || delta.tool_calls) && run.thinksSince != null && message.reasoning_ms === run.thoughtBefore) endThought(message, run);
  if (delta.content) message.content += delta.content;
  for (const part of delta.tool_calls || []) {
    const call = message.tool_calls[part.index ?? 0] ??= { id: "", type: "function", function: { name: "", arguments: "" } };
    if (part.id) call.id = part.id;
    call.function.name += part.function?.name || "";
    call.function.arguments += part.function?.arguments || "";
  }
  if (choice.finish_reason) message.finish = choice.finish_reason;
}

function endThought(message, run) {
  if (run.thinksSince == null) return;
  message.reasoning_ms = (run.thoughtBefore || 0) + performance.now() - run.thinksSince;
  run.thinksSince = null;
}

const hasText = message => !!(message.content || message.reasoning_content || message.tool_calls?.length);

// Starts an answer. `onGrow` is called for each chunk, `onEnd(error)` once; error: undefined if it came to its end or was stopped.
function startAnswer(message, path, settings, onGrow, onEnd) {
  const continues = hasText(message);
  const run = { message, controller: new AbortController(), thinksSince: null, thoughtBefore: message.reasoning_ms };
  Object.assign(message, { finish: null, error: "" });
  const body = withModel({ messages: toRequest(path, settings.system), stream: true, stream_options: { include_usage: true }, ...settingsFields(settings),
    ...(continues && { continue_final_message: true, add_generation_prompt: false }) });
  // The text so far is kept while it is written, for a page that is closed.
  const timer = setInterval(() => { if (hasText(message)) store.putMessage(message, true).catch(() => {}); }, 1000);
  (async () => {
    let error;
    try {
      const response = await request("v1/chat/completions", { method: "POST", body: JSON.stringify(body), signal: run.controller.signal });
      onGrow(run);
      for await (const chunk of chunksOf(response)) {
        addChunk(message, chunk, run);
        onGrow(run);
      }
      message.finish ??= "stop";
    } catch (caught) {
      if (caught.name === "AbortError") message.finish ??= "stopped";
      else error = caught;
    }
    clearInterval(timer);
    endThought(message, run);
    if (error) Object.assign(message, { finish: "error", error: error.message });
    message.tool_calls = message.tool_calls.filter(Boolean);
    onEnd(error);
  })();
  return run;
}
