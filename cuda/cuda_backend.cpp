#include "cuda/cuda_backend.h"

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/error.h"
#include "base/format_text.h"
#include "cuda/exact/operations.h"
#include "cuda/runtime.h"
#include "format/blocks.h"

namespace minim::cuda {
namespace {

using backend::AttendArgs;
using backend::ExpertStack;
using backend::ExpertWeights;
using backend::KvLayout;
using backend::KvRow;
using backend::KvSequence;
using backend::LinearTask;
using backend::Matrix;
using backend::Scratch;
using backend::Vector;
using runtime::Way;

constexpr uint64_t k_alignment = 256;

class Block : public backend::Memory {
  public:
    Block(int32_t device, void* block, uint64_t bytes)
        : Memory(static_cast<std::byte*>(block), bytes), device_(device) {}
    ~Block() override { runtime::release(device_, data_); }

  private:
    int32_t device_;
};

// A stream, and on the device what its operations need beside their arguments.
struct Stream : Scratch {
    int32_t device = 0;
    runtime::Stream stream = nullptr;
    std::unique_ptr<backend::Memory> memory;  // holds what the pointers below point to

    int32_t* ids;         // [n_rows]
    int32_t* position;    // [n_rows]
    int64_t* first_page;  // [n_rows]
    uint64_t* pages;      // [n_rows * pages of n_context]
    float* frequency;     // [head_dim]
    float* score;         // [n_rows, n_expert]
    float* activated;     // [n_rows * n_expert_used, expert_ff]
    float* output;        // [n_rows * n_expert_used, hidden]

    // The same on the host, on their way; of the sizes above, so that no operation allocates.
    std::vector<int32_t> host_position;
    std::vector<int64_t> host_first_page;
    std::vector<uint64_t> host_pages;

    ~Stream() override {
        if (stream != nullptr) runtime::end_stream(device, stream);
    }
};

Stream& own(Scratch& scratch) {
    return static_cast<Stream&>(scratch);
}

exact::Weight weight_of(const Matrix& matrix) {
    return {reinterpret_cast<const uint8_t*>(matrix.data),
            matrix.format,
            matrix.rows,
            matrix.cols,
            matrix.row_bytes,
            matrix.scale};
}

exact::Experts experts_of(const ExpertStack& stack) {
    exact::Experts experts = {stack.format, stack.rows, stack.cols, stack.row_bytes, {}, {}};
    for (int64_t e = 0; e < stack.n_expert(); ++e) {
        const Matrix matrix = stack.matrix(e);
        experts.data[e] = reinterpret_cast<const uint8_t*>(matrix.data);
        experts.scale[e] = matrix.scale;
    }
    return experts;
}

class CudaBackend : public backend::Backend {
  public:
    explicit CudaBackend(int32_t index) : index_(index), name_(format_text("cuda:{}", index)) {}

    std::string_view name() const noexcept override { return name_; }
    bool uses_host_memory() const noexcept override { return false; }
    uint64_t available_bytes() const noexcept override { return runtime::free_bytes(index_); }

    std::unique_ptr<backend::Memory> allocate(uint64_t bytes, std::string_view what) const override {
        void* block = runtime::allocate(index_, bytes);
        if (block == nullptr) {
            const uint64_t available = available_bytes();
            ErrorFacts facts;
            facts.requested = static_cast<int64_t>(bytes);
            facts.available = static_cast<int64_t>(available);
            throw Error(
                Status::out_of_device_memory, Reason::none,
                format_text("{}: {} bytes for {} needed, {} bytes available", name_, bytes, what, available),
                facts);
        }
        try {
            return std::make_unique<Block>(index_, block, bytes);
        } catch (...) {
            runtime::release(index_, block);
            throw;
        }
    }

    void write(std::byte* to, const std::byte* from_host, uint64_t bytes) const override {
        if (why_lost_ == nullptr) note(runtime::copy(index_, Way::to_device, to, from_host, bytes));
        check_alive();
    }
    void read(std::byte* to_host, const std::byte* from, uint64_t bytes) const override {
        if (why_lost_ == nullptr) note(runtime::copy(index_, Way::to_host, to_host, from, bytes));
        check_alive();
    }
    void copy(std::byte* to, const std::byte* from, uint64_t bytes) const noexcept override {
        if (why_lost_ == nullptr) note(runtime::copy(index_, Way::on_device, to, from, bytes));
    }

    std::unique_ptr<Scratch> reserve(const backend::StepLimits& limits) const override;

    void upload(Scratch& scratch, std::byte* to, const std::byte* from_host, uint64_t bytes) const override {
        copy_later(own(scratch), Way::to_device, to, from_host, bytes);
    }
    void download(Scratch& scratch, std::byte* to_host, const std::byte* from,
                  uint64_t bytes) const override {
        copy_later(own(scratch), Way::to_host, to_host, from, bytes);
    }
    void move(Scratch& scratch, std::byte* to, const std::byte* from, uint64_t bytes) const override {
        copy_later(own(scratch), Way::on_device, to, from, bytes);
    }
    bool receive(Scratch& scratch, std::byte* to, const Backend& peer, Scratch& peer_scratch,
                 const std::byte* from, uint64_t bytes) const override {
        const auto* other = dynamic_cast<const CudaBackend*>(&peer);
        if (other == nullptr) return false;
        if (why_lost_ == nullptr)
            note(runtime::copy_from_peer(index_, own(scratch).stream, to, other->index_,
                                         own(peer_scratch).stream, from, bytes));
        return true;
    }
    void synchronize(Scratch& scratch) const override {
        note(runtime::synchronize(index_, own(scratch).stream));
        check_alive();
    }

    bool runs(Format format) const noexcept override {
        return with_block(AllBlocks{}, format, [](auto) {});
    }

    void embed(Scratch& scratch, const Matrix& table, std::span<const int32_t> ids, float* x) const override {
        Stream& s = own(scratch);
        put(s, s.ids, ids);
        launch([&] { exact::embed(s.stream, weight_of(table), s.ids, std::ssize(ids), x); });
    }

    void norm(Scratch& scratch, const float* x, int64_t n, const Vector& weight, float eps,
              float* h) const override {
        launch([&] { exact::norm(own(scratch).stream, x, n, weight.data, weight.size, eps, h); });
    }

    void linear(Scratch& scratch, const float* h, int64_t n,
                std::span<const LinearTask> tasks) const override {
        for (const LinearTask& task : tasks)
            launch(
                [&] { exact::linear(own(scratch).stream, weight_of(*task.weight), h, n, task.y, task.add); });
    }

    void attend(Scratch& scratch, const AttendArgs& args) const override;

    void route(Scratch& scratch, const float* h, int64_t n, const Matrix& router, const Vector& bias,
               int64_t n_used, int32_t* ids, float* gates) const override {
        Stream& s = own(scratch);
        launch([&] { exact::linear(s.stream, weight_of(router), h, n, s.score, false); });
        launch([&] { exact::route(s.stream, s.score, n, router.rows, bias.data, n_used, ids, gates); });
    }

    void scale(Scratch& scratch, float* x, int64_t count, float factor) const override {
        launch([&] { exact::scale(own(scratch).stream, x, count, factor); });
    }

    void experts(Scratch& scratch, const float* h, int64_t n, const int32_t* ids, const float* gates,
                 int64_t n_used, const ExpertWeights& weights, float* y) const override {
        Stream& s = own(scratch);
        const exact::Experts gate = experts_of(weights.gate);
        const exact::Experts up = experts_of(weights.up);
        const exact::Experts down = experts_of(weights.down);
        launch([&] { exact::activate(s.stream, gate, up, h, n, ids, n_used, s.activated); });
        launch([&] { exact::project(s.stream, down, s.activated, n * n_used, ids, s.output); });
        launch([&] { exact::add_slots(s.stream, s.output, gates, n, n_used, down.rows, y); });
    }

  private:
    void note(const char* why) const noexcept {
        const char* nothing = nullptr;
        if (why != nullptr) why_lost_.compare_exchange_strong(nothing, why);
    }
    void check_alive() const {
        const char* why = why_lost_.load();
        if (why != nullptr) fail(Status::device_lost, "{}: {}", name_, why);
    }
    template <typename Launch>
    void launch(const Launch& call) const {
        if (why_lost_ != nullptr) return;
        runtime::use(index_);
        call();
        note(runtime::last_error(index_));
    }
    void copy_later(Stream& stream, Way way, void* to, const void* from, uint64_t bytes) const {
        if (why_lost_ == nullptr) note(runtime::copy_later(index_, stream.stream, way, to, from, bytes));
    }
    template <typename T>
    void put(Stream& stream, T* to, std::span<const T> from) const {
        copy_later(stream, Way::to_device, to, from.data(), from.size_bytes());
    }
    void put_rows(Stream& stream, std::span<const KvRow> rows) const;

    const int32_t index_;
    const std::string name_;
    mutable std::atomic<const char*> why_lost_ = nullptr;
};

std::unique_ptr<Scratch> CudaBackend::reserve(const backend::StepLimits& limits) const {
    if (limits.n_expert > exact::k_most_experts)
        fail(Status::unsupported, "{}: {} experts a layer; up to {} are possible", name_, limits.n_expert,
             exact::k_most_experts);
    auto stream = std::make_unique<Stream>();
    const int64_t n_slots = limits.n_rows * limits.n_expert_used;
    const int64_t n_pages = limits.n_rows * (limits.n_context / backend::k_kv_page_tokens + 1);
    stream->host_position.resize(static_cast<size_t>(limits.n_rows));
    stream->host_first_page.resize(static_cast<size_t>(limits.n_rows));
    stream->host_pages.resize(static_cast<size_t>(n_pages));
    // Once to find the size, once to place.
    std::byte* base = nullptr;
    for (const bool places : {false, true}) {
        std::byte* next = base;
        const auto take = [&](auto*& pointer, int64_t count) {
            pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(next);
            next += align_up(static_cast<uint64_t>(count) * sizeof(*pointer), k_alignment);
        };
        take(stream->ids, limits.n_rows);
        take(stream->position, limits.n_rows);
        take(stream->first_page, limits.n_rows);
        take(stream->pages, n_pages);
        take(stream->frequency, limits.head_dim);
        take(stream->score, limits.n_rows * limits.n_expert);
        take(stream->activated, n_slots * limits.expert_ff);
        take(stream->output, n_slots * limits.hidden);
        if (places) break;
        stream->memory = allocate(static_cast<uint64_t>(next - base), "work space");
        base = stream->memory->data();
    }
    stream->device = index_;
    stream->stream = runtime::make_stream(index_);
    if (stream->stream == nullptr) fail(Status::out_of_device_memory, "{}: no further stream", name_);
    return stream;
}

// Positions and page tables of the rows, to the device. Rows of one sequence that follow each other share its table.
void CudaBackend::put_rows(Stream& s, std::span<const KvRow> rows) const {
    size_t n_pages = 0;
    const KvSequence* last = nullptr;
    size_t first = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
        if (rows[i].sequence != last) {
            last = rows[i].sequence;
            first = n_pages;
            for (std::byte* page : last->pages) s.host_pages[n_pages++] = reinterpret_cast<uint64_t>(page);
        }
        s.host_first_page[i] = static_cast<int64_t>(first);
        s.host_position[i] = static_cast<int32_t>(rows[i].position);
    }
    put(s, s.pages, std::span<const uint64_t>(s.host_pages).first(n_pages));
    put(s, s.first_page, std::span<const int64_t>(s.host_first_page).first(rows.size()));
    put(s, s.position, std::span<const int32_t>(s.host_position).first(rows.size()));
}

void CudaBackend::attend(Scratch& scratch, const AttendArgs& args) const {
    if (args.n == 0) return;
    Stream& s = own(scratch);
    const KvLayout& layout = *args.rows[0].sequence->layout;
    put_rows(s, args.rows);
    put(s, s.frequency, args.rope_frequency);
    const auto n_frequency = std::ssize(args.rope_frequency);
    const exact::Cache cache = {
        .pages = s.pages,
        .first_page = s.first_page,
        .position = s.position,
        .k_format = layout.k_format,
        .v_format = layout.v_format,
        .k_at = layout.k_offset(args.layer, 0),
        .v_at = layout.v_offset(args.layer, 0),
        .k_head_bytes = backend::k_kv_page_tokens * layout.k_token_bytes(),
        .v_head_bytes = backend::k_kv_page_tokens * layout.v_token_bytes(),
        .k_token_bytes = layout.k_token_bytes(),
        .v_token_bytes = layout.v_token_bytes(),
        .n_head = args.n_head,
        .n_head_kv = args.n_head_kv,
        .head_dim = args.head_dim,
    };
    const auto prepare = [&](float* heads, const Vector& weight, int64_t n_head) {
        launch([&] { exact::norm(s.stream, heads, args.n, weight.data, weight.size, args.norm_eps, heads); });
        launch([&] {
            exact::rotate(s.stream, heads, args.n, n_head, args.head_dim, s.position, s.frequency,
                          n_frequency, layout.rotates_keys());
        });
    };
    prepare(args.q, args.q_norm, args.n_head);
    prepare(args.k, args.k_norm, args.n_head_kv);
    launch([&] { exact::store(s.stream, cache, args.k, args.v, args.n); });
    launch([&] { exact::attend(s.stream, cache, args.q, args.n, args.o); });
}

}  // namespace

std::unique_ptr<backend::Backend> make_cuda_backend(int32_t index) {
    return std::make_unique<CudaBackend>(index);
}

}  // namespace minim::cuda
