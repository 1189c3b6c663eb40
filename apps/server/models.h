// SPDX-License-Identifier: Apache-2.0
// The models behind the port: which there are, which are open, and the requests that wait for one. Used on the loop's thread. A thread of
// its own opens and closes models, one at a time, so that the others go on answering.
//
//     unloaded -> loading -> loaded -> unloading -> unloaded
//                    |
//                    +-> failed -> loading ...
//
// A request gets a lease of its model. A model is closed once there is no lease of it: because another one needs its room, a request
// asks for it, or it has been idle for long enough. The least recently used model goes first, one without leases before one that must
// finish its requests; from then on, new requests for that one wait in line.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "error.h"
#include "http/http_server.h"
#include "serving.h"

namespace server {

// What a request says about the model that it wants.
struct Wanted {
    std::string model;     // "": the first one
    bool may_load = true;  // else it must be loaded already
    bool is_stream = false;
};

// A request that waits for its model.
struct WaitingRequest {
    using Clock = std::chrono::steady_clock;
    using Result = std::variant<std::shared_ptr<ServedModel>, ApiError>;

    std::shared_ptr<Exchange> exchange;
    Wanted wanted;
    std::function<void(Result)> then;  // called once, unless the server ends
    Clock::time_point last_sent = {};
};

struct ModelEntry {
    using Clock = std::chrono::steady_clock;
    enum class State { unloaded, loading, loaded, unloading, failed };

    std::string path;
    std::vector<std::string> names;  // the first one is that of answers
    uint64_t bytes = 0;              // of its files until it was open once, then of the memory that it takes
    State state = State::unloaded;
    std::string error;                    // why it has failed
    std::unique_ptr<ServedModel> served;  // loaded or unloading
    std::shared_ptr<Metrics> metrics;
    int64_t n_leases = 0;
    Clock::time_point last_used;
    bool must_close = false;        // once there is no lease
    bool makes_room = false;        // the same, if no other model becomes idle before
    bool lacked_memory = false;     // when it was last opened, beside others
    const char* close_reason = "";  // for the log
    std::deque<WaitingRequest> waiting;
    std::atomic<double> progress{0};  // of loading, 0 to 1; written by the thread that loads
};

// The error for a name that no model has.
ApiError no_model(const std::string& name);

class Models {
  public:
    using Clock = std::chrono::steady_clock;
    using State = ModelEntry::State;

    // Finds the models of the options. Throws std::runtime_error if one does not exist or two have one name.
    Models(Serving& serving, EventLoop& loop);
    // Cancels the loading of a model.
    ~Models();
    Models(const Models&) = delete;
    Models& operator=(const Models&) = delete;

    const Options& options() const { return serving_.options; }
    // Returns whether requests choose among models: there are several, or a folder of them.
    bool are_several() const { return are_several_; }
    // Returns the model of the name; the first one for "", the only one for any name. Null: there is none.
    ModelEntry* find(const std::string& name);
    // The same; throws ApiError 404 that names it.
    ModelEntry& find_or_throw(const std::string& name);
    const std::vector<std::unique_ptr<ModelEntry>>& entries() const { return entries_; }
    int64_t started() const { return started_; }  // seconds since 1970
    // Counts requests for no model in particular.
    Metrics& metrics() { return *metrics_; }
    std::string metrics_text(ModelEntry* only) const;

    // Opens the only model on this thread. Throws what ServedModel throws.
    void open_only();
    // Returns the only model while it is open; null if there are several.
    ServedModel* only() const;

    // Returns whether a request for the model is served at once.
    static bool is_ready(const ModelEntry& entry);
    // Passes a lease of the model to `then`, at once or when it is open, or the reason why that is not possible.
    void use(ModelEntry& entry, WaitingRequest request);

    // Passes the error to all requests that wait for a model.
    void refuse_waiting(const ApiError& error);

    // As the routes of the same names. Throw ApiError if there is nothing to do.
    void load(ModelEntry& entry);
    void unload(ModelEntry& entry);

    // Closes idle models, and sends signs of life to waiting streams that have been silent for `interval`.
    void tick(Clock::time_point now, Clock::duration interval);

  private:
    std::shared_ptr<ServedModel> lease(ModelEntry& entry);
    void want(ModelEntry& entry);
    void advance();
    bool has_room_for(const ModelEntry& entry) const;
    ModelEntry* least_recently_used(bool is_idle) const;
    void stay_all();
    void admit_waiting(ModelEntry& entry);
    void fail(ModelEntry& entry, const std::string& error);
    void start(const std::function<void()>& task);
    void open(ModelEntry& entry);
    void opened(ModelEntry& entry, const std::string& error, bool lacks_memory);
    void take(ModelEntry& entry);
    void close(ModelEntry& entry);
    void closed(ModelEntry& entry);

    Serving& serving_;
    EventLoop& loop_;
    const int64_t started_;
    const bool are_several_;
    std::vector<std::unique_ptr<ModelEntry>> entries_;
    std::shared_ptr<Metrics> metrics_;
    std::deque<ModelEntry*> wanted_;  // to be opened, in the order of the requests
    int64_t n_waiting_ = 0;           // requests
    std::atomic<bool> is_ending_{false};
    bool is_busy_ = false;  // the thread opens or closes a model
    std::thread thread_;
};

}  // namespace server
