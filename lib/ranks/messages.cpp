// SPDX-License-Identifier: Apache-2.0
#include "ranks/messages.h"

#include <array>
#include <bit>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/hash.h"

namespace minim::ranks {
namespace {

using backend::KvPage;

static_assert(std::endian::native == std::endian::little);
static_assert(sizeof(MessageHeader) == 32);
static_assert(sizeof(StepMessage::Row) == 24);
static_assert(sizeof(StepMessage::Sequence) == 16);
static_assert(sizeof(KvPage) == 8);

constexpr uint32_t k_magic = 0x314D4E4D;  // "MNM1"
constexpr std::array<std::string_view, std::variant_size_v<Message>> k_kind_names = {
    "step",      "make_space", "end_space", "make_pool",  "end_pool", "add_slab",
    "drop_slab", "copy_page",  "read_page", "write_page", "stop",     "answer"};
// No model has more layers, heads or numbers in a head: products of them fit into int64_t.
constexpr int64_t k_max_dimension = int64_t{1} << 16;
constexpr int64_t k_max_count = int64_t{1} << 40;

class Writer {
  public:
    template <typename T>
    void add(const T& value) {
        static_assert(std::is_trivially_copyable_v<T>);
        append(std::as_bytes(std::span(&value, 1)));
    }
    template <typename T>
    void add_all(const std::vector<T>& values) {
        append(std::as_bytes(std::span(values)));
    }
    void append(std::span<const std::byte> part) {
        const size_t end = bytes_.size();
        bytes_.resize(end + part.size());
        if (!part.empty()) std::memcpy(bytes_.data() + end, part.data(), part.size());
    }
    void reserve(size_t n_bytes) { bytes_.reserve(n_bytes); }
    std::vector<std::byte>& bytes() { return bytes_; }

  private:
    std::vector<std::byte> bytes_;
};

class Reader {
  public:
    Reader(std::string_view kind, std::span<const std::byte> bytes) : kind_(kind), bytes_(bytes) {}

    template <typename T>
    T take() {
        T value;
        const std::span<const std::byte> part = take_bytes(sizeof(T));
        std::memcpy(&value, part.data(), sizeof(T));
        return value;
    }

    template <typename T>
    std::vector<T> take_all(uint32_t count) {
        const std::span<const std::byte> part = take_bytes(count * sizeof(T));
        std::vector<T> values(count);
        if (count > 0) std::memcpy(values.data(), part.data(), part.size());
        return values;
    }

    std::span<const std::byte> take_bytes(uint64_t n_bytes) {
        if (n_bytes > bytes_.size())
            fail_file(Reason::truncated, "a message of kind {} has {} more bytes; it needs {}", kind_,
                      bytes_.size(), n_bytes);
        const std::span<const std::byte> part = bytes_.first(n_bytes);
        bytes_ = bytes_.subspan(n_bytes);
        return part;
    }

    std::span<const std::byte> rest() { return std::exchange(bytes_, {}); }

    void require_end() const {
        if (!bytes_.empty())
            fail_file(Reason::value, "a message of kind {} has {} bytes too many", kind_, bytes_.size());
    }

    // Returns the value if it lies in [low, high].
    template <typename T>
    T in_range(T value, std::type_identity_t<T> low, std::type_identity_t<T> high,
               std::string_view what) const {
        if (value < low || value > high)
            fail_file(Reason::value, "a message of kind {} has {} {}; {} to {} are possible", kind_, what,
                      value, low, high);
        return value;
    }

    void require_zero(int64_t value) const { in_range(value, 0, 0, "unused number"); }

    KvPage page(const KvPage& page) const {
        in_range(page.slab, 0, INT32_MAX, "slab");
        in_range(page.index, 0, INT32_MAX, "page index");
        return page;
    }

  private:
    std::string_view kind_;
    std::span<const std::byte> bytes_;
};

// ---- one function of each name for each kind ----

void write(Writer& writer, const StepMessage& step) {
    writer.reserve(sizeof(MessageHeader) + 16 + step.rows.size() * sizeof(StepMessage::Row) +
                   step.sequences.size() * sizeof(StepMessage::Sequence) +
                   step.pages.size() * sizeof(KvPage));
    writer.add(step.space);
    writer.add(static_cast<uint32_t>(step.rows.size()));
    writer.add(static_cast<uint32_t>(step.sequences.size()));
    writer.add(static_cast<uint32_t>(step.pages.size()));
    writer.add_all(step.rows);
    writer.add_all(step.sequences);
    writer.add_all(step.pages);
}

void check_row(const Reader& reader, const StepMessage& step, const StepMessage::Row& row) {
    reader.in_range(row.token, 0, INT32_MAX, "token");
    reader.in_range(row.sequence, 0, static_cast<int32_t>(step.sequences.size()) - 1, "sequence");
    const int64_t n_positions = step.sequences[row.sequence].n_pages * backend::k_kv_page_tokens;
    reader.in_range(row.position, 0, n_positions - 1, "position");
    reader.in_range(row.wants_logits, 0, 1, "flag for logits");
    reader.require_zero(row.unused);
}

void read(Reader& reader, StepMessage& step) {
    step.space = reader.take<uint32_t>();
    const auto n_rows = reader.take<uint32_t>();
    const auto n_sequences = reader.take<uint32_t>();
    const auto n_pages = reader.take<uint32_t>();
    reader.in_range(n_rows, 1, INT32_MAX, "number of rows");
    reader.in_range(n_sequences, 1, INT32_MAX, "number of sequences");
    step.rows = reader.take_all<StepMessage::Row>(n_rows);
    step.sequences = reader.take_all<StepMessage::Sequence>(n_sequences);
    step.pages = reader.take_all<KvPage>(n_pages);
    for (const StepMessage::Sequence& sequence : step.sequences) {
        reader.in_range(sequence.first_page, 0, n_pages, "first page");
        reader.in_range(sequence.n_pages, 0, n_pages - sequence.first_page, "number of pages");
        reader.require_zero(sequence.unused);
    }
    for (const KvPage& page : step.pages) reader.page(page);
    for (const StepMessage::Row& row : step.rows) check_row(reader, step, row);
}

void write(Writer& writer, const MakeSpaceMessage& message) {
    writer.add(message.space);
    writer.add(uint32_t{0});
    writer.add(message.n_rows);
    writer.add(message.n_context);
}

void read(Reader& reader, MakeSpaceMessage& message) {
    message.space = reader.take<uint32_t>();
    reader.require_zero(reader.take<uint32_t>());
    message.n_rows = reader.in_range(reader.take<int64_t>(), 1, k_max_count, "number of rows");
    message.n_context = reader.in_range(reader.take<int64_t>(), 1, k_max_count, "context");
}

void write(Writer& writer, const EndSpaceMessage& message) {
    writer.add(message.space);
}

void read(Reader& reader, EndSpaceMessage& message) {
    message.space = reader.take<uint32_t>();
}

void write(Writer& writer, const MakePoolMessage& message) {
    writer.add(message.pool);
    writer.add(uint32_t{0});
    writer.add(message.layout.n_layer);
    writer.add(message.layout.n_head_kv);
    writer.add(message.layout.head_dim);
    writer.add(static_cast<uint32_t>(message.layout.k_format));
    writer.add(static_cast<uint32_t>(message.layout.v_format));
    writer.add(message.layout.index_dim);
    writer.add(message.layout.first_index_layer);
}

Format read_kv_format(Reader& reader) {
    const auto number = reader.take<uint32_t>();
    const auto format = static_cast<Format>(reader.in_range(number, 0, k_format_count - 1, "format"));
    if (!backend::is_kv_format(format))
        fail_file(Reason::type, "a message has the format {} for a KV cache, which is none of it", number);
    return format;
}

void read(Reader& reader, MakePoolMessage& message) {
    message.pool = reader.take<uint32_t>();
    reader.require_zero(reader.take<uint32_t>());
    backend::KvLayout& layout = message.layout;
    layout.n_layer = reader.in_range(reader.take<int64_t>(), 1, k_max_dimension, "number of layers");
    layout.n_head_kv = reader.in_range(reader.take<int64_t>(), 1, k_max_dimension, "number of heads");
    layout.head_dim = reader.in_range(reader.take<int64_t>(), 1, k_max_dimension, "size of a head");
    layout.k_format = read_kv_format(reader);
    layout.v_format = read_kv_format(reader);
    layout.index_dim = reader.in_range(reader.take<int64_t>(), 0, k_max_dimension, "size of an index key");
    layout.first_index_layer =
        reader.in_range(reader.take<int64_t>(), 0, layout.n_layer - 1, "first layer with index keys");
    if (layout.index_dim > 0) layout.index_format = backend::index_format_of(layout.k_format);
}

void write(Writer& writer, const EndPoolMessage& message) {
    writer.add(message.pool);
}

void read(Reader& reader, EndPoolMessage& message) {
    message.pool = reader.take<uint32_t>();
}

void write(Writer& writer, const AddSlabMessage& message) {
    writer.add(message.pool);
    writer.add(message.slab);
    writer.add(message.n_pages);
}

void read(Reader& reader, AddSlabMessage& message) {
    message.pool = reader.take<uint32_t>();
    message.slab = reader.in_range(reader.take<int32_t>(), 0, INT32_MAX, "slab");
    message.n_pages = reader.in_range(reader.take<int64_t>(), 1, INT32_MAX, "number of pages");
}

void write(Writer& writer, const DropSlabMessage& message) {
    writer.add(message.pool);
    writer.add(message.slab);
}

void read(Reader& reader, DropSlabMessage& message) {
    message.pool = reader.take<uint32_t>();
    message.slab = reader.in_range(reader.take<int32_t>(), 0, INT32_MAX, "slab");
}

void write(Writer& writer, const CopyPageMessage& message) {
    writer.add(message.pool);
    writer.add(message.from);
    writer.add(message.to);
}

void read(Reader& reader, CopyPageMessage& message) {
    message.pool = reader.take<uint32_t>();
    message.from = reader.page(reader.take<KvPage>());
    message.to = reader.page(reader.take<KvPage>());
}

void write(Writer& writer, const ReadPageMessage& message) {
    writer.add(message.pool);
    writer.add(message.page);
}

void read(Reader& reader, ReadPageMessage& message) {
    message.pool = reader.take<uint32_t>();
    message.page = reader.page(reader.take<KvPage>());
}

void write(Writer& writer, const WritePageMessage& message) {
    writer.add(message.pool);
    writer.add(message.page);
    writer.append(message.bytes);
}

void read(Reader& reader, WritePageMessage& message) {
    message.pool = reader.take<uint32_t>();
    message.page = reader.page(reader.take<KvPage>());
    const std::span<const std::byte> bytes = reader.rest();
    message.bytes.assign(bytes.begin(), bytes.end());
}

void write(Writer&, const StopMessage&) {}

void read(Reader&, StopMessage&) {}

void write(Writer& writer, const AnswerMessage& message) {
    writer.add(static_cast<int32_t>(message.status));
    writer.add(static_cast<uint32_t>(message.text.size()));
    writer.append(std::as_bytes(std::span(message.text)));
    writer.append(message.bytes);
}

void read(Reader& reader, AnswerMessage& message) {
    constexpr auto k_last = static_cast<int32_t>(Status::peer_lost);
    message.status = static_cast<Status>(reader.in_range(reader.take<int32_t>(), 0, k_last, "status"));
    const std::span<const std::byte> text = reader.take_bytes(reader.take<uint32_t>());
    message.text.assign(reinterpret_cast<const char*>(text.data()), text.size());
    const std::span<const std::byte> bytes = reader.rest();
    message.bytes.assign(bytes.begin(), bytes.end());
}

template <size_t kind = 0>
Message read_kind(size_t wanted, std::span<const std::byte> bytes) {
    if constexpr (kind < std::variant_size_v<Message>) {
        if (kind != wanted) return read_kind<kind + 1>(wanted, bytes);
        std::variant_alternative_t<kind, Message> message;
        Reader reader(k_kind_names[kind], bytes);
        read(reader, message);
        reader.require_end();
        return message;
    } else {
        fail_file(Reason::type, "a message is of the unknown kind {}", wanted + 1);
    }
}

}  // namespace

std::vector<std::byte> encode(const Message& message, uint64_t number) {
    Writer writer;
    writer.add(MessageHeader{});
    std::visit([&](const auto& of_kind) { write(writer, of_kind); }, message);
    std::vector<std::byte>& bytes = writer.bytes();
    const auto payload = std::span<const std::byte>(bytes).subspan(sizeof(MessageHeader));
    const MessageHeader header = {.magic = k_magic,
                                  .kind = static_cast<uint32_t>(message.index()) + 1,
                                  .number = number,
                                  .n_bytes = payload.size(),
                                  .hash = hash_bytes(payload)};
    std::memcpy(bytes.data(), &header, sizeof(header));
    return std::move(bytes);
}

Message parse_message(std::span<const std::byte> bytes, uint64_t number) {
    MessageHeader header;
    if (bytes.size() < sizeof(header))
        fail_file(Reason::truncated, "a message has {} bytes; a header alone has {}", bytes.size(),
                  sizeof(header));
    std::memcpy(&header, bytes.data(), sizeof(header));
    const std::span<const std::byte> payload = bytes.subspan(sizeof(header));
    if (header.magic != k_magic)
        fail_file(Reason::format, "a message begins with {:#010x}, not {:#010x}", header.magic, k_magic);
    if (header.n_bytes != payload.size())
        fail_file(Reason::truncated, "a message has {} bytes, and its header says {}", payload.size(),
                  header.n_bytes);
    if (header.hash != hash_bytes(payload))
        fail_file(Reason::value, "a message of {} bytes was altered: its hash is another", payload.size());
    if (header.number != number)
        fail_file(Reason::value, "message {} has arrived where {} is the next", header.number, number);
    if (header.kind == 0) fail_file(Reason::type, "a message is of the unknown kind 0");
    return read_kind(header.kind - 1, payload);
}

}  // namespace minim::ranks
