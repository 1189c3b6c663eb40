// SPDX-License-Identifier: Apache-2.0
#include "ranks/processes.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/format_text.h"
#include "base/own_thread.h"
#include "ranks/joined_transport.h"
#include "ranks/remote_transport.h"
#include "ranks/tags.h"
#include "runtime/thread_transport.h"

namespace minim::ranks {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Processes of one launch start together; their first messages need not wait for a model.
constexpr milliseconds k_start_limit{120'000};
constexpr milliseconds k_watch_pause{20};
constexpr milliseconds k_busy_watch_pause{1};  // while messages are being sent
constexpr milliseconds k_last_words{10};       // for notices of a process that has ended
constexpr milliseconds k_flush_limit{1000};
constexpr microseconds k_notice_limit{20'000};
constexpr milliseconds k_longest_beat{1000};  // between two signs of life
constexpr int32_t k_none = -1;
constexpr uint64_t k_max_outgoing_bytes = uint64_t{64} << 20;

enum class NoticeKind : uint32_t { leaves = 1, abandons = 2, lives = 3 };

struct Notice {
    NoticeKind kind = NoticeKind::leaves;
    int32_t status = 0;
    int32_t lost = -1;  // the process that is lost
    std::array<char, 1024> text = {};
};

std::vector<std::byte> bytes_of(const Notice& notice) {
    const auto bytes = std::as_bytes(std::span(&notice, 1));
    return {bytes.begin(), bytes.end()};
}

Notice make_notice(NoticeKind kind, Status status, int32_t lost, std::string_view text) {
    Notice notice = {.kind = kind, .status = static_cast<int32_t>(status), .lost = lost, .text = {}};
    text.copy(notice.text.data(), notice.text.size() - 1);
    return notice;
}

// Pauses of a process that waits for a control message, perhaps for hours: answers come within a step, the next step after some
// milliseconds, the next request after seconds.
class Pause {
  public:
    void operator()() const {
        const auto waited = Processes::Clock::now() - start_;
        if (waited >= milliseconds(1000)) {
            std::this_thread::sleep_for(milliseconds(1));
        } else if (waited >= milliseconds(2)) {
            std::this_thread::sleep_for(microseconds(100));
        } else if (waited >= microseconds(20)) {
            std::this_thread::yield();
        }
    }

  private:
    Processes::Clock::time_point start_ = Processes::Clock::now();
};

}  // namespace

Processes::Processes(std::unique_ptr<Link> link, const ProcessOptions& options)
    : link_(std::move(link)),
      options_(options),
      process_(link_->process()),
      size_(link_->size()),
      identities_(size_),
      last_messages_(size_),
      last_beats_(size_),
      have_left_(size_) {
    try {
        if (options.n_devices < 1 || options.n_devices > k_max_devices)
            fail(Status::invalid, "{} devices in a process; 1 to {} are possible", options.n_devices,
                 k_max_devices);
        exchange_identities();
        for (int32_t p = 0; p < size_; ++p)
            if (p != process_ && is_of_same_machine(identities_[p], identities_[process_]))
                ended_.add(p, identities_[p].pid);
        watcher_ =
            start_thread("minim-ranks", "the thread that watches other processes", [this] { watch(); });
    } catch (...) {
        link_->give_up();
        throw;
    }
}

Processes::~Processes() {
    if (!has_left_) {
        const Error error(Status::peer_lost, Reason::none, "this process has closed the model");
        end_waits(error, process_, name(process_) + " has closed the model");
    }
    is_stopping_ = true;
    ended_.wake();
    watcher_.join();
    if (error_ && lost_ != 0) let_leader_go_first();
}

void Processes::exchange_identities() {
    identities_[process_] = own_identity(options_.n_devices);
    const std::vector<std::byte> own = encode(identities_[process_]);
    for (int32_t p = 0; p < size_; ++p)
        if (p != process_) post(p, k_control_tag, own);
    for (int32_t p = 0; p < size_; ++p)
        if (p != process_) identities_[p] = parse_identity(receive(p, k_start_limit));
}

std::string Processes::name(int32_t process, int32_t device) const {
    const int32_t rank = process * options_.n_devices + device;
    const Identity& identity = identities_[process];
    if (identity.pid == 0) return format_text("rank {}", rank);
    return format_text("rank {} (host {}, process {})", rank, identity.host, identity.pid);
}

void Processes::require() const {
    if (!is_abandoned_.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(error_mutex_);
    throw Error(*error_);
}

int32_t Processes::lost() const {
    const std::lock_guard lock(error_mutex_);
    return lost_;
}

// ---- messages ----

void Processes::send(int32_t to, std::span<const std::byte> message) {
    const Clock::time_point start = Clock::now();
    const auto is_full = [&] {
        const std::lock_guard lock(send_mutex_);
        return n_outgoing_bytes_ > k_max_outgoing_bytes;
    };
    for (const Pause pause; is_full(); pause()) {
        require();
        end_sends();
        limit_silence(to, start, options_.timeout);
    }
    require();
    post(to, k_control_tag, {message.begin(), message.end()});
}

void Processes::post(int32_t to, int32_t tag, std::vector<std::byte> bytes) {
    const std::lock_guard lock(send_mutex_);
    Outgoing& outgoing = outgoing_.emplace_back(Outgoing{.bytes = std::move(bytes), .transfer = {}});
    try {
        outgoing.transfer = link_->send(to, tag, outgoing.bytes);
    } catch (...) {
        outgoing_.pop_back();
        throw;
    }
    n_outgoing_bytes_ += outgoing.bytes.size();
}

// Frees what has been sent.
void Processes::end_sends() {
    const std::lock_guard lock(send_mutex_);
    if (outgoing_.empty()) return;
    std::vector<Transfer*> transfers;
    for (Outgoing& outgoing : outgoing_)
        if (!outgoing.transfer.has_ended) transfers.push_back(&outgoing.transfer);
    link_->end_some(transfers);
    // From the front only: a deque that loses elements at its ends does not move the others, which the link points to.
    while (!outgoing_.empty() && outgoing_.front().transfer.has_ended) {
        n_outgoing_bytes_ -= outgoing_.front().bytes.size();
        outgoing_.pop_front();
    }
}

bool Processes::has_sends() const {
    const std::lock_guard lock(send_mutex_);
    return !outgoing_.empty();
}

std::vector<std::byte> Processes::receive(int32_t from, std::optional<milliseconds> limit) {
    const Clock::time_point start = Clock::now();
    for (const Pause pause;; pause()) {
        require();
        if (const std::optional<uint64_t> n_bytes = link_->arrived(from, k_control_tag)) {
            std::vector<std::byte> message = take(from, k_control_tag, *n_bytes);
            note_message(from);
            return message;
        }
        if (limit) limit_silence(from, start, *limit);
    }
}

// Receives a message that has arrived, at least its beginning.
std::vector<std::byte> Processes::take(int32_t from, int32_t tag, uint64_t n_bytes) {
    std::vector<std::byte> bytes(n_bytes);
    const Clock::time_point start = Clock::now();
    Transfer transfer = link_->receive(from, tag, bytes);
    Transfer* const transfers[] = {&transfer};
    try {
        for (const Pause pause;; pause()) {
            require();
            link_->end_some(transfers);
            if (transfer.has_ended) break;
            limit_silence(from, start, options_.timeout);
        }
    } catch (...) {
        // The link may still write to it.
        const std::lock_guard lock(error_mutex_);
        unfinished_.push_back(std::move(bytes));
        throw;
    }
    return bytes;
}

void Processes::note_message(int32_t from) noexcept {
    last_messages_[from].store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
}

Processes::Clock::time_point Processes::last_message(int32_t from) const noexcept {
    return Clock::time_point(Clock::duration(last_messages_[from].load(std::memory_order_relaxed)));
}

void Processes::limit_silence(int32_t from, Clock::time_point since, milliseconds limit) {
    if (Clock::now() - std::max(since, last_message(from)) <= limit) return;
    // A process that is waited for may itself wait for one that stands still.
    const int32_t silent = standing_still().value_or(from);
    const double seconds = static_cast<double>(limit.count()) / 1000;
    const std::string text = format_text("{} has not answered for {:g} s", name(silent), seconds);
    end_waits(Error(Status::peer_lost, Reason::none, text), silent, text);
    require();
}

std::unique_ptr<runtime::Transport> Processes::connect(int32_t device) {
    return make_remote_transport(*this, device);
}

std::vector<std::unique_ptr<runtime::Transport>> connect_ranks(Processes& processes) {
    std::vector<std::unique_ptr<runtime::Transport>> local = runtime::connect_threads(processes.n_devices());
    std::vector<std::unique_ptr<runtime::Transport>> joined;
    joined.reserve(local.size());
    for (int32_t device = 0; device < processes.n_devices(); ++device)
        joined.push_back(make_joined_transport(std::move(local[device]), processes.connect(device)));
    return joined;
}

// Returns the process that has given no sign of life for the longest time, if that is too long for one that only waits.
std::optional<int32_t> Processes::standing_still() const {
    std::optional<int32_t> found;
    Clock::rep first = (Clock::now() - options_.timeout / 2).time_since_epoch().count();
    for (int32_t p = 0; p < size_; ++p) {
        if (p == process_ || last_beats_[p] >= first) continue;
        first = last_beats_[p];
        found = p;
    }
    return found;
}

// ---- the end of waits ----

void Processes::abandon(const Error& error, int32_t device) noexcept {
    try {
        end_waits(error, k_none, format_text("{}: {}", name(process_, device), error.what()));
    } catch (...) {  // no memory for the text
        end_waits(error, k_none, std::nullopt);
    }
}

// Ends all waits of this process with the error, and those of the others with the text, if there is one.
void Processes::end_waits(const Error& error, int32_t lost,
                          std::optional<std::string> text_for_others) noexcept {
    {
        const std::lock_guard lock(error_mutex_);
        if (error_) return;
        error_.emplace(error);
        lost_ = lost;
    }
    // Before the waits of this process end, since progress with notices is progress with the messages of the waits too.
    if (text_for_others && !has_left_) {
        try {
            const Notice notice = make_notice(NoticeKind::abandons, error.status(), lost, *text_for_others);
            for (int32_t p = 0; p < size_; ++p)
                if (p != process_ && !have_left_[p]) post(p, k_notice_tag, bytes_of(notice));
            const Clock::time_point start = Clock::now();
            for (end_sends(); has_sends() && Clock::now() - start < k_notice_limit; end_sends())
                std::this_thread::sleep_for(microseconds(100));
        } catch (...) {
            // Those that get no notice see that this process ends, or that it is silent.
            static_cast<void>(current_error());
        }
    }
    link_->give_up();
    is_abandoned_.store(true, std::memory_order_release);
    ended_.wake();
}

void Processes::leave() noexcept {
    if (is_abandoned_ || has_left_.exchange(true)) return;
    try {
        for (int32_t p = 0; p < size_; ++p)
            if (p != process_)
                post(p, k_notice_tag, bytes_of(make_notice(NoticeKind::leaves, Status::ok, k_none, "")));
        const Clock::time_point start = Clock::now();
        for (end_sends(); has_sends() && Clock::now() - start < k_flush_limit; end_sends())
            std::this_thread::sleep_for(microseconds(100));
        if (has_sends()) link_->give_up();
    } catch (...) {
        link_->give_up();
    }
}

void Processes::let_leader_go_first() const {
    if (process_ != 0) std::this_thread::sleep_for(options_.lead);
}

// ---- the watching thread ----

void Processes::watch() {
    const milliseconds beat = std::min(options_.timeout / 8, k_longest_beat);
    Clock::time_point next_beat = Clock::now();
    while (!is_stopping_ && !is_abandoned_) {
        try {
            for (const int32_t p : ended_.wait(has_sends() ? k_busy_watch_pause : k_watch_pause))
                look_at_end(p);
            if (is_stopping_ || is_abandoned_) break;
            look_at_notices();
            end_sends();
            if (has_left_ || Clock::now() < next_beat) continue;
            next_beat = Clock::now() + beat;
            send_beats();
            if (process_ != 0 && ++n_beats_unheard_ * beat > options_.timeout) end_without_leader();
        } catch (...) {
            const Error error = current_error();
            end_waits(error, k_none, std::nullopt);
        }
    }
}

void Processes::send_beats() {
    for (int32_t p = 0; p < size_; ++p)
        if (p != process_ && !have_left_[p])
            post(p, k_notice_tag, bytes_of(make_notice(NoticeKind::lives, Status::ok, k_none, "")));
}

// Process 0 may have nothing to say for hours, but gives signs of life. They are counted in signs of this process, so that a launch
// that was stopped as a whole, by Ctrl-Z, goes on.
void Processes::end_without_leader() {
    if (have_left_[0]) return;
    const double seconds = static_cast<double>(options_.timeout.count()) / 1000;
    const std::string text = format_text("{} has not answered for {:g} s", name(0), seconds);
    end_waits(Error(Status::peer_lost, Reason::none, text), 0, text);
}

void Processes::look_at_end(int32_t process) {
    // It may have said why.
    for (const Clock::time_point start = Clock::now(); Clock::now() - start < k_last_words;) {
        if (is_abandoned_ || has_left_) return;
        look_at_notices();
        if (is_abandoned_ || have_left_[process]) return;
        std::this_thread::sleep_for(milliseconds(1));
    }
    have_left_[process] = true;  // it gets no notice
    const std::string text = name(process) + " has ended";
    end_waits(Error(Status::peer_lost, Reason::none, text), process, text);
}

void Processes::look_at_notices() {
    for (int32_t p = 0; p < size_; ++p) {
        while (p != process_ && !has_left_ && !is_abandoned_) {
            const std::optional<uint64_t> n_bytes = link_->arrived(p, k_notice_tag);
            if (!n_bytes) break;
            look_at_notice(p, *n_bytes);
        }
    }
}

void Processes::look_at_notice(int32_t p, uint64_t n_bytes) {
    const std::vector<std::byte> bytes = take(p, k_notice_tag, n_bytes);
    Notice notice;
    if (bytes.size() != sizeof(notice))
        fail_internal("{} has sent a notice of {} bytes, not {}", name(p), bytes.size(), sizeof(notice));
    std::memcpy(&notice, bytes.data(), sizeof(notice));
    notice.text.back() = '\0';
    if (notice.kind == NoticeKind::leaves) {
        have_left_[p] = true;
        return;
    }
    if (notice.kind == NoticeKind::lives) {
        last_beats_[p] = Clock::now().time_since_epoch().count();
        if (p == 0) n_beats_unheard_ = 0;
        return;
    }
    const bool is_known = notice.status > 0 && notice.status <= static_cast<int32_t>(Status::peer_lost);
    const Status status = is_known ? static_cast<Status>(notice.status) : Status::internal;
    end_waits(Error(status, Reason::none, notice.text.data()), notice.lost, std::nullopt);
}

}  // namespace minim::ranks
