// SPDX-License-Identifier: Apache-2.0
// Any bytes as a message between processes, first unchanged, then with a correct header. The message is refused, or what was read
// from it is written as the same bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "ranks/messages.h"
#include "require.h"

namespace {

using namespace minim;
using minim::fuzz::require;
using ranks::MessageHeader;

using Bytes = std::vector<std::byte>;

// What followers rely on.
void check_step(const ranks::StepMessage& step) {
    require(!step.rows.empty(), "a step has rows");
    for (const ranks::StepMessage::Sequence& sequence : step.sequences)
        require(uint64_t{sequence.first_page} + sequence.n_pages <= step.pages.size(),
                "a sequence's pages are in the step");
    for (const ranks::StepMessage::Row& row : step.rows) {
        require(row.sequence >= 0 && static_cast<size_t>(row.sequence) < step.sequences.size(),
                "a row's sequence is in the step");
        const int64_t page = row.position / backend::k_kv_page_tokens;
        require(row.position >= 0 && page < step.sequences[static_cast<size_t>(row.sequence)].n_pages,
                "a row's position is in a page of its sequence");
    }
}

void read(const Bytes& bytes, uint64_t number) {
    fuzz::require_refusal({Status::format}, "a message is read or refused", [&] {
        const ranks::Message message = ranks::parse_message(bytes, number);
        require(ranks::encode(message, number) == bytes, "a message is written as it was read");
        if (const auto* const step = std::get_if<ranks::StepMessage>(&message)) check_step(*step);
    });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto input = std::as_bytes(std::span(data, size));
    Bytes bytes(input.begin(), input.end());
    read(bytes, 0);
    if (size < sizeof(MessageHeader)) return 0;
    MessageHeader header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    header.magic = 0x314D4E4D;
    header.n_bytes = size - sizeof(header);
    header.hash = hash_bytes(std::span(bytes).subspan(sizeof(header)));
    std::memcpy(bytes.data(), &header, sizeof(header));
    read(bytes, header.number);
    return 0;
}
