#include "engine/session.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "support.h"

using namespace minim;
using namespace minim::test;
using engine::Session;
using engine::SessionParams;

namespace {

std::vector<int32_t> some_ids(size_t count) {
    std::vector<int32_t> ids(count);
    for (size_t i = 0; i < count; ++i) ids[i] = static_cast<int32_t>((i * 37 + 11) % 1984);
    return ids;
}

size_t n_vocab() {
    return static_cast<size_t>(bundled_model()->config().n_vocab);
}

std::vector<float> all_logits(Session& session, const std::vector<int32_t>& ids) {
    std::vector<float> logits(ids.size() * n_vocab());
    session.eval(ids, true, logits, nullptr);
    return logits;
}

std::vector<float> last_row(const std::vector<float>& logits) {
    return {logits.end() - static_cast<ptrdiff_t>(n_vocab()), logits.end()};
}

std::vector<float> last_logits(Session& session) {
    const auto logits = session.last_logits(nullptr);
    return {logits.begin(), logits.end()};
}

// The logits after all of `ids`, in a session of its own.
std::vector<float> fresh_logits(const std::vector<int32_t>& ids) {
    Session session = make_session();
    session.eval(ids, false, {}, nullptr);
    return last_logits(session);
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

Status failure(const SessionParams& params) {
    const Logger silent;
    const auto error = error_of([&] { const Session session(bundled_model(), params, silent); });
    return error ? error->status() : Status::ok;
}

}  // namespace

TEST_CASE("a new session is empty") {
    Session session = make_session(100);
    CHECK(session.n_tokens() == 0);
    CHECK(session.n_context() == 100);
    CHECK(session.kv_bytes() > 0);
    expect_error(Status::invalid, "empty", [&] { session.last_logits(nullptr); });
}

TEST_CASE("a context of 0 is the length the model was trained for") {
    const Logger silent;
    const Session session(bundled_model(), SessionParams{}, silent);
    CHECK(session.n_context() == bundled_model()->config().n_context_train);
}

TEST_CASE("a context longer than the trained one is allowed, with a warning") {
    Lines lines;
    SessionParams params;
    params.n_context = bundled_model()->config().n_context_train + 1;
    const Session session(bundled_model(), params, lines.log);
    CHECK(session.n_context() == params.n_context);
    CHECK(lines.holding("longer than") == 1);
}

TEST_CASE("session settings out of range are refused") {
    for (const int64_t n_context :
         {int64_t{-1}, std::numeric_limits<int64_t>::max(), (int64_t{1} << 31) + 1}) {
        SessionParams params;
        params.n_context = n_context;
        CHECK(failure(params) == Status::invalid);
    }
    SessionParams params;
    params.n_batch = 0;
    CHECK(failure(params) == Status::invalid);
    params = {};
    params.n_ubatch = -1;
    CHECK(failure(params) == Status::invalid);
    params = {};
    params.k_format = Format::q4_0;
    CHECK(failure(params) == Status::unsupported);
    params = {};
    params.v_format = Format::q6_k;
    CHECK(failure(params) == Status::unsupported);
}

TEST_CASE("a context that does not fit into memory is an error at creation") {
    SessionParams params;
    params.n_context = int64_t{1} << 31;
    CHECK(failure(params) == Status::out_of_memory);
}

TEST_CASE("evaluation gives the last row, every row or none, and the same bits each way") {
    const auto ids = some_ids(9);
    Session all = make_session();
    const std::vector<float> rows = all_logits(all, ids);
    Session last = make_session();
    std::vector<float> row(n_vocab());
    last.eval(ids, false, row, nullptr);
    CHECK(same_bits(row, last_row(rows)));
    Session none = make_session();
    none.eval(ids, true, {}, nullptr);
    for (Session* session : {&all, &last, &none}) {
        CHECK(tokens_of(*session) == ids);
        CHECK(same_bits(last_logits(*session), row));
    }
}

TEST_CASE("pieces of any size give the bits of the whole") {
    const auto ids = some_ids(70);
    Session whole = make_session();
    const std::vector<float> expected = all_logits(whole, ids);
    for (const int64_t n_ubatch : {1, 3, 64}) {
        Session session = make_session(512, n_ubatch);
        INFO(n_ubatch);
        CHECK(same_bits(all_logits(session, ids), expected));
    }
    Session twice = make_session();
    twice.eval(std::span(ids).first(33), false, {}, nullptr);
    CHECK(same_bits(all_logits(twice, {ids.begin() + 33, ids.end()}),
                    {expected.begin() + 33 * static_cast<ptrdiff_t>(n_vocab()), expected.end()}));
}

TEST_CASE("n_batch bounds a step like n_ubatch") {
    SessionParams params;
    params.n_context = 128;
    params.n_batch = 2;
    const Logger silent;
    Session session(bundled_model(), params, silent);
    const auto ids = some_ids(9);
    session.eval(ids, false, {}, nullptr);
    CHECK(same_bits(last_logits(session), fresh_logits(ids)));
}

TEST_CASE("wrong arguments of an evaluation leave the session as it was") {
    Session session = make_session(16);
    session.eval(some_ids(10), false, {}, nullptr);
    const std::vector<float> before = last_logits(session);
    std::vector<float> room(4 * n_vocab());
    const auto refuse = [&](Status status, std::string_view part, std::vector<int32_t> ids, bool all,
                            size_t floats) {
        expect_error(status, part, [&] { session.eval(ids, all, std::span(room).first(floats), nullptr); });
        CHECK(tokens_of(session) == some_ids(10));
        CHECK(same_bits(last_logits(session), before));
    };
    refuse(Status::invalid, "no tokens", {}, false, 0);
    refuse(Status::invalid, "token 1 is -1", {3, -1}, false, 0);
    refuse(Status::invalid, "token 2 is 2048", {3, 4, 2048}, false, 0);
    refuse(Status::invalid, "do not fit into a buffer", {3}, false, n_vocab() - 1);
    refuse(Status::invalid, "do not fit into a buffer", {3, 4}, true, 2 * n_vocab() - 1);
    refuse(Status::context_full, "7 tokens do not fit", some_ids(7), false, 0);
}

TEST_CASE("a context can be filled exactly, and then holds no more") {
    Session session = make_session(10);
    session.eval(some_ids(10), false, {}, nullptr);
    const auto error = error_of([&] { session.eval(some_ids(1), false, {}, nullptr); });
    REQUIRE(error);
    CHECK(error->status() == Status::context_full);
    CHECK(error->facts().requested == 1);
    CHECK(error->facts().available == 0);
    expect_error(Status::context_full, "do not fit", [&] { session.append(5); });
    CHECK(session.n_tokens() == 10);
}

TEST_CASE("an appended token counts at once and is evaluated when its logits are asked for") {
    const auto ids = some_ids(8);
    Session session = make_session();
    session.eval(std::span(ids).first(7), false, {}, nullptr);
    session.append(ids[7]);
    CHECK(tokens_of(session) == ids);
    CHECK(same_bits(last_logits(session), fresh_logits(ids)));
}

TEST_CASE("an appended token is evaluated with the next ones, whose rows alone are given") {
    const auto ids = some_ids(12);
    Session whole = make_session();
    const std::vector<float> expected = all_logits(whole, ids);
    for (const int64_t n_ubatch : {1, 2, 512}) {
        Session session = make_session(512, n_ubatch);
        session.eval(std::span(ids).first(7), false, {}, nullptr);
        session.append(ids[7]);
        const std::vector<float> rows = all_logits(session, {ids.begin() + 8, ids.end()});
        INFO(n_ubatch);
        CHECK(same_bits(rows, {expected.begin() + 8 * static_cast<ptrdiff_t>(n_vocab()), expected.end()}));
        CHECK(same_bits(last_logits(session), last_row(expected)));
    }
}

TEST_CASE("an id out of range cannot be appended, and two tokens cannot wait") {
    Session session = make_session();
    session.eval(some_ids(3), false, {}, nullptr);
    expect_error(Status::invalid, "-1", [&] { session.append(-1); });
    expect_error(Status::invalid, "2048", [&] { session.append(2048); });
    session.append(4);
    expect_error(Status::internal, "two tokens", [&] { session.append(5); });
    CHECK(session.n_tokens() == 4);
}

TEST_CASE("an appended token alone is evaluated too") {
    Session session = make_session();
    session.append(17);
    CHECK(same_bits(last_logits(session), fresh_logits({17})));
}

TEST_CASE("a truncated session goes on as if the rest had never been") {
    const auto ids = some_ids(80);
    Session session = make_session();
    session.eval(ids, false, {}, nullptr);
    for (const size_t count : std::vector<size_t>{70, 64, 63, 1}) {
        session.truncate(static_cast<int64_t>(count));
        const std::vector<int32_t> kept(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(count));
        INFO(count);
        CHECK(tokens_of(session) == kept);
        CHECK(same_bits(last_logits(session), fresh_logits(kept)));
        auto other = kept;
        other.insert(other.end(), {5, 6, 7});
        session.eval(std::vector<int32_t>{5, 6, 7}, false, {}, nullptr);
        CHECK(same_bits(last_logits(session), fresh_logits(other)));
        session.truncate(static_cast<int64_t>(count));
    }
    session.truncate(0);
    CHECK(session.n_tokens() == 0);
    expect_error(Status::invalid, "empty", [&] { session.last_logits(nullptr); });
    session.eval(ids, false, {}, nullptr);
    CHECK(same_bits(last_logits(session), fresh_logits(ids)));
}

TEST_CASE("truncating takes back an appended token, or nothing") {
    const auto ids = some_ids(6);
    Session session = make_session();
    session.eval(ids, false, {}, nullptr);
    session.append(9);
    session.truncate(7);
    CHECK(session.n_tokens() == 7);
    session.truncate(6);
    CHECK(same_bits(last_logits(session), fresh_logits(ids)));
}

TEST_CASE("a session cannot be truncated to more tokens than it holds or to fewer than none") {
    Session session = make_session();
    session.eval(some_ids(5), false, {}, nullptr);
    expect_error(Status::invalid, "truncate to 6", [&] { session.truncate(6); });
    expect_error(Status::invalid, "truncate to -1", [&] { session.truncate(-1); });
    CHECK(session.n_tokens() == 5);
}

TEST_CASE("a cancelled evaluation leaves the session as it was") {
    const auto ids = some_ids(20);
    const bool appended = GENERATE(false, true);
    Session session = make_session();
    session.eval(std::span(ids).first(10), false, {}, nullptr);
    const std::vector<float> before = last_logits(session);
    if (appended) session.append(ids[10]);
    const auto held = tokens_of(session);
    CancelToken cancel;
    cancel.trigger();
    std::vector<float> logits(9 * n_vocab());
    expect_error(Status::cancelled, "evaluation",
                 [&] { session.eval(std::span(ids).last(9), true, logits, &cancel); });
    CHECK(tokens_of(session) == held);
    if (!appended) CHECK(same_bits(last_logits(session), before));
    CHECK(same_bits(last_logits(session), fresh_logits(held)));
    session.eval(std::span(ids).last(9), false, {}, nullptr);
    auto whole = held;
    whole.insert(whole.end(), ids.end() - 9, ids.end());
    CHECK(same_bits(last_logits(session), fresh_logits(whole)));
}

TEST_CASE("another thread cancels a long evaluation, and the session goes on from where it was") {
    const auto model = bundled_model("reference");  // slow enough that the token comes in time
    SessionParams params;
    params.n_context = 4096;
    const Logger silent;
    Session session(model, params, silent);
    const auto ids = some_ids(5);
    session.eval(ids, false, {}, nullptr);
    const std::vector<float> before = last_logits(session);

    CancelToken cancel;
    std::thread canceller([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        cancel.trigger();
    });
    const auto error = error_of([&] { session.eval(some_ids(4000), false, {}, &cancel); });
    canceller.join();
    REQUIRE(error);
    CHECK(error->status() == Status::cancelled);
    CHECK(tokens_of(session) == ids);
    CHECK(same_bits(last_logits(session), before));
    session.append(77);
    Session other(model, params, silent);
    other.eval(ids, false, {}, nullptr);
    other.append(77);
    CHECK(same_bits(last_logits(session), last_logits(other)));
}

TEST_CASE("sessions of one model do not disturb each other") {
    const auto ids = some_ids(20);
    Session a = make_session();
    Session b = make_session();
    for (const int32_t id : ids) {
        a.eval({&id, 1}, false, {}, nullptr);
        const int32_t other = id + 1;
        b.eval({&other, 1}, false, {}, nullptr);
    }
    CHECK(same_bits(last_logits(a), fresh_logits(ids)));
}
