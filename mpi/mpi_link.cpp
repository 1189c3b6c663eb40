// SPDX-License-Identifier: Apache-2.0
#include "mpi/mpi_link.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <mpi.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "base/error.h"

namespace minim::mpi {
namespace {

using ranks::Transfer;

// Of this process; MPI can be initialised and finalised only once.
std::atomic<int> g_n_open = 0;
std::atomic<bool> g_has_given_up = false;

// A pointer in Open MPI, a number in MPICH.
constexpr size_t k_request_bytes = sizeof(MPI_Request);  // NOLINT(bugprone-sizeof-expression)
static_assert(k_request_bytes <= sizeof(Transfer::handle));

uint64_t handle_of(MPI_Request request) {
    uint64_t handle = 0;
    std::memcpy(&handle, &request, k_request_bytes);
    return handle;
}

MPI_Request request_of(const Transfer& transfer) {
    MPI_Request request = MPI_REQUEST_NULL;
    std::memcpy(&request, &transfer.handle, k_request_bytes);
    return request;
}

void check(int code, const char* call) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (::MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
    fail(Status::peer_lost, "{}: {}", call, std::string_view(text, static_cast<size_t>(length)));
}

int count_of(size_t n_bytes) {
    if (n_bytes > INT_MAX) fail_internal("a message of {} bytes; at most {} are possible", n_bytes, INT_MAX);
    return static_cast<int>(n_bytes);
}

using HelpFunction = int (*)(const char* file, const char* topic, int has_header, ...);

int say_nothing(const char*, const char*, int, ...) {
    return 0;
}

// Open MPI 4 tells mpirun of a broken connection, and waits for its answer, which does not come while mpirun ends the other processes:
// a rank would stay in MPI until it is killed. Let it say nothing.
void silence_help() {
    void* const help = ::dlsym(RTLD_DEFAULT, "opal_show_help");
    if (help == nullptr) return;
    Dl_info library = {};
    void* entry = nullptr;
    if (::dladdr1(help, &library, &entry, RTLD_DL_SYMENT) == 0 || entry == nullptr) return;
    // A pointer to a function in version 4, a function in others.
    if (ELF64_ST_TYPE(static_cast<const ElfW(Sym)*>(entry)->st_info) != STT_OBJECT) return;
    *static_cast<HelpFunction*>(help) = say_nothing;
}

void finalise_at_exit() {
    int is_finalised = 0;
    ::MPI_Finalized(&is_finalised);
    if (is_finalised == 0 && g_n_open == 0 && !g_has_given_up) ::MPI_Finalize();
}

void initialise() {
    int is_finalised = 0;
    ::MPI_Finalized(&is_finalised);
    if (is_finalised != 0) fail(Status::unsupported, "MPI was finalised, and cannot be initialised again");
    int is_initialised = 0;
    check(::MPI_Initialized(&is_initialised), "MPI_Initialized");
    int level = MPI_THREAD_SINGLE;
    if (is_initialised != 0) {
        check(::MPI_Query_thread(&level), "MPI_Query_thread");
    } else {
        check(::MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread");
        silence_help();
        if (std::atexit(finalise_at_exit) != 0) fail(Status::out_of_memory, "no room for a call at exit");
    }
    if (level < MPI_THREAD_MULTIPLE)
        fail(Status::unsupported,
             "MPI was initialised for thread level {}; MPI_THREAD_MULTIPLE ({}) is needed", level,
             static_cast<int>(MPI_THREAD_MULTIPLE));
}

// Duplicates the world without waiting in MPI.
MPI_Comm duplicate_world() {
    constexpr std::chrono::seconds k_limit{120};
    constexpr std::chrono::microseconds k_nap{100};
    MPI_Comm copy = MPI_COMM_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
    check(::MPI_Comm_idup(MPI_COMM_WORLD, &copy, &request), "MPI_Comm_idup");
    const auto start = std::chrono::steady_clock::now();
    for (int has_ended = 0; has_ended == 0;) {
        check(::MPI_Test(&request, &has_ended, MPI_STATUS_IGNORE), "MPI_Comm_idup");
        if (has_ended != 0) break;
        if (std::chrono::steady_clock::now() - start > k_limit)
            fail(Status::peer_lost, "not all processes of the launch have opened a model within {} s",
                 k_limit.count());
        std::this_thread::sleep_for(k_nap);
    }
    check(::MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    return copy;
}

class MpiLink final : public ranks::Link {
  public:
    explicit MpiLink(MPI_Comm communicator) : communicator_(communicator) {
        check(::MPI_Comm_rank(communicator_, &process_), "MPI_Comm_rank");
        check(::MPI_Comm_size(communicator_, &size_), "MPI_Comm_size");
        ++g_n_open;
    }

    // The communicator stays until MPI is finalised: another process's last message may come later, and must not be taken for one of
    // the next communicator, which would have the same number.
    ~MpiLink() override { --g_n_open; }

    int32_t process() const noexcept override { return process_; }
    int32_t size() const noexcept override { return size_; }

    Transfer send(int32_t to, int32_t tag, std::span<const std::byte> bytes) override {
        MPI_Request request = MPI_REQUEST_NULL;
        check(::MPI_Isend(bytes.data(), count_of(bytes.size()), MPI_BYTE, to, tag, communicator_, &request),
              "MPI_Isend");
        return {.handle =
                    handle_of(request)};  // NOLINT(clang-analyzer-optin.mpi.MPI-Checker): end_some() ends it
    }

    Transfer receive(int32_t from, int32_t tag, std::span<std::byte> bytes) override {
        MPI_Request request = MPI_REQUEST_NULL;
        check(::MPI_Irecv(bytes.data(), count_of(bytes.size()), MPI_BYTE, from, tag, communicator_, &request),
              "MPI_Irecv");
        return {.handle =
                    handle_of(request)};  // NOLINT(clang-analyzer-optin.mpi.MPI-Checker): end_some() ends it
    }

    void end_some(std::span<Transfer* const> transfers) override {
        thread_local std::vector<MPI_Request> requests;
        thread_local std::vector<MPI_Status> statuses;
        thread_local std::vector<int> ended;
        requests.clear();
        for (const Transfer* transfer : transfers)
            requests.push_back(transfer->has_ended ? MPI_REQUEST_NULL : request_of(*transfer));
        statuses.resize(transfers.size());
        ended.resize(transfers.size());
        int n_ended = 0;
        check(::MPI_Testsome(static_cast<int>(requests.size()), requests.data(), &n_ended, ended.data(),
                             statuses.data()),
              "MPI_Testsome");
        if (n_ended == MPI_UNDEFINED) return;  // none is under way
        for (int i = 0; i < n_ended; ++i) {
            Transfer& transfer = *transfers[static_cast<size_t>(ended[i])];
            int n_bytes = 0;
            check(::MPI_Get_count(&statuses[i], MPI_BYTE, &n_bytes), "MPI_Get_count");
            transfer.has_ended = true;
            transfer.n_bytes = n_bytes < 0 ? 0 : static_cast<uint64_t>(n_bytes);
        }
    }

    std::optional<uint64_t> arrived(int32_t from, int32_t tag) override {
        int has_arrived = 0;
        MPI_Status status;
        check(::MPI_Iprobe(from, tag, communicator_, &has_arrived, &status), "MPI_Iprobe");
        if (has_arrived == 0) return std::nullopt;
        int n_bytes = 0;
        check(::MPI_Get_count(&status, MPI_BYTE, &n_bytes), "MPI_Get_count");
        return static_cast<uint64_t>(n_bytes);
    }

    void give_up() noexcept override { g_has_given_up = true; }

  private:
    MPI_Comm communicator_;
    int process_ = 0;
    int size_ = 1;
};

}  // namespace

std::unique_ptr<ranks::Link> open_link() {
    if (g_has_given_up)
        fail(Status::peer_lost,
             "this process has lost others of its launch, and cannot exchange messages with them any more");
    initialise();
    return std::make_unique<MpiLink>(duplicate_world());
}

}  // namespace minim::mpi
