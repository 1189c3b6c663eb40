// SPDX-License-Identifier: Apache-2.0
// The settings of a conversation: system prompt, thinking and sampling. What is not set is the server's default.
"use strict";

// Fields of a request. `default` is their name in /props.
const samplingFields = [
  { name: "temperature", label: "Temperature", min: 0, max: 5, step: "any" },
  { name: "top_p", label: "Top-p", min: 0, max: 1, step: "any" },
  { name: "top_k", label: "Top-k", min: 0, step: 1 },
  { name: "min_p", label: "Min-p", min: 0, max: 1, step: "any" },
  { name: "repeat_penalty", label: "Repeat penalty", min: 0.01, max: 10, step: "any" },
  { name: "presence_penalty", label: "Presence penalty", min: -2, max: 2, step: "any", fallback: "0" },
  { name: "frequency_penalty", label: "Frequency penalty", min: -2, max: 2, step: "any", fallback: "0" },
  { name: "max_tokens", label: "Max answer tokens", min: 1, step: 1, fallback: "no limit" },
  { name: "thinking_budget_tokens", label: "Max thinking tokens", min: 1, step: 1, fallback: "no limit" },
  { name: "seed", label: "Seed", min: 0, step: 1, fallback: "random" },
];

const noSettings = () => ({ system: "", thinks: true, sampling: {} });

// Reads settings from a file or the browser's storage; what is not understood is left out.
function readSettings(given) {
  const settings = noSettings();
  if (given === null || typeof given !== "object") return settings;
  if (typeof given.system === "string") settings.system = given.system;
  settings.thinks = given.thinks !== false;
  for (const { name } of samplingFields)
    if (Number.isFinite(given.sampling?.[name])) settings.sampling[name] = given.sampling[name];
  return settings;
}

function settingsForNew() {
  try { return readSettings(JSON.parse(localStorage.getItem("minim-settings"))); } catch { return noSettings(); }
}

// The fields that settings add to a request.
function settingsFields(settings) { return settings.thinks ? { ...settings.sampling } : { ...settings.sampling, enable_thinking: false }; }

const settingsDialog = (() => {
  const dialog = byId("settings-dialog"), inputs = {};
  let save = null;
  for (const field of samplingFields) {
    inputs[field.name] = element("input", { type: "number", name: field.name, min: field.min, max: field.max, step: field.step, inputmode: "decimal" });
    byId("sampling").append(element("label", {}, field.label, inputs[field.name]));
  }
  const close = () => dialog.close();
  byId("settings-close").onclick = byId("settings-cancel").onclick = close;
  byId("settings-reset").onclick = () => {
    byId("system").value = "";
    byId("thinking").checked = true;
    for (const input of Object.values(inputs)) input.value = "";
  };
  byId("settings-form").onsubmit = event => {
    event.preventDefault();
    const settings = { system: byId("system").value.trim(), thinks: byId("thinking").checked, sampling: {} };
    for (const [name, input] of Object.entries(inputs))
      if (input.value !== "") settings.sampling[name] = Number(input.value);
    apiKey.set(byId("key").value, byId("keep-key").checked);
    if (byId("for-new").checked) localStorage.setItem("minim-settings", JSON.stringify(settings));
    close();
    save(settings);
  };
  return {
    open(settings, onSave, wantsKey) {
      save = onSave;
      byId("system").value = settings.system;
      byId("thinking").checked = settings.thinks;
      byId("for-new").checked = false;
      byId("key").value = apiKey.get();
      byId("keep-key").checked = apiKey.isKept();
      const defaults = server.props?.default_generation_settings;
      byId("defaults-hint").textContent = "Empty fields take " + (defaults?.recommended_by ? "the checkpoint's values (" + defaults.recommended_by + ")" :
        "the server's values") + ", which they show.";
      for (const field of samplingFields) {
        const value = defaults?.params?.[field.name];
        inputs[field.name].placeholder = value === undefined ? field.fallback || "" : String(Math.round(value * 1e4) / 1e4);
        inputs[field.name].value = settings.sampling[field.name] ?? "";
      }
      dialog.showModal();
      if (wantsKey) byId("key").focus();
    },
  };
})();
