// SPDX-License-Identifier: Apache-2.0
// Markdown to elements. The parser's tokens become elements of a fixed set here, with their text as text nodes: no markup of an answer
// is ever parsed as HTML, and nothing in it can be executed or fetched.
"use strict";

const { hljs } = highlighter;

// Longer paragraphs are shown as plain text: the parser takes quadratic time for some of them (6,000 characters: up to 50 ms).
const maxInline = 6000;
// Longer code has no colours.
const maxColoured = 20000;
const maxDepth = 40;

const entities = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", copy: "©", reg: "®", trade: "™", hellip: "…", mdash: "—",
  ndash: "–", lsquo: "‘", rsquo: "’", ldquo: "“", rdquo: "”", laquo: "«", raquo: "»", bull: "•", middot: "·", times: "×", divide: "÷",
  plusmn: "±", deg: "°", le: "≤", ge: "≥", ne: "≠", larr: "←", rarr: "→", uarr: "↑", darr: "↓", harr: "↔", rArr: "⇒", infin: "∞",
  euro: "€", pound: "£", sect: "§", para: "¶", micro: "µ", frac12: "½", alpha: "α", beta: "β", gamma: "γ", delta: "δ", lambda: "λ",
  mu: "μ", pi: "π", sigma: "σ", omega: "ω" };

function decodeEntities(text) {
  return text.replace(/&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|([A-Za-z][A-Za-z0-9]{1,9}));/g, (whole, decimal, hex, name) => {
    if (name) return Object.hasOwn(entities, name) ? entities[name] : whole;
    const code = decimal ? parseInt(decimal, 10) : parseInt(hex, 16);
    return code > 0 && code <= 0x10ffff && !(code >= 0xd800 && code < 0xe000) ? String.fromCodePoint(code) : "\ufffd";
  });
}

// Formulas: $x$, $$x$$, \(x\) and \[x\] become tokens of their own, so that their underscores and backslashes stay.
const formula = (type, level, start, rule) => ({ name: type, level, start: text => { const at = text.search(start); return at < 0 ? undefined : at; },
  tokenizer: text => {
    const found = rule.exec(text);
    return found ? { type, raw: found[0], text: (found[1] ?? found[2]).trim() } : undefined;
  } });
marked.use({ breaks: true, extensions: [
  formula("formulaBlock", "block", /(?:^|\n)(?:\$\$|\\\[)/, /^(?:\$\$([^$]{1,4000}?)\$\$|\\\[([^]{1,4000}?)\\\])[ \t]*(?:\n+|$)/),
  formula("formula", "inline", /\$|\\[([]/, /^(?:\$\$?(?![\s$])([^$\n]{0,500}?[^\s$\\])\$\$?(?!\d)|\\[([](.{1,500}?)\\[)\]])/),
] });

// The tree of the highlighter as elements: spans with a class, and text.
function colouredNodes(tree, parent) {
  for (const child of tree.children) {
    if (typeof child === "string") parent.append(child);
    else colouredNodes(child, child.scope ? parent.appendChild(element("span", { class: "hl-" + child.scope.split(".")[0] })) : parent);
  }
}

function colourCode(code, language) {
  const text = code.textContent;
  if (!language || text.length > maxColoured || !hljs.getLanguage(language)) return;
  const root = document.createDocumentFragment();
  colouredNodes(hljs.highlight(text, { language, ignoreIllegals: true })._emitter.rootNode, root);
  code.replaceChildren(root);
}

function languageOf(token) { return (token.lang || "").trim().split(/[\s{:,]/)[0].slice(0, 30); }

function codeBlock(token) {
  const language = languageOf(token);
  const code = element("code", {}, token.text);
  colourCode(code, language.toLowerCase());
  return element("div", { class: "code" },
    element("div", { class: "code-head" }, element("span", {}, language || "text"), copyButton("Copy the code", () => code.textContent)),
    element("pre", { tabindex: "0" }, code));
}

// Returns the address of a link, or null if it is not one of those that may be opened.
function safeAddress(href) {
  try {
    const url = new URL(decodeEntities(href));
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function linkTo(href, title) {
  const address = safeAddress(href);
  if (!address) return element("span", { class: "blocked", title: "This link is not shown: only http, https and mailto links are" });
  return element("a", { href: address, target: "_blank", rel: "noopener noreferrer", title: title || address });
}

function inlineNodes(tokens, parent, depth) {
  for (const token of tokens || []) {
    if (depth > maxDepth) { parent.append(token.raw); continue; }
    switch (token.type) {
      case "strong": case "em": case "del":
        inlineNodes(token.tokens, parent.appendChild(element(token.type)), depth + 1);
        break;
      case "codespan": parent.append(element("code", {}, token.text)); break;
      case "br": parent.append(element("br")); break;
      case "link": inlineNodes(token.tokens, parent.appendChild(linkTo(token.href, token.title)), depth + 1); break;
      case "image": {  // never fetched: a link in its place
        const node = parent.appendChild(linkTo(token.href, token.title));
        node.classList.add("image");
        node.append(icon("image"), decodeEntities(token.text) || "image");
        break;
      }
      case "html":
        if (/^<br\s*\/?>$/i.test(token.text)) parent.append(element("br"));
        else parent.append(token.text);
        break;
      case "checkbox": parent.append(element("span", { class: "box", role: "img", "aria-label": token.checked ? "done" : "open" }, token.checked ? "☑ " : "☐ ")); break;
      case "formula": parent.append(element("code", { class: "formula" }, token.text)); break;
      case "escape": parent.append(token.text); break;
      default:
        if (token.tokens) inlineNodes(token.tokens, parent, depth + 1);
        else parent.append(decodeEntities(token.text ?? token.raw));
    }
  }
}

function listItem(item, depth) {
  const node = element("li", { class: item.task && "task" });
  for (const token of item.tokens) {
    if (token.type === "text" || token.type === "checkbox") inlineNodes([token], node, depth + 1);
    else blockNodes([token], node, depth + 1);
  }
  return node;
}

function listOf(token) { return token.ordered ? element("ol", { start: token.start === 1 ? null : token.start }) : element("ul"); }

function tableOf(token, depth) {
  const row = (cells, kind) => {
    const node = element("tr");
    cells.forEach((cell, i) => {
      const box = node.appendChild(element(kind, { class: token.align[i] && "to-" + token.align[i], scope: kind === "th" && "col" }));
      inlineNodes(cell.tokens, box, depth + 1);
    });
    return node;
  };
  const body = element("tbody");
  for (const cells of token.rows) body.append(row(cells, "td"));
  return element("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Table" },
    element("table", {}, element("thead", {}, row(token.header, "th")), body));
}

function blockNodes(tokens, parent, depth = 0) {
  for (const token of tokens) {
    if (depth > maxDepth) { parent.append(token.raw); continue; }
    switch (token.type) {
      case "space": case "def": break;
      case "heading": inlineNodes(token.tokens, parent.appendChild(element("h" + token.depth)), depth + 1); break;
      case "paragraph": inlineNodes(token.tokens, parent.appendChild(element("p")), depth + 1); break;
      case "text": inlineNodes(token.tokens || [token], parent.appendChild(element("p")), depth + 1); break;
      case "code": parent.append(codeBlock(token)); break;
      case "blockquote": blockNodes(token.tokens, parent.appendChild(element("blockquote")), depth + 1); break;
      case "hr": parent.append(element("hr")); break;
      case "list": {
        const list = parent.appendChild(listOf(token));
        for (const item of token.items) list.append(listItem(item, depth + 1));
        break;
      }
      case "table": parent.append(tableOf(token, depth)); break;
      case "formulaBlock": parent.append(element("pre", { class: "formula", tabindex: "0" }, token.text)); break;
      case "html": parent.append(element("p", { class: "raw" }, token.text.trimEnd())); break;
      default: inlineNodes([token], parent.appendChild(element("p")), depth + 1);
    }
  }
}

// The parser's tokens of a text. `links`: addresses of the references above it; those of this text are added.
function lexMarkdown(text, links) {
  const lexer = new marked.Lexer();
  Object.assign(lexer.tokens.links, links);
  try {
    lexer.blockTokens(text, lexer.tokens);
    for (const { src, tokens } of lexer.inlineQueue) {
      if (src.length > maxInline) tokens.push({ type: "escape", raw: src, text: src });
      else lexer.inlineTokens(src, tokens);
    }
  } catch (error) {  // nested too deeply for the parser
    if (!(error instanceof RangeError)) throw error;
    return [{ type: "paragraph", raw: text, tokens: [{ type: "escape", raw: text, text }] }];
  }
  Object.assign(links, lexer.tokens.links);
  return [...lexer.tokens];
}

// The item of a list that became loose, as the parser makes it: its texts are paragraphs.
function looseItem(item) {
  const [first, second, ...rest] = item.tokens.map(token => (token.type === "text" ? { ...token, type: "paragraph" } : token));
  if (first?.type !== "checkbox") return { ...item, tokens: first ? [first, ...(second ? [second] : []), ...rest] : [] };
  const tokens = second?.type === "paragraph" ? [{ ...second, tokens: [first, ...second.tokens] }, ...rest] : [{ type: "paragraph", raw: first.raw, tokens: [first] }, second, ...rest];
  return { ...item, tokens: tokens.filter(Boolean) };
}

// A formula that is not closed yet would be read as other blocks: it stays text until it is.
const maxFormula = 4000;
function holdFormula(tokens, text) {
  let at = 0;
  for (const [i, token] of tokens.entries()) {
    if (token.type === "paragraph" && /^(?:\$\$|\\\[)/.test(token.raw) && text.length - at < maxFormula) {
      const raw = text.slice(at);
      return [...tokens.slice(0, i), { type: "paragraph", raw, is_held: true, tokens: [{ type: "escape", raw, text: raw }] }];
    }
    at += token.raw.length;
  }
  return tokens;
}

// A view of Markdown that grows: update(text) with a text that the last one begins. Blocks that cannot change any more stay; only the
// last one is parsed and made again, of a list the last two items.
function markdownView(parent) {
  let whole = "", n_done = 0, links = Object.create(null), has_references = false;
  let open = null;      // {node, token}: the last block
  let openList = null;  // {node, marker, items, is_loose}: a list whose first items are done

  function clear() {
    n_done = 0;
    open = openList = null;
    links = Object.create(null);
    parent.replaceChildren();
  }

  // The character that tells lists apart: - * + . or )
  const markerOf = token => token.ordered ? /\d([.)])/.exec(token.raw)?.[1] : token.raw.trimStart()[0];
  const continuesList = token => openList && token.type === "list" && markerOf(token) === openList.marker;

  // Adds items to the open list, which is loose as a whole if one of its parts is.
  function appendItems(token, items) {
    if (token.loose && !openList.is_loose) {
      openList.is_loose = true;
      openList.node.replaceChildren(...openList.items.map(item => listItem(looseItem(item), 1)));
    }
    return items.map(item => openList.node.appendChild(listItem(openList.is_loose && !token.loose ? looseItem(item) : item, 1)));
  }

  // Shows a block that is done.
  function finish(token) {
    if (continuesList(token)) {
      appendItems(token, token.items);
      openList.items.push(...token.items);
      return;
    }
    if (token.type !== "space") openList = null;
    blockNodes([token], parent);
  }

  function showOpen(token) {
    if (open && token.type === "code" && open.token.type === "code" && languageOf(open.token) === languageOf(token)) {
      const code = open.node.querySelector("code");
      const shown = open.token.text;
      if (token.text.length < 3000 || !token.text.startsWith(shown) || !code.lastChild) {
        code.textContent = token.text;
        if (token.text.length < 3000) colourCode(code, languageOf(token).toLowerCase());
      } else if (token.text.length > shown.length) {
        code.append(token.text.slice(shown.length));
      }
      open.token = token;
      return;
    }
    removeOpen();
    if (continuesList(token)) {
      open = { node: null, items: appendItems(token, token.items), token };
      return;
    }
    const box = document.createDocumentFragment();
    blockNodes([token], box);
    open = { node: box.firstChild, token };
    parent.append(box);
  }

  function removeOpen() {
    if (!open) return;
    open.node?.remove();
    for (const item of open.items || []) item.remove();
    open = null;
  }

  // Moves the items of an open list that are done out of the text that is parsed again.
  function splitList(token, text) {
    const n_items = token.items.length - 2;
    if (n_items < 1) return token;
    const done = token.items.slice(0, n_items).map(item => item.raw).join("");
    if (!text.startsWith(done)) return token;
    removeOpen();
    if (!continuesList(token)) {
      openList = { node: parent.appendChild(listOf(token)), marker: markerOf(token), items: [], is_loose: token.loose };
    }
    const items = token.items.slice(0, n_items);
    appendItems(token, items);
    openList.items.push(...items);
    n_done += done.length;
    return { ...token, items: token.items.slice(n_items), raw: token.raw.slice(done.length) };
  }

  return {
    update(text) {
      text = text.replaceAll("\r", "");
      if (!text.startsWith(whole)) clear();
      else if (text.length === whole.length) return;
      whole = text;
      const rest = whole.slice(n_done);
      const tokens = holdFormula(lexMarkdown(rest, links), rest);
      has_references ||= tokens.some(token => token.type === "def");
      let last = tokens.length - 1;
      while (last > 0 && tokens[last].type === "space") --last;
      if (last > 0) {
        removeOpen();
        for (const token of tokens.slice(0, last)) {
          finish(token);
          n_done += token.raw.length;
        }
      }
      let token = tokens[last];
      if (!token || token.type === "space") return;
      if (token.type === "list") token = splitList(token, whole.slice(n_done));
      else openList = null;
      showOpen(token);
    },
    // The text is complete: colours and references that came late.
    end() {
      if (open?.token.is_held) {
        removeOpen();
        blockNodes(lexMarkdown(whole.slice(n_done), links), parent);
      }
      const code = open?.token.type === "code" && open.node.querySelector("code");
      if (code) { code.textContent = open.token.text; colourCode(code, languageOf(open.token).toLowerCase()); }
      if (!has_references) return;
      clear();
      const all = Object.create(null);
      lexMarkdown(whole, all);
      blockNodes(lexMarkdown(whole, all), parent);
    },
  };
}
