// SPDX-License-Identifier: Apache-2.0
// Text files that go with the next message.
"use strict";

const maxFileBytes = 5e6;

// A chip for a file. `onRemove`: null for those of a message that was sent.
function fileChip(file, onRemove) {
  const size = file.n_tokens == null ? bytesText(new Blob([file.text]).size) : numberText(file.n_tokens) + " tokens";
  return element("span", { class: "chip" }, icon("file"), element("span", {}, file.name), element("small", {}, size),
    onRemove && iconButton("close", "Remove " + file.name, onRemove));
}

async function readTextFile(file) {
  if (file.size > maxFileBytes) throw new Error(file.name + " has " + bytesText(file.size) + "; at most " + bytesText(maxFileBytes) + " are possible.");
  const bytes = await file.arrayBuffer();
  let text;
  try { text = new TextDecoder("utf-8", { fatal: true }).decode(bytes); } catch { text = "\0"; }
  if (text.includes("\0")) throw new Error(file.name + " is not a text file in UTF-8. Only text files can be attached.");
  return { name: file.name, text, n_tokens: null };
}

const attached = (() => {
  let files = [], onChange = () => {};
  function show() {
    byId("files").replaceChildren(...files.map(file => fileChip(file, () => {
      files = files.filter(other => other !== file);
      show();
      byId("text").focus();
    })));
    onChange();
  }
  async function add(list) {
    for (const one of list) {
      let file;
      try { file = await readTextFile(one); } catch (error) { toast(error.message); continue; }
      files.push(file);
      show();
      countTokens(file.text).then(n => { file.n_tokens = n; show(); }).catch(() => {});  // its size in bytes stays
    }
  }
  const composer = document.querySelector(".composer");
  byId("attach").onclick = () => byId("attach-file").click();
  byId("attach-file").onchange = async event => {
    await add([...event.target.files]);
    event.target.value = "";
    byId("text").focus();
  };
  // Everywhere on the page: a browser would leave the page for a file that falls beside the field.
  document.ondragover = event => {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    composer.classList.add("drop");
  };
  document.ondragleave = event => { if (!event.relatedTarget) composer.classList.remove("drop"); };
  document.ondrop = event => {
    composer.classList.remove("drop");
    if (!event.dataTransfer.files.length) return;
    event.preventDefault();
    add([...event.dataTransfer.files]);
  };
  byId("text").addEventListener("paste", event => {
    if (!event.clipboardData.files.length) return;
    event.preventDefault();
    add([...event.clipboardData.files]);
  });
  return {
    add, show,
    all: () => files,
    set(list) { files = list; show(); },
    nTokens: () => files.reduce((n, file) => n + (file.n_tokens ?? Math.ceil(file.text.length / 4)), 0),
    onChange(run) { onChange = run; },
  };
})();
