// SPDX-License-Identifier: Apache-2.0
#include "engine/session.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "kv/state_file.h"
#include "placement/backends.h"
#include "support.h"
#include "support/last_logits.h"

using namespace minim;
using namespace minim::test;
using engine::Session;
using engine::SessionParams;

namespace {

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
    const auto logits = last_logits_of(session);
    return {logits.begin(), logits.end()};
}

// Returns the logits after all of `ids`, computed in a session of its own.
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
    expect_error(Status::invalid, "empty", [&] { last_logits_of(session); });
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
    params.n_ubatch = -1;
    CHECK(failure(params) == Status::invalid);
    params = {};
    params.k_format = Format::q4_1;
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
    expect_error(Status::invalid, "empty", [&] { last_logits_of(session); });
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
    const auto stored = tokens_of(session);
    CancelToken cancel;
    cancel.trigger();
    std::vector<float> logits(9 * n_vocab());
    expect_error(Status::cancelled, "evaluation",
                 [&] { session.eval(std::span(ids).last(9), true, logits, &cancel); });
    CHECK(tokens_of(session) == stored);
    if (!appended) CHECK(same_bits(last_logits(session), before));
    CHECK(same_bits(last_logits(session), fresh_logits(stored)));
    session.eval(std::span(ids).last(9), false, {}, nullptr);
    auto whole = stored;
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

TEST_CASE("a fork goes on by itself, as if it had evaluated everything itself") {
    const auto ids = some_ids(150);
    const bool appended = GENERATE(false, true);
    Session parent = make_session();
    parent.eval(std::span(ids).first(140), false, {}, nullptr);
    if (appended) parent.append(ids[140]);
    const auto stored = tokens_of(parent);
    const auto fork = parent.fork();
    CHECK(tokens_of(*fork) == stored);
    CHECK(fork->n_context() == parent.n_context());

    auto one = stored;
    auto other = stored;
    for (const int32_t id : {3, 4, 5}) one.push_back(id);
    for (const int32_t id : {900, 901}) other.push_back(id);
    parent.eval(std::vector<int32_t>{3, 4, 5}, false, {}, nullptr);
    fork->eval(std::vector<int32_t>{900, 901}, false, {}, nullptr);
    CHECK(same_bits(last_logits(parent), fresh_logits(one)));
    CHECK(same_bits(last_logits(*fork), fresh_logits(other)));
}

TEST_CASE("a fork has the logits of what it was forked from") {
    Session parent = make_session();
    parent.eval(some_ids(20), false, {}, nullptr);
    const auto fork = parent.fork();
    CHECK(same_bits(last_logits(*fork), last_logits(parent)));
    CHECK(make_session().fork()->n_tokens() == 0);
}

TEST_CASE("a fork truncated into what is shared changes nothing of the other") {
    const auto ids = some_ids(200);
    Session parent = make_session();
    parent.eval(ids, false, {}, nullptr);
    const std::vector<float> before = last_logits(parent);
    const auto fork = parent.fork();
    for (const int64_t count : {150, 128, 65, 64, 3}) {
        fork->truncate(count);
        std::vector<int32_t> kept(ids.begin(), ids.begin() + count);
        CHECK(same_bits(last_logits(*fork), fresh_logits(kept)));
        fork->eval(std::vector<int32_t>{77, 78}, false, {}, nullptr);
        kept.insert(kept.end(), {77, 78});
        INFO(count);
        CHECK(same_bits(last_logits(*fork), fresh_logits(kept)));
        fork->truncate(count);
    }
    parent.append(5);
    auto whole = ids;
    whole.push_back(5);
    CHECK(same_bits(last_logits(parent), fresh_logits(whole)));
}

TEST_CASE("forks of forks work side by side, also after the first one is gone") {
    const auto ids = some_ids(100);
    auto first = make_session().fork();
    first->eval(ids, false, {}, nullptr);
    std::vector<std::unique_ptr<Session>> forks;
    for (int i = 0; i < 4; ++i) forks.push_back((i % 2 == 0 ? *first : *forks[0]).fork());
    first.reset();
    std::vector<std::vector<float>> logits(forks.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < forks.size(); ++i) {
        threads.emplace_back([&, i] {
            for (int32_t id = 0; id < 70; ++id) {
                const int32_t token = id + 100 * static_cast<int32_t>(i);
                forks[i]->eval({&token, 1}, false, {}, nullptr);
            }
            logits[i] = last_logits(*forks[i]);
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t i = 0; i < forks.size(); ++i) {
        auto all = ids;
        for (int32_t id = 0; id < 70; ++id) all.push_back(id + 100 * static_cast<int32_t>(i));
        CHECK(same_bits(logits[i], fresh_logits(all)));
    }
}

TEST_CASE("a restored session goes on with the bits of the saved one") {
    const TemporaryFolder folder;
    const std::string path = folder / "state";
    const Logger silent;
    const auto ids = some_ids(130);
    for (const Format format : {Format::f16, Format::f32, Format::bf16, Format::q8_0, Format::q4_0}) {
        SessionParams params;
        params.n_context = 300;
        params.k_format = format;
        params.v_format = format;
        Session session(bundled_model(), params, silent);
        session.eval(ids, false, {}, nullptr);
        session.save(path, session.n_tokens(), nullptr);
        const auto restored = Session::restore(bundled_model(), kv::StateFile(path), {}, nullptr, silent);
        INFO(traits(format).name);
        CHECK(restored->n_context() == 300);
        CHECK(tokens_of(*restored) == ids);
        CHECK(same_bits(last_logits(*restored), last_logits(session)));
        restored->append(9);
        session.append(9);
        CHECK(same_bits(last_logits(*restored), last_logits(session)));
    }
}

TEST_CASE("sessions in every state can be saved") {
    const TemporaryFolder folder;
    const std::string path = folder / "state";
    const Logger silent;
    const auto restored = [&] {
        return Session::restore(bundled_model(), kv::StateFile(path), {}, nullptr, silent);
    };
    Session session = make_session();
    session.save(path, 0, nullptr);
    CHECK(restored()->n_tokens() == 0);

    session.append(17);  // not evaluated
    session.save(path, 1, nullptr);
    CHECK(same_bits(last_logits(*restored()), fresh_logits({17})));

    const auto ids = some_ids(64);
    session.eval(ids, false, {}, nullptr);
    session.truncate(64);  // its logits are gone
    session.save(path, 64, nullptr);
    CHECK(same_bits(last_logits(*restored()), last_logits(session)));

    session.save(path, 30, nullptr);  // a part of it
    const auto part = restored();
    CHECK(part->n_tokens() == 30);
    session.truncate(30);
    CHECK(same_bits(last_logits(*part), last_logits(session)));
}

TEST_CASE("a state is restored into the context asked for") {
    const TemporaryFolder folder;
    const std::string path = folder / "state";
    const Logger silent;
    Session session = make_session(100);
    session.eval(some_ids(90), false, {}, nullptr);
    session.save(path, 90, nullptr);
    SessionParams params;
    params.n_context = 1000;
    const auto larger = Session::restore(bundled_model(), kv::StateFile(path), params, nullptr, silent);
    CHECK(larger->n_context() == 1000);
    larger->eval(some_ids(300), false, {}, nullptr);

    params.n_context = 89;
    expect_error(Status::invalid, "90 tokens do not fit into a context of 89",
                 [&] { Session::restore(bundled_model(), kv::StateFile(path), params, nullptr, silent); });
    params.n_context = 0;
    params.k_format = Format::q8_0;
    expect_error(Status::invalid, "saved as F16, not as Q8_0",
                 [&] { Session::restore(bundled_model(), kv::StateFile(path), params, nullptr, silent); });
}

TEST_CASE("a state of another model is refused") {
    const TemporaryFolder folder;
    const std::string path = folder / "state";
    const Logger silent;
    Session session = make_session();
    session.eval(some_ids(9), false, {}, nullptr);
    session.save(path, 9, nullptr);

    // The same model with its weights in other formats.
    const auto other = std::make_shared<const model::Model>(
        std::string(MINIM_EXAMPLE_MODELS) + "/minim-tiny-mix-ik.gguf",
        placement::make_backend("cpu", std::make_shared<ThreadPool>(1), active_cpu_level()),
        model::OpenOptions{}, silent);
    expect_error(Status::format, "another model",
                 [&] { Session::restore(other, kv::StateFile(path), {}, nullptr, silent); });
}

TEST_CASE("a state with a token that the model does not have is refused") {
    const TemporaryFolder folder;
    const std::string path = folder / "state";
    const Logger silent;
    const auto model = bundled_model();
    for (const int32_t id : {-1, static_cast<int32_t>(n_vocab())}) {
        const std::vector<int32_t> tokens = {id};
        kv::State state;
        state.model = model->fingerprint();
        state.n_context = 10;
        state.tokens = tokens;
        const backend::KvLayout layout = engine::kv_layout(model->config(), Format::f16, Format::f16);
        kv::write_state(path, state, kv::Sequence::alone(layout, 10), nullptr);
        expect_error(Status::format, "token " + std::to_string(id) + " of this state",
                     [&] { Session::restore(model, kv::StateFile(path), {}, nullptr, silent); });
    }
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
