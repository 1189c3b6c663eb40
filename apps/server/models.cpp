// SPDX-License-Identifier: Apache-2.0
#include "models.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "memory_text.h"
#include "model_files.h"
#include "request_log.h"
#include "state_metrics.h"

namespace server {

namespace {

int64_t seconds_since_1970() {
    return std::chrono::duration_cast<std::chrono::seconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

uint64_t memory_bytes(const ServedModel& served) {
    uint64_t bytes = 0;
    for (const minim_device_memory& device : served.model.memory())
        bytes += device.weight_bytes + device.kv_bytes + device.work_bytes;
    return bytes;
}

}  // namespace

ApiError no_model(const std::string& name) {
    return {
        404,
        fmt::format("the model '{}' does not exist; GET /v1/models lists those that do", name.substr(0, 200)),
        "model", "model_not_found"};
}

Models::Models(Serving& serving, EventLoop& loop)
    : serving_(serving),
      loop_(loop),
      started_(seconds_since_1970()),
      are_several_(program::are_several(serving.options)) {
    for (const ModelFile& file : list_models(options())) {
        auto entry = std::make_unique<ModelEntry>();
        entry->path = file.path;
        entry->names = file.names;
        entry->bytes = file_bytes(file.path);
        if (are_several_) entry->metrics = std::make_shared<Metrics>(file.names.front());
        entries_.push_back(std::move(entry));
    }
    metrics_ = std::make_shared<Metrics>("");
}

Models::~Models() {
    is_ending_ = true;
    if (thread_.joinable()) thread_.join();
}

ModelEntry* Models::find(const std::string& name) {
    if (!are_several_ || name.empty()) return entries_.front().get();
    for (const auto& entry : entries_)
        if (entry->names.front() == name) return entry.get();
    return nullptr;
}

ModelEntry& Models::find_or_throw(const std::string& name) {
    ModelEntry* entry = find(name);
    if (entry == nullptr) throw no_model(name);
    return *entry;
}

std::string Models::metrics_text(ModelEntry* only) const {
    const std::string& prefix = options().metrics_prefix;
    std::vector<std::string> texts;
    for (const auto& entry : entries_) {
        if (only != nullptr && entry.get() != only) continue;
        const ServedModel* served = entry->state == State::loaded ? entry->served.get() : nullptr;
        const size_t n_running = served != nullptr ? served->jobs.n_running() : 0;
        const size_t n_waiting = served != nullptr ? served->jobs.n_waiting() : 0;
        texts.push_back(entry->metrics->text(
            prefix, n_running, n_waiting + entry->waiting.size(),
            served != nullptr ? served->engine.state() : minim_engine_state(MINIM_ENGINE_STATE_INIT)));
        if (served != nullptr) texts.push_back(model_metrics(prefix, *served));
    }
    if (are_several_ && only == nullptr) texts.push_back(metrics_->requests_text(prefix));
    return joined_metrics(texts);
}

void Models::open_only() {
    ModelEntry& entry = *entries_.front();
    entry.served = std::make_unique<ServedModel>(serving_, loop_, entry.path, entry.names);
    metrics_ = entry.metrics = std::make_shared<Metrics>(entry.served->name);
    take(entry);
}

ServedModel* Models::only() const {
    const ModelEntry& first = *entries_.front();
    return !are_several_ && first.state == State::loaded ? first.served.get() : nullptr;
}

bool Models::is_ready(const ModelEntry& entry) {
    return entry.state == State::loaded && !entry.must_close && !entry.makes_room;
}

void Models::use(ModelEntry& entry, WaitingRequest request) {
    if (is_ready(entry)) return request.then(lease(entry));
    const bool is_closed = entry.state == State::unloaded || entry.state == State::failed;
    if (is_closed && !request.wanted.may_load)
        return request.then(ApiError{
            400, fmt::format("the model '{}' is not loaded; POST /models/load loads it", entry.names.front()),
            "model", "model_not_loaded"});
    if (n_waiting_ >= options().n_queue + slots_of(options())) {
        ++entry.metrics->n_rejected;
        return request.then(ApiError{429, "too many requests wait; try again", "", "queue_full"});
    }
    request.last_sent = Clock::now();
    entry.waiting.push_back(std::move(request));
    ++n_waiting_;
    want(entry);
}

void Models::load(ModelEntry& entry) {
    const bool is_wanted = std::ranges::find(wanted_, &entry) != wanted_.end();
    if (is_wanted || entry.state == State::loading || is_ready(entry))
        throw ApiError{400,
                       fmt::format("the model '{}' is {} already", entry.names.front(),
                                   is_ready(entry) ? "loaded" : "being loaded"),
                       "model", ""};
    want(entry);
}

void Models::unload(ModelEntry& entry) {
    if (options().parallel.is_given())
        throw ApiError{400, "a model that ranks share stays loaded", "model", ""};
    const auto wanted = std::ranges::find(wanted_, &entry);
    if (wanted != wanted_.end() && entry.state != State::loaded && entry.waiting.empty()) {
        wanted_.erase(wanted);  // it had no room yet
        return advance();
    }
    if (entry.state != State::loaded && entry.state != State::loading)
        throw ApiError{400, fmt::format("the model '{}' is not loaded", entry.names.front()), "model", ""};
    entry.must_close = true;
    entry.close_reason = "a request asked for it";
    advance();
}

void Models::tick(Clock::time_point now, Clock::duration interval) {
    const bool closes_idle = options().models_idle_seconds > 0 && !options().parallel.is_given();
    for (const auto& entry : entries_) {
        const bool is_idle = is_ready(*entry) && entry->n_leases == 0;
        if (closes_idle && is_idle &&
            now - entry->last_used >= std::chrono::seconds(options().models_idle_seconds)) {
            entry->must_close = true;
            entry->close_reason = "it was idle";
        }
        for (size_t i = entry->waiting.size(); i-- > 0;) {
            WaitingRequest& request = entry->waiting[i];
            if (request.exchange->is_gone()) {
                const WaitingRequest gone = std::move(request);
                entry->waiting.erase(entry->waiting.begin() + static_cast<std::ptrdiff_t>(i));
                --n_waiting_;
                gone.then(ApiError{503, "the client is gone", "", ""});
            } else if (request.wanted.is_stream && now - request.last_sent >= interval) {
                if (!request.exchange->is_stream()) request.exchange->begin_stream();
                request.exchange->send(": the model is being loaded\n\n");
                request.last_sent = now;
            }
        }
    }
    advance();
}

// The lease ends when the last copy of the result does, on any thread.
std::shared_ptr<ServedModel> Models::lease(ModelEntry& entry) {
    ++entry.n_leases;
    entry.last_used = Clock::now();
    return {entry.served.get(), [this, &entry, &loop = loop_](ServedModel*) {
                loop.post([this, &entry] {
                    --entry.n_leases;
                    entry.last_used = Clock::now();
                    advance();
                });
            }};
}

void Models::want(ModelEntry& entry) {
    const bool is_wanted = std::ranges::find(wanted_, &entry) != wanted_.end();
    if (!is_wanted && entry.state != State::loading) wanted_.push_back(&entry);
    advance();
}

// Starts what can be done next: closes a model that must go and has no lease, or opens the first wanted one, or makes room for it.
void Models::advance() {
    if (is_busy_) return;
    for (const auto& entry : entries_)
        if (entry->state == State::loaded && entry->must_close && entry->n_leases == 0) return close(*entry);
    // One that is wanted and still loaded must close first.
    const auto next =
        std::ranges::find_if(wanted_, [](const ModelEntry* entry) { return entry->state != State::loaded; });
    if (next == wanted_.end()) return stay_all();
    ModelEntry& entry = **next;
    if (has_room_for(entry)) {
        wanted_.erase(next);
        stay_all();
        return open(entry);
    }
    ModelEntry* idle = least_recently_used(true);
    if (idle != nullptr) {
        idle->makes_room = false;
        idle->close_reason = "another one needs its room";
        stay_all();
        return close(*idle);
    }
    ModelEntry* busy = least_recently_used(false);
    if (busy == nullptr) {
        wanted_.erase(next);
        fail(entry, fmt::format("it needs {}, and --models-memory is {}", program::size_text(entry.bytes),
                                program::size_text(options().models_memory)));
        return advance();
    }
    const auto makes_room = [](const auto& other) { return other->makes_room; };
    if (std::ranges::none_of(entries_, makes_room)) busy->makes_room = true;
}

bool Models::has_room_for(const ModelEntry& entry) const {
    int64_t n_loaded = 0;
    uint64_t bytes = entry.bytes;
    for (const auto& other : entries_) {
        if (other->state != State::loaded) continue;
        ++n_loaded;
        bytes += other->bytes;
    }
    const bool has_place = options().models_max == 0 || n_loaded < options().models_max;
    const bool has_bytes = options().models_memory == 0 || bytes <= options().models_memory;
    return has_place && has_bytes && !(entry.lacked_memory && n_loaded > 0);
}

// `is_idle`: only models without leases. Null: there is none.
ModelEntry* Models::least_recently_used(bool is_idle) const {
    ModelEntry* least = nullptr;
    for (const auto& entry : entries_) {
        if (entry->state != State::loaded || (is_idle && entry->n_leases > 0)) continue;
        if (least == nullptr || entry->last_used < least->last_used) least = entry.get();
    }
    return least;
}

// Models that were about to make room stay, and the requests that wait for them go on.
void Models::stay_all() {
    for (const auto& entry : entries_) {
        if (!std::exchange(entry->makes_room, false) || entry->must_close) continue;
        std::erase(wanted_, entry.get());
        admit_waiting(*entry);
    }
}

void Models::admit_waiting(ModelEntry& entry) {
    for (WaitingRequest& request : std::exchange(entry.waiting, {})) {
        --n_waiting_;
        request.then(lease(entry));
    }
}

void Models::fail(ModelEntry& entry, const std::string& error) {
    entry.state = State::failed;
    entry.error = error;
    entry.lacked_memory = entry.must_close = false;
    write_note(fmt::format("the model '{}' cannot be loaded: {}", entry.names.front(), error));
    for (WaitingRequest& request : std::exchange(entry.waiting, {})) {
        --n_waiting_;
        request.then(ApiError{503,
                              fmt::format("the model '{}' cannot be loaded: {}", entry.names.front(), error),
                              "model", "model_failed"});
    }
}

void Models::refuse_waiting(const ApiError& error) {
    for (const auto& entry : entries_) {
        for (WaitingRequest& request : std::exchange(entry->waiting, {})) {
            --n_waiting_;
            request.then(error);
        }
    }
}

void Models::start(const std::function<void()>& task) {
    if (thread_.joinable()) thread_.join();  // it has posted its result
    thread_ = std::thread(task);
    is_busy_ = true;
}

void Models::open(ModelEntry& entry) {
    entry.state = State::loading;
    entry.progress = 0;
    const auto load = [this, &entry] {
        std::string error;
        bool lacks_memory = false;
        try {
            const auto report = [this, &entry](uint64_t done, uint64_t total) {
                if (total > 0) entry.progress = static_cast<double>(done) / static_cast<double>(total);
                return !is_ending_;
            };
            entry.served = std::make_unique<ServedModel>(serving_, loop_, entry.path, entry.names, report);
            log_sizes(*entry.served);
        } catch (const minim::Exception& failure) {
            error = failure.what();
            lacks_memory =
                failure.status() == MINIM_E_OUT_OF_MEMORY || failure.status() == MINIM_E_OUT_OF_DEVICE_MEMORY;
        } catch (const std::bad_alloc&) {
            error = "out of memory";
            lacks_memory = true;
        } catch (const std::exception& failure) {
            error = failure.what();
        }
        loop_.post([this, &entry, error, lacks_memory] { opened(entry, error, lacks_memory); });
    };
    try {
        start(load);
    } catch (const std::system_error& failure) {
        fail(entry, fmt::format("no thread can be started: {}", failure.what()));
    }
}

// `error`: "" if the model is open.
void Models::opened(ModelEntry& entry, const std::string& error, bool lacks_memory) {
    is_busy_ = false;
    const auto is_loaded = [](const auto& other) { return other->state == State::loaded; };
    if (!error.empty() && lacks_memory && std::ranges::any_of(entries_, is_loaded)) {
        write_note(fmt::format("the model '{}' waits for memory: {}", entry.names.front(), error));
        entry.state = State::unloaded;
        entry.lacked_memory = true;
        wanted_.push_front(&entry);
        return advance();
    }
    if (!error.empty()) {
        fail(entry, error);
        return advance();
    }
    entry.bytes = memory_bytes(*entry.served);
    if (!has_room_for(entry)) {  // its size is known only now
        entry.state = State::loaded;
        entry.close_reason = "with its KV cache it needs more room";
        wanted_.push_front(&entry);
        return close(entry);
    }
    take(entry);
    write_note(fmt::format("the model '{}' is loaded ({}), context {}, {} slots", entry.names.front(),
                           entry.served->info.placement, entry.served->n_context, entry.served->n_slots));
    admit_waiting(entry);
    advance();
}

// Begins to use an open model.
void Models::take(ModelEntry& entry) {
    entry.state = State::loaded;
    entry.names = entry.served->names;
    entry.bytes = memory_bytes(*entry.served);
    entry.lacked_memory = false;
    entry.last_used = Clock::now();
    entry.served->metrics = entry.metrics;
}

void Models::close(ModelEntry& entry) {
    write_note(fmt::format("the model '{}' is unloaded: {}", entry.names.front(), entry.close_reason));
    entry.state = State::unloading;
    entry.must_close = entry.makes_room = false;
    const auto unload = [this, &entry] {
        try {
            save_expert_profile(*entry.served);
        } catch (const std::exception& failure) {
            write_note(fmt::format("the expert profile was not saved: {}", failure.what()));
        }
        entry.served.reset();
        loop_.post([this, &entry] { closed(entry); });
    };
    try {
        start(unload);
    } catch (const std::system_error&) {  // no thread can be started
        unload();
    }
}

void Models::closed(ModelEntry& entry) {
    is_busy_ = false;
    entry.state = State::unloaded;
    for (const auto& other : entries_) other->lacked_memory = false;  // there is more now
    advance();
}

}  // namespace server
