// SPDX-License-Identifier: Apache-2.0
// Conversations in the browser's database. Every message is a record of its own, and a conversation changes by reading and writing it in
// one transaction: tabs that write at the same time lose nothing of each other.
//
// conversation: {id, title, created, updated, leaf, settings}   leaf: id of the last message that is shown
// message: {id, conversation, parent, created, role, content, ...}   parent: id or null; messages with the same parent are branches
//   user: files: [{name, text, n_tokens}]
//   assistant: reasoning_content, reasoning_ms, tool_calls, model, finish, error, usage, timings
//   tool: tool_call_id, name
// finish: "stop", "length", "tool_calls", ... of the server, "stopped" by the user, "error"; null while the answer grows
"use strict";

const newId = () => Date.now().toString(36) + "-" + [...crypto.getRandomValues(new Uint8Array(8))].map(x => x.toString(16).padStart(2, "0")).join("");

// Directory of this page: the paths of the server are below it, also behind a path prefix.
const base = location.pathname.endsWith("/") ? location.pathname : location.pathname + "/";

const store = (() => {
  const channel = "BroadcastChannel" in window ? new BroadcastChannel("minim" + base) : null;
  let database = null;
  const memory = { conversations: new Map(), messages: new Map() };  // if the browser has no database for this page

  const asPromise = request => new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

  function open() {
    return new Promise((resolve, reject) => {
      const request = indexedDB.open("minim" + base, 1);
      request.onupgradeneeded = () => {
        request.result.createObjectStore("conversations", { keyPath: "id" });
        request.result.createObjectStore("messages", { keyPath: "id" }).createIndex("conversation", "conversation");
      };
      request.onsuccess = () => {
        request.result.onversionchange = () => request.result.close();
        resolve(request.result);
      };
      request.onerror = () => reject(request.error);
      request.onblocked = () => reject(new Error("another tab keeps the database"));
    });
  }

  // Runs `work` with the two object stores, and returns its result once all of it is written.
  async function transact(mode, work) {
    if (!database) return work(memoryStores());
    const transaction = database.transaction(["conversations", "messages"], mode);
    const done = new Promise((resolve, reject) => {
      transaction.oncomplete = resolve;
      transaction.onabort = transaction.onerror = () => reject(transaction.error || new Error("the database ended the transaction"));
    });
    const stores = {};
    for (const name of ["conversations", "messages"]) {
      const objects = transaction.objectStore(name);
      stores[name] = { get: id => asPromise(objects.get(id)), all: () => asPromise(objects.getAll()), put: x => asPromise(objects.put(x)),
        delete: id => asPromise(objects.delete(id)), of: id => asPromise(objects.index("conversation").getAll(id)) };
    }
    let result;
    try {
      result = await work(stores);
    } catch (error) {
      try { transaction.abort(); } catch { /* it has ended already */ }
      done.catch(() => {});
      throw error;
    }
    await done;
    return result;
  }

  function memoryStores() {
    const stores = {};
    for (const [name, map] of Object.entries(memory))
      stores[name] = { get: async id => map.get(id), all: async () => [...map.values()], put: async x => { map.set(x.id, structuredClone(x)); },
        delete: async id => { map.delete(id); }, of: async id => [...map.values()].filter(x => x.conversation === id) };
    return stores;
  }

  const tell = event => channel?.postMessage(event);
  const byTime = (a, b) => a.created - b.created || (a.id < b.id ? -1 : 1);

  return {
    async start() {
      try {
        database = await open();
      } catch (error) {
        toast("The browser keeps no data for this page (" + (error?.message || error) + "): conversations are lost when it closes. Export them to keep them.");
      }
    },
    onChange(run) { if (channel) channel.onmessage = event => run(event.data); },

    async conversations() {
      const all = await transact("readonly", s => s.conversations.all());
      return all.sort((a, b) => b.updated - a.updated);
    },
    conversation: id => transact("readonly", s => s.conversations.get(id)),
    async messages(id) { return (await transact("readonly", s => s.messages.of(id))).sort(byTime); },
    allMessages: () => transact("readonly", s => s.messages.all()),

    async createConversation(conversation) {
      await transact("readwrite", s => s.conversations.put(conversation));
      tell({ kind: "list" });
    },
    // Changes the fields of a conversation as it is now in the database; does nothing if another tab has deleted it.
    async changeConversation(id, fields) {
      await transact("readwrite", async s => {
        const now = await s.conversations.get(id);
        if (now) await s.conversations.put({ ...now, ...fields });
      });
      tell({ kind: "list" });
    },
    // Writes a message. `is_growing`: this tab goes on writing it. False if its conversation is gone.
    async putMessage(message, is_growing) {
      const is_there = await transact("readwrite", async s => {
        if (!await s.conversations.get(message.conversation)) return false;
        await s.messages.put(message);
        return true;
      });
      tell({ kind: "message", conversation: message.conversation, id: message.id, is_growing: !!is_growing });
      return is_there;
    },
    async deleteMessage(message) {
      await transact("readwrite", s => s.messages.delete(message.id));
      tell({ kind: "message", conversation: message.conversation, id: message.id, is_growing: false });
    },
    // Deletes a conversation. Returns its records, with which restore() brings it back.
    async deleteConversation(id) {
      const records = await transact("readwrite", async s => {
        const conversation = await s.conversations.get(id), messages = await s.messages.of(id);
        await s.conversations.delete(id);
        for (const message of messages) await s.messages.delete(message.id);
        return { conversation, messages };
      });
      tell({ kind: "deleted", conversation: id });
      return records;
    },
    // Writes conversations with their messages, all or none.
    async restore(list) {
      await transact("readwrite", async s => {
        for (const { conversation, messages } of list) {
          await s.conversations.put(conversation);
          for (const message of messages) await s.messages.put(message);
        }
      });
      tell({ kind: "list" });
    },
  };
})();
