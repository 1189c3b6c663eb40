// SPDX-License-Identifier: Apache-2.0
#include "ranks/messages.h"

#include <cstring>

#include "base/hash.h"
#include "support/helpers.h"

using namespace minim;
using namespace minim::ranks;
using namespace minim::test;

namespace {

using Bytes = std::vector<std::byte>;

StepMessage some_step() {
    StepMessage step;
    step.space = 3;
    step.rows = {{.token = 5, .sequence = 0, .position = 70, .wants_logits = 0, .unused = 0},
                 {.token = 6, .sequence = 1, .position = 0, .wants_logits = 1, .unused = 0}};
    step.sequences = {{.pool = 1, .first_page = 0, .n_pages = 2, .unused = 0},
                      {.pool = 2, .first_page = 2, .n_pages = 1, .unused = 0}};
    step.pages = {{0, 4}, {1, 7}, {0, 0}};
    return step;
}

std::vector<Message> one_of_each() {
    const backend::KvLayout layout = {.n_layer = 62,
                                      .n_head_kv = 8,
                                      .head_dim = 128,
                                      .k_format = Format::bf16,
                                      .v_format = Format::q4_0,
                                      .index_dim = 128,
                                      .index_format = Format::bf16,
                                      .first_index_layer = 3};
    return {some_step(),
            MakeSpaceMessage{1, 512, 4096},
            EndSpaceMessage{1},
            MakePoolMessage{2, layout},
            EndPoolMessage{2},
            AddSlabMessage{2, 5, 100},
            DropSlabMessage{2, 5},
            CopyPageMessage{2, {5, 1}, {5, 2}},
            ReadPageMessage{2, {5, 1}},
            WritePageMessage{2, {5, 1}, Bytes(100, std::byte(7))},
            StopMessage{},
            AnswerMessage{Status::out_of_memory, "no memory", Bytes(10, std::byte(8))}};
}

// Corrects the header's sizes and hash after the bytes were altered.
void seal(Bytes& bytes) {
    MessageHeader header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    header.n_bytes = bytes.size() - sizeof(header);
    header.hash = hash_bytes(std::span(bytes).subspan(sizeof(header)));
    std::memcpy(bytes.data(), &header, sizeof(header));
}

void expect_refusal(const Message& message, std::string_view part) {
    expect_error(Status::format, part, [&] { parse_message(encode(message, 0), 0); });
}

}  // namespace

TEST_CASE("a message of each kind is parsed as it was written") {
    uint64_t number = 100;
    for (const Message& message : one_of_each()) {
        const Bytes bytes = encode(message, number);
        const Message again = parse_message(bytes, number);
        CHECK(again.index() == message.index());
        CHECK(encode(again, number) == bytes);
        ++number;
    }
    const Message pool = one_of_each()[3];
    CHECK(std::get<MakePoolMessage>(parse_message(encode(pool, 0), 0)).layout ==
          std::get<MakePoolMessage>(pool).layout);
    const Message step = parse_message(encode(some_step(), 0), 0);
    CHECK(std::get<StepMessage>(step).rows[1].token == 6);
    CHECK(std::get<StepMessage>(step).pages[1].index == 7);
}

TEST_CASE("a message that ends early or late is refused") {
    for (const Message& message : one_of_each()) {
        const Bytes whole = encode(message, 0);
        for (size_t n = 0; n < whole.size(); ++n) {
            Bytes bytes(whole.begin(), whole.begin() + static_cast<int64_t>(n));
            CHECK_THROWS_AS(parse_message(bytes, 0), Error);
            const bool ends_in_bytes = std::holds_alternative<WritePageMessage>(message) ||
                                       std::holds_alternative<AnswerMessage>(message);
            if (n < sizeof(MessageHeader) || ends_in_bytes) continue;
            seal(bytes);
            CHECK_THROWS_AS(parse_message(bytes, 0), Error);
        }
        Bytes longer = whole;
        longer.push_back({});
        CHECK_THROWS_AS(parse_message(longer, 0), Error);
    }
}

TEST_CASE("an altered message, and one in the place of another, are refused") {
    for (const Message& message : one_of_each()) {
        const Bytes whole = encode(message, 5);
        for (size_t i = 0; i < whole.size(); ++i) {
            if (i >= 4 && i < 8) continue;  // the kind, which is not in the hash
            Bytes bytes = whole;
            bytes[i] ^= std::byte(0x20);
            CHECK_THROWS_AS(parse_message(bytes, 5), Error);
        }
        expect_error(Status::format, "message 5 has arrived where 6 is the next",
                     [&] { parse_message(whole, 6); });
    }
}

TEST_CASE("counts and indexes outside of their range are refused with their values") {
    StepMessage step = some_step();
    step.rows[0].sequence = 2;
    expect_refusal(step, "sequence 2; 0 to 1 are possible");
    step = some_step();
    step.rows[0].position = 128;
    expect_refusal(step, "position 128; 0 to 127");
    step = some_step();
    step.rows[1].token = -1;
    expect_refusal(step, "token -1");
    step = some_step();
    step.sequences[1].n_pages = 2;
    expect_refusal(step, "number of pages 2; 0 to 1");
    step = some_step();
    step.sequences[1].first_page = 4;
    expect_refusal(step, "first page 4; 0 to 3");
    step = some_step();
    step.pages[0].slab = -3;
    expect_refusal(step, "slab -3");
    step = some_step();
    step.rows[0].wants_logits = 2;
    expect_refusal(step, "flag for logits 2");
    step.rows.clear();
    expect_refusal(step, "number of rows 0");
    expect_refusal(MakeSpaceMessage{1, 0, 5}, "number of rows 0");
    expect_refusal(MakeSpaceMessage{1, 5, -5}, "context -5");
    expect_refusal(AddSlabMessage{1, -1, 5}, "slab -1");
    expect_refusal(AddSlabMessage{1, 1, 0}, "number of pages 0");
    backend::KvLayout layout = {.n_layer = 1, .n_head_kv = 1, .head_dim = 0};
    expect_refusal(MakePoolMessage{1, layout}, "size of a head 0");
    layout.head_dim = 64;
    layout.index_dim = -1;
    expect_refusal(MakePoolMessage{1, layout}, "size of an index key -1");
    layout.index_dim = 8;
    layout.first_index_layer = 1;
    expect_refusal(MakePoolMessage{1, layout}, "first layer with index keys 1; 0 to 0");
    layout.first_index_layer = 0;
    layout.k_format = Format::iq4_xs;
    expect_refusal(MakePoolMessage{1, layout}, "for a KV cache");
    expect_refusal(AnswerMessage{static_cast<Status>(99), "", {}}, "status 99");
}

TEST_CASE("a message of an unknown kind is refused") {
    for (const uint32_t kind : {0U, 13U, 0xFFFFFFFFU}) {
        Bytes bytes = encode(StopMessage{}, 0);
        std::memcpy(bytes.data() + offsetof(MessageHeader, kind), &kind, sizeof(kind));
        expect_error(Status::format, "the unknown kind " + std::to_string(kind),
                     [&] { parse_message(bytes, 0); });
    }
}
