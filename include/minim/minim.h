/*
 * minim: inference for the MiniMax-M2 family of language models.
 *
 * This header is the whole interface and its manual. It is C99 and stands alone.
 *
 *     minim_error err = MINIM_ERROR_INIT;
 *     minim_runtime *runtime = NULL;
 *     minim_model *model = NULL;
 *     minim_session *session = NULL;
 *     minim_sampling *sampling = NULL;
 *     minim_tokens *prompt = NULL;
 *     minim_session_params context = MINIM_SESSION_PARAMS_INIT;
 *     context.max_context = 8192;
 *     const char *messages = "[{\"role\": \"user\", \"content\": \"What is the capital of France?\"}]";
 *
 *     if (minim_runtime_create(NULL, &runtime, &err) != MINIM_OK ||
 *         minim_model_open(runtime, "model.gguf", NULL, NULL, &model, &err) != MINIM_OK ||
 *         minim_session_create(model, &context, &session, &err) != MINIM_OK ||
 *         minim_sampling_create(&sampling, &err) != MINIM_OK ||
 *         minim_chat_tokenize(model, messages, NULL, NULL, MINIM_SPECIALS_SAFE, &prompt, &err) != MINIM_OK ||
 *         minim_generate(session, sampling, minim_tokens_data(prompt), minim_tokens_count(prompt),
 *                        print_token, NULL, NULL, NULL, &err) != MINIM_OK)
 *         fprintf(stderr, "%s\n", err.message);
 *     minim_tokens_free(prompt);  minim_sampling_free(sampling);
 *     minim_session_free(session);  minim_model_close(model);  minim_runtime_free(runtime);
 *
 * Conventions, once for all calls:
 *
 * - Handles are opaque. *_free and *_close accept NULL, return nothing and cannot fail. A child keeps its
 *   parent alive (a session its model, a model its runtime), so handles may be released in any order. Sessions,
 *   requests and decoders may be released while a call uses them, by its callback or another thread: the call then ends
 *   them. Other handles must not be released before the calls that use them have returned.
 * - A call that can fail returns minim_status and takes a minim_error last, which may be NULL. Where a
 *   call fails, its out-parameter is NULL (handles) or untouched (values), and every handle is as it was
 *   before the call.
 * - Structs start with `size`, set by the *_INIT macro. Every other field may stay zero: zero is the
 *   default. A library older than its caller refuses a struct whose unknown tail is not all zero
 *   (MINIM_E_UNSUPPORTED), or is longer than 4096 bytes (MINIM_E_INVALID).
 * - Text is UTF-8. Text going in is a zero-terminated string, or a pointer and a length in bytes where
 *   the comment says so. Text coming out lies in memory of the library whose lifetime the comment of the
 *   call states.
 * - The library prints nothing, keeps no global state, and never aborts or exits the process. It reads
 *   three environment variables: MINIM_PLUGIN_PATH (folders with plug-ins, see minim_devices) and, for debugging,
 *   MINIM_LOG (level 1..4: a runtime without a logger writes its log to standard error) and MINIM_CPU (scalar, avx2,
 *   avx2_vnni, avx512, avx512_vbmi: kernels of another instruction set that the processor has).
 * - Results are the same bits only where the host leaves the floating-point environment of its threads as it was:
 *   another rounding mode, or subnormal numbers flushed to zero, changes them.
 * - Threads: each handle's comment says whether one or any thread may use it at a time. Callbacks run on
 *   the thread that made the call, with no lock held that other calls wait for; log lines may come from any thread that
 *   is inside a call, and from an engine's own. A C++ exception out of a callback ends the call with MINIM_E_INTERNAL.
 *   longjmp() out of a callback leaves the handle in use for ever (MINIM_E_BUSY).
 * - The library's own threads are called "minim-1", "minim-2" ... and "minim-engine". They block all signals but
 *   those that a fault raises (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS), so the host's threads get
 *   the process's signals.
 * - fork(): a child process has none of the library's threads. There, calls that need them fail with
 *   MINIM_E_INVALID (all that work with a model, session or engine; of a runtime of one thread, or with
 *   `parallel_for`, only an engine's), and *_free and *_close return at once, leaving some memory behind. A child may
 *   create a runtime of its own and open the model there. exec() after fork() needs no care.
 */
#ifndef MINIM_H
#define MINIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define MINIM_API
#elif defined(__GNUC__)
#define MINIM_API __attribute__((visibility("default")))
#else
#define MINIM_API
#endif

#if defined(__GNUC__)
#define MINIM_MUST_CHECK __attribute__((warn_unused_result))
#else
#define MINIM_MUST_CHECK
#endif

/* -------------------------------------------------------------------------------------------- versions */

/* Within a major version, 0 included, calls, constants and fields at the end of structs are only added: a program works with
 * every library of the same major version that is not older than its header. The shared library's SONAME, libminim.so.0, and
 * the CMake package's version say the same. */
#define MINIM_VERSION_MAJOR 0
#define MINIM_VERSION_MINOR 1
#define MINIM_VERSION_PATCH 0
#define MINIM_VERSION_NUMBER \
    (MINIM_VERSION_MAJOR * 1000000 + MINIM_VERSION_MINOR * 1000 + MINIM_VERSION_PATCH)

/* "0.1.0" and 1000: the library's, to compare with the header's. Static text. Any thread. */
MINIM_API const char* minim_version(void);
MINIM_API uint32_t minim_version_number(void);

/* One line: version, compiler, and the instruction sets this library carries. Static text. Any thread. */
MINIM_API const char* minim_build_info(void);

/* 1 where this build has the feature, else 0. Names: "gguf", "safetensors", "cpu", "reference", "avx2",
 * "avx512", "cuda" (the plug-in was built; `minim_devices_list` says what it finds). */
MINIM_API int32_t minim_has_feature(const char* name);

/* ---------------------------------------------------------------------------------------------- errors */

typedef int32_t minim_status;

enum {
    MINIM_OK = 0,
    MINIM_E_INVALID = 1,     /* an argument or option */
    MINIM_E_NOT_FOUND = 2,   /* a file, key or tensor that does not exist */
    MINIM_E_IO = 3,          /* the operating system refused a read or a mapping */
    MINIM_E_FORMAT = 4,      /* a bad file; `reason` says what kind */
    MINIM_E_UNSUPPORTED = 5, /* a good file or option that this library does not handle */
    MINIM_E_OUT_OF_MEMORY = 6,
    MINIM_E_OUT_OF_DEVICE_MEMORY = 7,
    MINIM_E_CONTEXT_FULL = 8, /* the session's context cannot take the tokens */
    MINIM_E_CANCELLED = 9,
    MINIM_E_DEVICE_LOST = 10,
    MINIM_E_BUSY = 11,    /* the handle is in use by another call */
    MINIM_E_INTERNAL = 12 /* a mistake of the library's */
};

/* What is wrong with a file. */
enum {
    MINIM_REASON_NONE = 0,
    MINIM_REASON_TRUNCATED = 1,
    MINIM_REASON_FORMAT = 2,
    MINIM_REASON_LIMIT = 3,
    MINIM_REASON_TYPE = 4,
    MINIM_REASON_SHAPE = 5,
    MINIM_REASON_OFFSET = 6,
    MINIM_REASON_DUPLICATE = 7,
    MINIM_REASON_VALUE = 8,
    MINIM_REASON_IO = 9
};

/* Owned by the caller; filled when a call fails, untouched when it succeeds. */
typedef struct minim_error {
    uint32_t size;
    int32_t status;
    int32_t reason; /* MINIM_REASON_*, or 0 */
    /* The device concerned, or -1: the processor is none. Of minim_model_open its place in the params' `devices` (-1
       for one that only `overrides` name), else an index for minim_model_device_memory of the model. */
    int32_t device;
    int64_t os_code;    /* errno, or 0 */
    int64_t requested;  /* bytes (out of memory) or tokens (context full) asked for, or 0 */
    int64_t available;  /* what there was of them, or 0 */
    int64_t offset;     /* byte position in the file, or -1 */
    char message[1024]; /* zero-terminated: what, where, and what to try */
} minim_error;
/* clang-format off */
#define MINIM_ERROR_INIT { sizeof(minim_error), 0, 0, 0, 0, 0, 0, 0, {0} }
/* clang-format on */

/* "MINIM_E_FORMAT", "truncated": static text, NULL for a number that is none. Any thread. */
MINIM_API const char* minim_status_name(minim_status status);
MINIM_API const char* minim_reason_name(int32_t reason);

/* --------------------------------------------------------------------------------------------- handles */

typedef struct minim_runtime minim_runtime;       /* any thread */
typedef struct minim_checkpoint minim_checkpoint; /* immutable, any thread */
typedef struct minim_model minim_model;           /* immutable, any thread */
typedef struct minim_session minim_session;       /* one thread at a time; else MINIM_E_BUSY */
typedef struct minim_sampling
    minim_sampling;                         /* one thread at a time while it is changed; else MINIM_E_BUSY */
typedef struct minim_tokens minim_tokens;   /* immutable, any thread */
typedef struct minim_text minim_text;       /* immutable, any thread */
typedef struct minim_decoder minim_decoder; /* one thread at a time; else MINIM_E_BUSY */
typedef struct minim_cancel minim_cancel;   /* any thread; trigger also from a signal handler */
typedef struct minim_output_parser minim_output_parser; /* one thread at a time; else MINIM_E_BUSY */
typedef struct minim_output minim_output;               /* immutable, any thread */

/* Token ids and texts that calls return. The data lives as long as the handle. */
MINIM_API const int32_t* minim_tokens_data(const minim_tokens* tokens); /* never NULL */
MINIM_API size_t minim_tokens_count(const minim_tokens* tokens);
MINIM_API void minim_tokens_free(minim_tokens* tokens);
MINIM_API const char* minim_text_data(
    const minim_text* text);                                /* zero-terminated; may hold zero bytes inside */
MINIM_API size_t minim_text_length(const minim_text* text); /* bytes, without the terminating zero */
MINIM_API void minim_text_free(minim_text* text);

/* A switch that stops work in progress: the call returns MINIM_E_CANCELLED. It stays on until it is reset.
 * It is looked at between blocks of at most 4 MiB while loading, twice a layer while a prompt is evaluated,
 * and between tokens. */
MINIM_API MINIM_MUST_CHECK minim_status minim_cancel_create(minim_cancel** out, minim_error* err);
MINIM_API void minim_cancel_trigger(minim_cancel* cancel);
MINIM_API void minim_cancel_reset(minim_cancel* cancel);
MINIM_API void minim_cancel_free(minim_cancel* cancel);

/* --------------------------------------------------------------------------------------------- runtime */

enum {
    MINIM_LOG_OFF = 0,
    MINIM_LOG_ERROR = 1,
    MINIM_LOG_WARNING = 2,
    MINIM_LOG_INFO = 3,
    MINIM_LOG_DEBUG = 4
};

/* One complete line without its newline. */
typedef void (*minim_log_fn)(void* user_data, int32_t level, const char* line);

/*
 * A host's way to run the library's arithmetic on threads of its own: calls task(context, i, slot) once for
 * each i from 0 to n_tasks - 1 and returns when all have returned. Slots go from 0 to n_threads - 1, and no
 * two tasks that run at the same time have the same one. Tasks are short, do not block (while a model is loaded they
 * read pieces of at most some hundred kilobytes from its files, and write pieces of two megabytes to a packed file), and
 * must not be left out. Called on the thread that is inside a call of the library; sessions at work on several threads
 * call it at the same time.
 */
typedef void (*minim_task_fn)(const void* context, int64_t index, int32_t slot);
typedef void (*minim_parallel_for_fn)(void* user_data, int64_t n_tasks, minim_task_fn task,
                                      const void* context);

/*
 * A machine with several memory nodes reads the memory of another node more slowly than that of its own. But for OFF,
 * each thread of the library stays on the cores of one node, the calling thread is not bound, and keys, values and work
 * space lie on all nodes in turn. Results are the same bits. SPLIT and INTERLEAVE fail with MINIM_E_UNSUPPORTED, saying
 * why, where this build has no hwloc to tell several nodes apart, or the system refuses, as containers may.
 */
enum {
    MINIM_NUMA_AUTO =
        0, /* SPLIT where there are several nodes and the system lets them be used (a warning says where it
                            does not), else OFF; OFF with parallel_for */
    MINIM_NUMA_OFF = 1,
    MINIM_NUMA_INTERLEAVE =
        2, /* weights in memory of the process lie on all nodes in turn, page after page */
    MINIM_NUMA_SPLIT =
        3 /* each node has as many rows of each weight as threads work beside it, and they work on
                                  these first; not with parallel_for */
};

typedef struct minim_runtime_params {
    uint32_t size;
    uint32_t flags;    /* none defined: 0 */
    int32_t n_threads; /* threads for arithmetic, the caller's included; 0: the cores this process may use */
    int32_t log_level; /* MINIM_LOG_*: the most detailed lines the logger gets */
    minim_log_fn log; /* NULL: silence. Called until the runtime and all that was made with it are released */
    void* log_user_data;
    int32_t n_threads_decode; /* threads for steps of one token, which memory limits; 0: n_threads */
    int32_t pin_threads;      /* 1: each thread of the library stays on a core of its own */
    minim_parallel_for_fn parallel_for; /* NULL: threads of the library. Else n_threads is not 0 */
    void* parallel_for_user_data;
    int32_t numa; /* MINIM_NUMA_*: where threads and memory are on a machine with several memory nodes */
    uint32_t reserved;
} minim_runtime_params;
#define MINIM_RUNTIME_PARAMS_INIT \
    { sizeof(minim_runtime_params), 0, 0, 0, NULL, NULL, 0, 0, NULL, NULL, 0, 0 }

/* Owns the logger and the threads. `params` may be NULL. Several runtimes may live in one process. */
MINIM_API MINIM_MUST_CHECK minim_status minim_runtime_create(const minim_runtime_params* params,
                                                             minim_runtime** out, minim_error* err);
MINIM_API void minim_runtime_free(minim_runtime* runtime);
MINIM_API int32_t minim_runtime_thread_count(const minim_runtime* runtime);
/* What became of `numa`: "off", "interleave" or "split". Static text. */
MINIM_API const char* minim_runtime_numa(const minim_runtime* runtime);
/* The level of instruction sets in use: "scalar", "avx2", "avx2_vnni", "avx512", "avx512_vbmi". Static
 * text. */
MINIM_API const char* minim_runtime_cpu_level(const minim_runtime* runtime);

/* ----------------------------------------------------------------------------------------- checkpoints */

/*
 * A checkpoint's headers: metadata and tensor list, nothing loaded. `path` is a .gguf file (any file of a
 * split one, the others are found beside it), a .safetensors file, a model.safetensors.index.json, or a
 * folder with either. Errors: NOT_FOUND, IO, FORMAT (with a reason).
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_checkpoint_open(minim_runtime* runtime, const char* path,
                                                              minim_checkpoint** out, minim_error* err);
MINIM_API void minim_checkpoint_close(minim_checkpoint* checkpoint);

MINIM_API size_t minim_checkpoint_file_count(const minim_checkpoint* checkpoint);
MINIM_API uint64_t
minim_checkpoint_file_bytes(const minim_checkpoint* checkpoint); /* of all files together */

/* Metadata in file order: all keys of a GGUF file, the `__metadata__` texts of a safetensors one. The keys
 * live as long as the handle. */
MINIM_API size_t minim_checkpoint_metadata_count(const minim_checkpoint* checkpoint);
MINIM_API const char* minim_checkpoint_metadata_key(const minim_checkpoint* checkpoint,
                                                    size_t index); /* or NULL */

/*
 * The value of a key as text: numbers in decimal, booleans true or false, strings as they are, arrays as
 * `i32[3] {1, 2, 3}` with strings in quotes. `max_array` is the number of array elements written before
 * "..."; 0 means all. NOT_FOUND where the key is absent.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_checkpoint_metadata(const minim_checkpoint* checkpoint,
                                                                  const char* key, size_t max_array,
                                                                  minim_text** out, minim_error* err);

/*
 * The sampling that the makers of a checkpoint recommend: temperature, top_p, top_k, min_p and repetition_penalty of
 * generation_config.json (temperature 0 if do_sample is false), or temp, top_p, top_k, min_p, penalty_repeat and
 * penalty_last_n of a GGUF file's keys general.sampling.*. Values that are missing or out of range are those of the model
 * card of MiniMax-M2: 1.0, 0.95, 40, and no other filter or penalty.
 */
typedef struct minim_recommended_sampling {
    uint32_t size;
    int32_t top_k;
    double temperature;
    double top_p;
    double min_p;
    double repetition_penalty;
    int32_t penalty_last_n; /* tokens that the penalty looks back on; -1: all */
    int32_t reserved;       /* 0 */
    /* Where they come from: "generation_config.json", "general.sampling", or "" if the checkpoint recommends nothing.
       Static text. */
    const char* source;
} minim_recommended_sampling;
#define MINIM_RECOMMENDED_SAMPLING_INIT \
    { sizeof(minim_recommended_sampling), 0, 0, 0, 0, 0, 0, 0, NULL }

/* Reads them again at each call. Errors: IO, FORMAT (generation_config.json is no JSON object). */
MINIM_API MINIM_MUST_CHECK minim_status minim_checkpoint_recommended_sampling(
    const minim_checkpoint* checkpoint, minim_recommended_sampling* out, minim_error* err);

typedef struct minim_tensor_info {
    uint32_t size;
    int32_t n_dims;
    int64_t dims[8]; /* outermost first: [out, in] for a weight, [experts, out, in] for a stack */
    uint64_t bytes;
    const char* name;   /* lives as long as the checkpoint */
    const char* format; /* "Q4_K", "F8_E4M3": lives as long as the checkpoint */
} minim_tensor_info;
#define MINIM_TENSOR_INFO_INIT \
    { sizeof(minim_tensor_info), 0, {0}, 0, NULL, NULL }

MINIM_API size_t minim_checkpoint_tensor_count(const minim_checkpoint* checkpoint);
MINIM_API MINIM_MUST_CHECK minim_status minim_checkpoint_tensor(const minim_checkpoint* checkpoint,
                                                                size_t index, minim_tensor_info* out,
                                                                minim_error* err);

/* --------------------------------------------------------------------------------------------- devices */

/* The devices there are at the time of the call: "cpu" first, then what the plug-ins find ("cuda:0" ...). Plug-ins
 * are libraries named libminim-KIND.so, looked for in the folders of the environment variable MINIM_PLUGIN_PATH, with
 * colons between, and in minim-0 beside this library (0: the number in its SONAME). Any thread. Calls that have to do
 * with CUDA devices leave one of these as the calling thread's current device, which a program with CUDA code of its
 * own sets again. */
typedef struct minim_devices minim_devices;

typedef struct minim_device_info {
    uint32_t size;
    int32_t usable; /* 1, or 0: `reason` says why not */
    uint64_t memory_bytes;
    uint64_t free_bytes;
    /* These live as long as the list. */
    const char* name;        /* "cpu", "cuda:0"; of a plug-in that cannot be loaded its kind alone */
    const char* description; /* "NVIDIA H200" */
    const char* reason;      /* "" where the device is usable */
} minim_device_info;
#define MINIM_DEVICE_INFO_INIT \
    { sizeof(minim_device_info), 0, 0, 0, NULL, NULL, NULL }

MINIM_API MINIM_MUST_CHECK minim_status minim_devices_list(minim_runtime* runtime, minim_devices** out,
                                                           minim_error* err);
MINIM_API void minim_devices_free(minim_devices* devices);
MINIM_API size_t minim_devices_count(const minim_devices* devices); /* 0 for NULL */
/* Errors: INVALID (no such index). */
MINIM_API MINIM_MUST_CHECK minim_status minim_devices_get(const minim_devices* devices, size_t index,
                                                          minim_device_info* out, minim_error* err);

/* ----------------------------------------------------------------------------------------------- plan */

enum {
    MINIM_KV_AUTO = 0,
    MINIM_KV_F16 = 1,
    MINIM_KV_F32 = 2,
    MINIM_KV_BF16 = 3,
    MINIM_KV_Q8_0 = 4,
    MINIM_KV_Q4_0 = 5 /* keys are rotated, so that they lose less */
};

typedef struct minim_plan_params {
    uint32_t size;
    uint32_t flags; /* none defined: 0 */
    /* Texts "NAME=MEMORY,BANDWIDTH[,pcie=BANDWIDTH]", as "cuda:0=96GiB,1790GB/s,pcie=50GB/s"; such devices need not exist. In the
       order of the layers. NULL: the usable devices of this machine. */
    const char* const* devices;
    size_t n_devices; /* with devices not NULL, 0 plans for the CPU alone */
    const char*
        host; /* "MEMORY,BANDWIDTH", as "768GiB,576GB/s"; NULL: this machine, whose bandwidth is measured once and
                              kept in the user's cache folder */
    int64_t n_context;   /* tokens of one sequence */
    int32_t n_sequences; /* concurrent sequences, each of which reserves the context; 0: 1 */
    int32_t n_ubatch;    /* rows of a prompt step; 0: 512 */
    int32_t k_format;    /* MINIM_KV_*; AUTO: F16 */
    int32_t v_format;
    const char* overrides; /* as in minim_model_params; NULL: none */
    const double*
        split; /* shares of the layers, one a device; shares that add up to the model's layers are counts of layers.
                              NULL: chosen by memory and bandwidth */
    size_t n_split;
} minim_plan_params;
#define MINIM_PLAN_PARAMS_INIT \
    { sizeof(minim_plan_params), 0, NULL, 0, NULL, 0, 0, 0, MINIM_KV_AUTO, MINIM_KV_AUTO, NULL, NULL, 0 }

/*
 * Plans where the weights of a checkpoint go, what each memory holds, and how fast that will be. Reads headers only: the checkpoint
 * may be larger than this machine. Writes a JSON object:
 *   fits                       true if every memory has room for its part
 *   devices                    a list in the order of `devices`: name, dense_bytes, expert_bytes, kv_bytes, work_bytes, free_bytes,
 *                              n_layers, n_experts
 *   host                       the same sizes
 *   bytes_per_token            dense, experts, kv_at_context: read to decode one token
 *   decode_tokens_per_second   of one sequence whose context is full
 *   prompt_tokens_per_second   of a prompt as long as the context
 *   decode_seconds             the parts of a token's time: dense, kv_cache, device_experts, host_experts, launches, hand_over
 *   choices                    sentences: what was placed where; if it does not fit, what would
 * `runtime` gives log and threads. Errors: those of minim_checkpoint_open, FORMAT and UNSUPPORTED as minim_model_open, INVALID
 * (a text that describes no device, quoted; an unknown device in `overrides`). A plan that does not fit is no error.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_plan_make(minim_runtime* runtime, const char* path,
                                                        const minim_plan_params* params, minim_text** out,
                                                        minim_error* err);

/* ---------------------------------------------------------------------------------------------- models */

/* Bytes made available so far, read and put into the kernels' order, and in all; monotonic. In all 0 where nothing is to be
 * read, as with a packed file that is there. Return 0 to go on, anything else to cancel. */
typedef int32_t (*minim_progress_fn)(void* user_data, uint64_t done_bytes, uint64_t total_bytes);

enum {
    MINIM_RESIDENCE_AUTO =
        0, /* owned where the backend's kernels gain by it and a tenth of the available memory stays free, else mapped;
              a warning says so where memory is what it wants */
    MINIM_RESIDENCE_MAPPED =
        1, /* pages of the file, read when first used; the file must not shrink meanwhile. Folders that keep codes and
              scales in tensors of their own (FP8, NVFP4, AWQ) are read into memory all the same, and the log says so; not
              with `packed_file` */
    MINIM_RESIDENCE_OWNED =
        2 /* read into memory of the process while loading, huge pages asked for, and put into the order the
             kernels read fastest; results are the same bits */
};

enum {
    /* Where products were faster by it when the model was opened, and a quarter of the available memory stays free. Measured
       for formats with 64 MiB of weights and more, in a tenth of a second or two each. */
    MINIM_EXPAND_AUTO = 0,
    MINIM_EXPAND_OFF = 1,
    MINIM_EXPAND_ON = 2
};

/* Bytes of a cache of experts: all room that is left beside the context. */
#define MINIM_EXPERT_CACHE_ROOM UINT64_MAX

/* When experts of a cache change. */
enum {
    MINIM_EXPERT_MOVES_AUTO = 0, /* REPRODUCIBLE; FIXED for `deterministic` models */
    /* Never: those that are there at first stay. */
    MINIM_EXPERT_MOVES_FIXED = 1,
    /* An expert that is used more takes the place of one that is used less, a fixed number of steps after it was chosen: the
       same requests in the same steps give the same bits. */
    MINIM_EXPERT_MOVES_REPRODUCIBLE = 2,
    /* As soon as it has been copied: the last bits, and with them now and then a token, differ from run to run. */
    MINIM_EXPERT_MOVES_EAGER = 3
};

typedef struct minim_model_params {
    uint32_t size;
    uint32_t flags;             /* none defined: 0 */
    const char* backend;        /* NULL or "cpu"; "reference": plain float arithmetic, slow, the yardstick; it
                                   makes `devices` compute so too */
    int32_t residence;          /* MINIM_RESIDENCE_* */
    int32_t engine_tokenizer;   /* 1: split text as llama.cpp does, for token-exact comparison with it */
    minim_progress_fn progress; /* may be NULL */
    void* progress_user_data;
    /* Devices for the layers, the first ones first, each once: "cuda:0" or "cuda:0,cuda:1" ("CUDA0" is "cuda:0"); "auto": all
       that are usable, or `backend` where there are none; NULL: `backend` has all. A device may have a budget behind it
       (`budgets`): "cuda:0=20GiB", or "cuda:0=0.9", a part of its memory.
       If nothing is said of experts (`overrides`, `n_host_experts`, `fit_context`, `expert_cache_bytes`), room is left for a
       context of 8192 tokens, or a shorter one where that is needed, and what does not fit is done as
       MINIM_EXPERT_CACHE_ROOM says. `placement` of minim_model_info and the log tell what was done.
       Keys and values lie where their layer does. Weights for a device's own memory are read from the file through
       16 MiB of the host's, whatever `residence` says; it counts for those that stay with the processor. */
    const char* devices;
    /* n_split shares of the layers, one a device; NULL: of the weights' bytes, without experts that lie elsewhere, in
       proportion to the memory that may be taken. */
    const double* split;
    size_t n_split;
    /* The last so many layers go to the devices, those before stay with `backend`; 0: all. */
    int32_t n_device_layers;
    /* 1: devices that cannot be opened are left out with a warning, and where none is left `backend` has all; 0: that
       is an error. */
    int32_t allow_cpu;
    /* The most bytes to take of each device's memory, n_budgets of them: weights, keys and values and work space
       together, for as long as the model is open; 0: no limit. NULL: none has one. OUT_OF_DEVICE_MEMORY names the
       budget that does not suffice. */
    const uint64_t* budgets;
    size_t n_budgets;
    /* Experts that lie elsewhere than their layer and are computed there: "PATTERN=DEVICE,PATTERN=DEVICE", as
       llama.cpp's -ot. A pattern is a regular expression that is looked for in the tensors' names as GGUF files
       have them (blk.3.ffn_up_exps.weight), whatever the checkpoint is; the first one that matches decides.
       "cpu" is `backend`; a device that `devices` does not name has no budget. INVALID for a pattern that decides
       nothing, UNSUPPORTED for one that would move anything but all the experts of a layer. NULL: none. */
    const char* overrides;
    /* For experts that no override names: those of the first so many layers stay with `backend`; below 0: of the
       last ones; 0: none; as many as there are layers, or more: all. */
    int64_t n_host_experts;
    /* Of the other experts, those that leave no room on their layer's device for a context of so many tokens (F16)
       and the work space of a session stay with `backend`, the first layers' first. 0: none do, or see `devices`.
       OUT_OF_DEVICE_MEMORY where even without experts there is none. */
    int64_t fit_context;
    /* 1: weights in host memory, mapped ones too, and keys and values there are locked: the system never takes a page of
       them away. OUT_OF_MEMORY names the limit (RLIMIT_MEMLOCK) where it does not suffice, here or when a session or
       engine takes its memory. */
    int32_t lock;
    /* 1: mapped weights are brought into memory before the model is ready, with progress; those read into memory of
       the process are there anyway. */
    int32_t prefault;
    /* 1: what `devices` compute for a text depends neither on the texts that share its steps, nor on the pieces its
       prompt is read in, nor on the version of a vendor's library (cuBLASLt is left alone). 0: the last bits may, and
       with them now and then a token. A GPU then has the kernels for many rows work on single tokens too, and cuts
       attention into the same parts always: slower, most of all for single texts and for prompts of F16 and BF16
       weights, and some ten to seventy MB of work space. The processor, and backend "reference", always compute so. */
    int32_t deterministic;
    /* MINIM_EXPAND_*: whether weights of the IQ1, IQ2 and IQ3 formats with grids, IQ1_S to IQ3_S, that are read into memory
       of the process are held there with a code for each: the same results, 1.24 to 1.58 times the bytes, and fewer
       instructions for each weight. Faster where few threads share a memory, slower where many do. What it takes is in
       minim_device_memory. */
    int32_t expand;
    /* A file that holds the weights of `backend` in the order in which its kernels read them, or NULL. They are mapped
       from it: nothing is read or packed, processes that open the same file share its pages, and tokens come as fast as from
       memory of the process once the pages are there (but rows are not split among memory nodes). Where the file is not
       there, is damaged, or holds the weights otherwise than this call wants them (another version of the library,
       another placement, another `expand` than AUTO, a checkpoint whose files have another size or time of change), the
       checkpoint is read and packed into a new file of that name first, of about its size. The new one takes the old
       one's place when it is whole: until then the disk needs room for both. The file must not change while a model is
       open. FORMAT: a file of another kind, or of another model as far as samples of its weights tell, which is left as
       it is; with `prefault` or `lock`, which read all of it, also one whose weights were altered. IO: also where the
       disk has no room for it. INVALID: an empty text, MINIM_RESIDENCE_OWNED, and where none or several backends compute
       on the host. */
    const char* packed_file;
    /* Room on `devices` for a cache of experts, which all lie with `backend` then: a device computes those that it has while
       the CPU computes the others of the same layer. Shared by the devices in proportion to their layers. With
       `fit_context`, experts are cached only if not all of them have room. MINIM_EXPERT_CACHE_ROOM: what is left beside the
       context of `fit_context`, or of one that is chosen. 0: no cache, or see `devices`. */
    uint64_t expert_cache_bytes;
    int32_t expert_moves; /* MINIM_EXPERT_MOVES_* */
    /* MINIM_KV_* of the context that room is left for; AUTO: F16. */
    int32_t fit_k_format;
    int32_t fit_v_format;
    int32_t reserved; /* 0 */
    /* A file of minim_model_save_expert_profile, which says which experts a cache holds at first, or NULL. One that is not
       there is none. FORMAT: it is of another model, or no such file. */
    const char* expert_profile;
} minim_model_params;
#define MINIM_MODEL_PARAMS_INIT                                                                             \
    {                                                                                                       \
        sizeof(minim_model_params), 0, NULL, 0, 0, NULL, NULL, NULL, NULL, 0, 0, 0, NULL, 0, NULL, 0, 0, 0, \
            0, 0, 0, NULL, 0, 0, 0, 0, 0, NULL                                                              \
    }

/* `params` and `cancel` may be NULL. Errors: as minim_checkpoint_open, UNSUPPORTED (another
 * architecture, a tensor type without decoder, something the forward pass does not compute, a device that
 * cannot be used: always named), NOT_FOUND (also a device that is not there), OUT_OF_MEMORY,
 * OUT_OF_DEVICE_MEMORY, DEVICE_LOST, CANCELLED. */
MINIM_API MINIM_MUST_CHECK minim_status minim_model_open(minim_runtime* runtime, const char* path,
                                                         const minim_model_params* params,
                                                         minim_cancel* cancel, minim_model** out,
                                                         minim_error* err);
MINIM_API void minim_model_close(minim_model* model);

typedef struct minim_model_info {
    uint32_t size;
    int32_t n_layer;
    int64_t hidden;
    int32_t n_head;
    int32_t n_head_kv;
    int32_t head_dim;
    int32_t rotary_dim;
    int32_t n_expert;
    int32_t n_expert_used;
    int64_t expert_ff;
    int64_t n_vocab;         /* logits of a row: the embedding's rows, padding included */
    int64_t n_context_train; /* the longest context the model was trained for, in tokens */
    int64_t n_parameters;    /* numbers of the model: scales, zero points and spare tensors do not count */
    uint64_t weight_bytes;
    uint64_t kv_token_bytes_f16; /* KV cache of one token, in F16 */
    double rope_theta;
    const char* name;    /* as the checkpoint says, or ""; lives as long as the model */
    const char* backend; /* of the first layers: "cpu", "reference" or a device; lives as long as the model */
    /* "cuda:0 (layers 0-30), cuda:1 (layers 31-61), cpu (experts of layers 0-9, 31)"; lives as long as the model */
    const char* placement;
} minim_model_info;
#define MINIM_MODEL_INFO_INIT \
    { sizeof(minim_model_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL }

/* Fills what fits into out->size bytes. */
MINIM_API MINIM_MUST_CHECK minim_status minim_model_get_info(const minim_model* model, minim_model_info* out,
                                                             minim_error* err);

/*
 * What a device of the placement holds of the model and its sessions and engines, at the time of the call. What a
 * driver takes for itself is seen in `free_bytes` alone.
 */
typedef struct minim_device_memory {
    uint32_t size;
    int32_t first_layer;
    int32_t n_layer;
    /* 1: the weights are pages of the files, which the system may drop and read again. */
    int32_t weights_mapped;
    uint64_t weight_bytes;
    uint64_t expert_bytes;   /* of weight_bytes: of the experts */
    uint64_t kv_bytes;       /* keys and values */
    uint64_t work_bytes;     /* activations and work space of sessions and engines */
    uint64_t free_bytes;     /* that could still be taken; UINT64_MAX where that is not known */
    const char* name;        /* as in `placement`; lives as long as the model */
    uint64_t kept_bytes;     /* of free_bytes: kept for the next sessions of this model */
    uint64_t budget_bytes;   /* the most that may be taken; 0: there is no limit */
    int64_t n_expert_layers; /* layers whose experts it has, others' layers included */
    /* What comes to the device and leaves it for each token of a step, from and to the other devices: the residual
       stream, and the routing for experts that lie elsewhere. */
    uint64_t token_in_bytes;
    uint64_t token_out_bytes;
    uint64_t locked_bytes; /* of weights, keys and values in host memory */
} minim_device_memory;
#define MINIM_DEVICE_MEMORY_INIT \
    { sizeof(minim_device_memory), 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0, 0, 0, 0, 0, 0 }

/* One entry a device, in the order of the layers; those that have only experts of others' layers (n_layer is 0) come
 * last. Any thread. Errors: INVALID (no such index). */
MINIM_API size_t minim_model_device_count(const minim_model* model); /* 0 for NULL */
MINIM_API MINIM_MUST_CHECK minim_status minim_model_device_memory(const minim_model* model, size_t index,
                                                                  minim_device_memory* out, minim_error* err);

/* Where a layer lies, as indices for minim_model_device_memory. */
typedef struct minim_layer_devices {
    uint32_t size;
    int32_t device;  /* of attention, norms and router, with the keys and values */
    int32_t experts; /* of the experts */
} minim_layer_devices;
#define MINIM_LAYER_DEVICES_INIT \
    { sizeof(minim_layer_devices), 0, 0 }

/* Any thread. Errors: INVALID (no such layer). */
MINIM_API MINIM_MUST_CHECK minim_status minim_model_layer_devices(const minim_model* model, int32_t layer,
                                                                  minim_layer_devices* out, minim_error* err);

/* A device's cache of experts (`expert_cache_bytes`), counted since the model was opened. */
typedef struct minim_expert_cache {
    uint32_t size;
    uint32_t reserved;    /* 0 */
    int64_t n_places;     /* experts that it has room for; 0: there is none */
    int64_t n_hits;       /* experts of tokens that the device computed */
    int64_t n_misses;     /* that the CPU computed */
    int64_t n_moves;      /* experts that took another's place */
    uint64_t bytes;       /* of the device's memory */
    uint64_t moved_bytes; /* copied to the device by moves */
} minim_expert_cache;
#define MINIM_EXPERT_CACHE_INIT \
    { sizeof(minim_expert_cache), 0, 0, 0, 0, 0, 0, 0 }

/* `index` as for minim_model_device_memory. Any thread. Errors: INVALID (no such index). */
MINIM_API MINIM_MUST_CHECK minim_status minim_model_expert_cache(const minim_model* model, size_t index,
                                                                 minim_expert_cache* out, minim_error* err);

/* Writes how often each expert was used of late, for `expert_profile`. An older file of that name is replaced once the new
 * one is whole. Any thread. Errors: INVALID (no device has a cache), NOT_FOUND (no such folder), IO. */
MINIM_API MINIM_MUST_CHECK minim_status minim_model_save_expert_profile(const minim_model* model,
                                                                        const char* path, minim_error* err);

/*
 * Weights in host memory by the memory node on which they really lie, as the system says at the time of the call: of a
 * few thousand pages, spread evenly. Pages of mapped files that are not in memory are left out.
 */
typedef struct minim_node_memory {
    uint32_t size;
    int32_t node; /* the system's number */
    /* Of the library beside it, the calling thread counted to the first node; 0: not bound. */
    int32_t n_threads;
    /* Of them, or of the threads for single tokens, those that work on steps of one token. */
    int32_t n_threads_decode;
    uint64_t wanted_bytes; /* that were to lie there; 0: anywhere */
    uint64_t weight_bytes; /* that do */
} minim_node_memory;
#define MINIM_NODE_MEMORY_INIT \
    { sizeof(minim_node_memory), 0, 0, 0, 0, 0 }

/* One entry a node with cores for this process or weights of this model. Any thread. Writes what fits into `out`, each of
 * whose `capacity` entries has its size set; *count, the number of nodes, is always written. `out` may be NULL where
 * capacity is 0. Errors: UNSUPPORTED where the system does not tell. */
MINIM_API MINIM_MUST_CHECK minim_status minim_model_nodes(const minim_model* model, minim_node_memory* out,
                                                          size_t capacity, size_t* count, minim_error* err);

/* The headers the model was loaded from; released with minim_checkpoint_close. */
MINIM_API MINIM_MUST_CHECK minim_status minim_model_checkpoint(const minim_model* model,
                                                               minim_checkpoint** out, minim_error* err);

/* ---------------------------------------------------------------------------------------------- tokens */

/* Which added tokens are recognised in text. SAFE leaves control tokens out ("[e~[" typed by a user ends
 * nothing) and recognises the others (<think>, the tool tags). */
enum {
    MINIM_SPECIALS_EXACT = 0, /* all */
    MINIM_SPECIALS_SAFE = 1,  /* those that are not control tokens */
    MINIM_SPECIALS_NONE = 2,  /* none */
    MINIM_SPECIALS_TEMPLATE =
        3 /* minim_chat_tokenize alone: all in the template's own text, none in messages */
};

/* `text` of `length` bytes (SIZE_MAX: zero-terminated); bytes that are no UTF-8 become single-byte
 * tokens. */
MINIM_API MINIM_MUST_CHECK minim_status minim_tokenize(const minim_model* model, const char* text,
                                                       size_t length, int32_t specials, minim_tokens** out,
                                                       minim_error* err);

/* The text of `count` ids; whole UTF-8, U+FFFD for what is none. skip_special: 1 leaves control tokens out.
 * INVALID where an id is no token of the model. */
MINIM_API MINIM_MUST_CHECK minim_status minim_detokenize(const minim_model* model, const int32_t* ids,
                                                         size_t count, int32_t skip_special, minim_text** out,
                                                         minim_error* err);

/* Attributes of a token, as bits. */
enum {
    MINIM_TOKEN_CONTROL = 1,      /* added, special: left out of text */
    MINIM_TOKEN_USER_DEFINED = 2, /* added, kept in text */
    MINIM_TOKEN_UNUSED = 4,       /* a padding row without text; never sampled */
    MINIM_TOKEN_END = 8,          /* ends generation */
    MINIM_TOKEN_BOS = 16
};

/* -1 where `id` is no token of the model. */
MINIM_API int32_t minim_token_attributes(const minim_model* model, int32_t id);

/* The token's raw bytes, which may be part of a UTF-8 sequence. */
MINIM_API MINIM_MUST_CHECK minim_status minim_token_text(const minim_model* model, int32_t id,
                                                         minim_text** out, minim_error* err);

/* Detokenises a stream: each push returns the whole UTF-8 sequences completed so far, valid until the
 * next call on the decoder; at most 3 bytes are held back. minim_decoder_finish gives U+FFFD for what
 * stayed incomplete and resets. */
MINIM_API MINIM_MUST_CHECK minim_status minim_decoder_create(const minim_model* model, int32_t skip_special,
                                                             minim_decoder** out, minim_error* err);
MINIM_API MINIM_MUST_CHECK minim_status minim_decoder_push(minim_decoder* decoder, int32_t id,
                                                           const char** text, size_t* length,
                                                           minim_error* err);
MINIM_API MINIM_MUST_CHECK minim_status minim_decoder_finish(minim_decoder* decoder, const char** text,
                                                             size_t* length, minim_error* err);
MINIM_API void minim_decoder_free(minim_decoder* decoder);

/* ------------------------------------------------------------------------------------------------ chat */

/*
 * Renders the prompt for a conversation: runs the checkpoint's chat template (Jinja) as it is, and gives what transformers
 * gives. The template has access to nothing but these variables, and its work is bounded.
 *   messages  JSON array of objects: role, content, reasoning_content, tool_calls ...
 *   tools     JSON array in the OpenAI form, or NULL
 *   kwargs    JSON object of template variables: add_generation_prompt (default true), model_identity
 *             ..., or NULL. One that the template does not use gives a warning in the log.
 * Before that, in the messages: role "developer" in the first message becomes "system"; call arguments may be a JSON
 * string; "reasoning" stands in for a missing reasoning_content; results of parallel calls take the order of the calls.
 * Errors: INVALID (bad JSON; what the template raises, as for a tool message without a call, in its own words; a message
 * that the template would leave out, by its place and role), UNSUPPORTED (the checkpoint has no chat template, or it uses
 * a filter, test or statement that is not supported, by name and line).
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_chat_render(const minim_model* model, const char* messages,
                                                          const char* tools, const char* kwargs,
                                                          minim_text** out, minim_error* err);

/* The same prompt as token ids. MINIM_SPECIALS_EXACT: as the rendered text would be tokenised.
 * MINIM_SPECIALS_SAFE: control tokens are recognised in the template's own text only, so that no message
 * can forge them. MINIM_SPECIALS_TEMPLATE: so are all added tokens; "<think>" in a message is plain text. */
MINIM_API MINIM_MUST_CHECK minim_status minim_chat_tokenize(const minim_model* model, const char* messages,
                                                            const char* tools, const char* kwargs,
                                                            int32_t specials, minim_tokens** out,
                                                            minim_error* err);

enum {
    MINIM_NULL_CONTENT_TEMPLATE = 0, /* as the template prints it: "None" */
    MINIM_NULL_CONTENT_EMPTY = 1     /* as an empty text, which clients mean by it */
};

typedef struct minim_chat_params {
    uint32_t size;
    uint32_t flags;       /* none is defined: 0 */
    int32_t null_content; /* MINIM_NULL_CONTENT_*: a message without content, or with null for it */
    int32_t reserved;     /* 0 */
    const char* tools;    /* as for minim_chat_render */
    const char* kwargs;   /* as for minim_chat_render */
    const char*
        template_name; /* one of a checkpoint that has several; NULL: "tool_use" if there are tools and it
                                  exists, else "default" */
} minim_chat_params;
/* clang-format off */
#define MINIM_CHAT_PARAMS_INIT { sizeof(minim_chat_params), 0, 0, 0, NULL, NULL, NULL }
/* clang-format on */

/* minim_chat_render and minim_chat_tokenize with more options; `params` may be NULL. Errors: theirs, and NOT_FOUND when
 * the checkpoint has no template of that name. */
MINIM_API MINIM_MUST_CHECK minim_status minim_chat_render_with(const minim_model* model, const char* messages,
                                                               const minim_chat_params* params,
                                                               minim_text** out, minim_error* err);
MINIM_API MINIM_MUST_CHECK minim_status minim_chat_tokenize_with(const minim_model* model,
                                                                 const char* messages,
                                                                 const minim_chat_params* params,
                                                                 int32_t specials, minim_tokens** out,
                                                                 minim_error* err);

/* ---------------------------------------------------------------------------------------- model output */

/* How reasoning (the text up to "</think>") is returned. */
enum {
    MINIM_REASONING_SPLIT = 0,        /* apart from the content, without the tags */
    MINIM_REASONING_APPEND_THINK = 1, /* in the content, with the tags: "<think>" is put before it */
    MINIM_REASONING_NONE = 2          /* in the content, as the model wrote it */
};

typedef struct minim_output_parser_params {
    uint32_t size;
    uint32_t flags;    /* none is defined: 0 */
    int32_t reasoning; /* MINIM_REASONING_* */
    int32_t
        starts_in_content; /* 1: the prompt does not end in an open think block ("<think>" and a newline) */
    const char* tools; /* JSON array as for minim_chat_render; NULL, "null" or "[]": no call is recognised */
} minim_output_parser_params;
/* clang-format off */
#define MINIM_OUTPUT_PARSER_PARAMS_INIT { sizeof(minim_output_parser_params), 0, 0, 0, NULL }
/* clang-format on */

enum { MINIM_DELTA_REASONING = 1, MINIM_DELTA_CONTENT = 2, MINIM_DELTA_TOOL_CALL = 3 };

/* A piece of parsed output. Pieces of the same kind (and index) add up to the whole text. */
typedef struct minim_output_delta {
    uint32_t size;
    int32_t kind;       /* MINIM_DELTA_* */
    int32_t index;      /* of the tool call: 0, 1, ...; -1 for the other kinds */
    int32_t reserved;   /* 0 */
    const char* name;   /* the function's, in the first delta of a call only, zero-terminated; else NULL */
    size_t name_length; /* bytes, without the terminating zero */
    const char* text;   /* reasoning, content, or a fragment of the arguments' JSON; not zero-terminated */
    size_t length;      /* bytes of text; may be 0 in the first delta of a call */
} minim_output_delta;
/* clang-format off */
#define MINIM_OUTPUT_DELTA_INIT { sizeof(minim_output_delta), 0, 0, 0, NULL, 0, NULL, 0 }
/* clang-format on */

/*
 * Parses what a model generates, while it does: reasoning, content, and tool calls with arguments as JSON, coerced by
 * the schemas of the tools. Malformed output is no error: what is no tool call is text. The deltas are valid UTF-8
 * (U+FFFD for bytes that are none) and add up to the same texts however the output is cut. Only what may still become
 * a tag, trailing whitespace, and arguments of other types than string are held back.
 *
 *     minim_output_parser_feed(parser, token.text, token.length, &n, &err);
 *     for (size_t i = 0; i < n; ++i) {
 *         minim_output_parser_delta(parser, i, &delta, &err);
 *         ... send delta.text ...
 *     }
 *
 * Errors: INVALID (tools are no JSON array of tools with names). Copies what it needs of `params`, which may be NULL.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_output_parser_create(const minim_output_parser_params* params,
                                                                   minim_output_parser** out,
                                                                   minim_error* err);
/* Takes the next `length` bytes of output (SIZE_MAX: zero-terminated), without the end token. Sets `n_deltas` to the
 * number of deltas that they bring. INVALID after minim_output_parser_finish. */
MINIM_API MINIM_MUST_CHECK minim_status minim_output_parser_feed(minim_output_parser* parser,
                                                                 const char* text, size_t length,
                                                                 size_t* n_deltas, minim_error* err);
/*
 * Ends the output, once. `finish` says how generation ended: MINIM_FINISH_END, _STOP_TEXT (the output is complete) or
 * _LENGTH, _CONTEXT_FULL, _STOPPED, _TIMEOUT (it was cut). Sets `n_deltas` as feed does, and `finish_reason`, which may
 * be NULL, to MINIM_FINISH_TOOL_CALLS if there was a call, else to `finish`. A call that the output was cut in does not
 * count: `finish_reason` is then `finish`, and the call that the last tool-call deltas were about must not be run.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_output_parser_finish(minim_output_parser* parser,
                                                                   int32_t finish, size_t* n_deltas,
                                                                   int32_t* finish_reason, minim_error* err);
/* Delta `index` (from 0) of the last feed or finish. Its texts are valid until the next feed, finish or free. INVALID
 * when there is none. */
MINIM_API MINIM_MUST_CHECK minim_status minim_output_parser_delta(minim_output_parser* parser, size_t index,
                                                                  minim_output_delta* out, minim_error* err);
MINIM_API void minim_output_parser_free(minim_output_parser* parser);

/* A whole output: what the deltas add up to, without a call that the output was cut in. Zero-terminated texts, which
 * live as long as the minim_output. */
typedef struct minim_output_info {
    uint32_t size;
    int32_t finish_reason; /* as minim_output_parser_finish gives it */
    const char* content;   /* NULL: none */
    size_t content_length; /* bytes */
    const char* reasoning; /* NULL: none */
    size_t reasoning_length;
    size_t n_tool_calls;
} minim_output_info;
/* clang-format off */
#define MINIM_OUTPUT_INFO_INIT { sizeof(minim_output_info), 0, NULL, 0, NULL, 0, 0 }
/* clang-format on */

typedef struct minim_tool_call {
    uint32_t size;
    int32_t reserved; /* 0 */
    const char* name;
    size_t name_length;
    const char* arguments; /* a JSON object */
    size_t arguments_length;
} minim_tool_call;
/* clang-format off */
#define MINIM_TOOL_CALL_INIT { sizeof(minim_tool_call), 0, NULL, 0, NULL, 0 }
/* clang-format on */

/* Parses a whole output of `length` bytes (SIZE_MAX: zero-terminated); as the calls above do. */
MINIM_API MINIM_MUST_CHECK minim_status minim_output_parse(const minim_output_parser_params* params,
                                                           const char* text, size_t length, int32_t finish,
                                                           minim_output** out, minim_error* err);
MINIM_API MINIM_MUST_CHECK minim_status minim_output_get_info(const minim_output* output,
                                                              minim_output_info* out, minim_error* err);
/* INVALID when `index` (from 0) is not below n_tool_calls. */
MINIM_API MINIM_MUST_CHECK minim_status minim_output_get_tool_call(const minim_output* output, size_t index,
                                                                   minim_tool_call* out, minim_error* err);
MINIM_API void minim_output_free(minim_output* output);

/* -------------------------------------------------------------------------------------------- sessions */

typedef struct minim_session_params {
    uint32_t size;
    uint32_t flags;       /* none defined: 0 */
    uint64_t max_context; /* tokens; 0: what the model was trained for, or as many as memory is there for */
    int32_t k_format;     /* MINIM_KV_*; AUTO: F16. Q8_0 and Q4_0 want head dimensions of whole
                             blocks of 32, keys in Q4_0 a power of two */
    int32_t v_format;
    int32_t n_batch;  /* reserved, has no effect; must not be negative */
    int32_t n_ubatch; /* tokens evaluated together, at most 65536; 0: 512. Changes speed, never results */
} minim_session_params;
#define MINIM_SESSION_PARAMS_INIT \
    { sizeof(minim_session_params), 0, 0, 0, 0, 0, 0 }

/* Takes the memory for the whole context at once: OUT_OF_MEMORY here names the largest context that
 * would fit. Without `params` that is the context the model was trained for, 46 GiB for MiniMax-M2 and F16, or a shorter
 * one that fits, with a warning in the log: minim_session_context_size tells. On top comes work
 * space that grows with n_ubatch and the model's width (125 MiB for MiniMax-M2 and 512 rows), which
 * minim_session_kv_bytes leaves out. */
MINIM_API MINIM_MUST_CHECK minim_status minim_session_create(minim_model* model,
                                                             const minim_session_params* params,
                                                             minim_session** out, minim_error* err);
MINIM_API void minim_session_free(minim_session* session);

/* Tokens in the session: evaluated ones and the last generated one. While a generation runs also tokens it
 * has not reported yet, because their text is not settled. */
MINIM_API size_t minim_session_token_count(const minim_session* session);
/* Copies the ids of these tokens, in order; *out is released with minim_tokens_free. */
MINIM_API MINIM_MUST_CHECK minim_status minim_session_get_tokens(minim_session* session, minim_tokens** out,
                                                                 minim_error* err);
MINIM_API size_t minim_session_context_size(const minim_session* session);
MINIM_API uint64_t minim_session_kv_bytes(const minim_session* session);

/* Forgets every token from position `count` on. INVALID where there are fewer. */
MINIM_API MINIM_MUST_CHECK minim_status minim_session_truncate(minim_session* session, size_t count,
                                                               minim_error* err);

/*
 * A second session with the same tokens, which shares the keys and values of whole pages of 64 tokens with
 * the first. Each goes on by itself, on a thread of its own if wanted. A generation under way stays with the
 * first, and its tokens up to the last reported one with both. Memory for the rest of the second one's
 * context is taken here: OUT_OF_MEMORY. Truncating into what is shared takes it at the next evaluation.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_session_fork(minim_session* session, minim_session** out,
                                                           minim_error* err);

/*
 * Writes the session to a file: tokens, keys and values, and the logits after the last token, so that a
 * restored session goes on with the same bits. Of a generation under way the tokens up to the last reported
 * one. The file has the size of the keys and values and little more, and gets its name when it is whole and
 * on the disk: a call that fails, or a process that dies, leaves a file of that name as it was. A new file can be read
 * and written by its owner alone; one that replaces another keeps that one's permissions, and where `path` is a symbolic
 * link the file that it points to is replaced. Errors: NOT_FOUND (the folder), IO (also where the disk has no room),
 * CANCELLED.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_session_save(minim_session* session, const char* path,
                                                           minim_cancel* cancel, minim_error* err);

/*
 * A session as it was saved, by this process or another one, with the same model. `params` may be NULL: a
 * max_context of 0 and formats of AUTO mean those of the saved session. Errors: NOT_FOUND, IO, FORMAT with a
 * reason (no state file, cut short, altered, saved by another model), INVALID (the tokens do not fit into
 * max_context, other formats), OUT_OF_MEMORY, CANCELLED.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_session_restore(minim_model* model, const char* path,
                                                              const minim_session_params* params,
                                                              minim_cancel* cancel, minim_session** out,
                                                              minim_error* err);

/*
 * Appends `count` tokens and evaluates them.
 *   logits    row-major float [rows, n_vocab], or NULL; rows = count where all_logits is 1, else 1 (the
 *             last token's). The model's own logits, padding rows included; unspecified after an error
 *   capacity  floats that fit into `logits`
 * Errors: INVALID (no tokens, an id out of range, a capacity that is too small), CONTEXT_FULL (nothing is
 * evaluated), CANCELLED; after any error the session is as before the call.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_session_eval(minim_session* session, const int32_t* ids,
                                                           size_t count, int32_t all_logits, float* logits,
                                                           size_t capacity, minim_cancel* cancel,
                                                           minim_error* err);

/* ----------------------------------------------------------------------------------------- constraints */

/*
 * What an answer must look like. At each step only those tokens are left that can still lead to an answer of
 * this form, and the answer ends where nothing else can follow (MINIM_FINISH_END, no stop token). Where
 * max_tokens or the context ends it before, it is the start of such an answer. A constraint is made once and
 * serves any number of answers of its model, also at the same time.
 */
typedef struct minim_constraint minim_constraint; /* immutable, any thread */

typedef struct minim_constraint_params {
    uint32_t size;
    uint32_t flags;           /* none defined: 0 */
    const char* starts_after; /* an added token, as "</think>": anything is allowed up to it, and two newlines
                                 behind it; NULL: the form begins with the first token */
    /* Of minim_constraint_from_tools alone. 1: the answer may also be any text without a call. From the token
       "<minimax:tool_call>" on (behind starts_after if that is given) only calls that fit the tools are allowed, and the
       answer ends behind them. 0: the answer is a call. */
    int32_t calls_are_optional;
    /* Of minim_constraint_from_tools alone. 1: keywords of a tool's schema that cannot be enforced are left out, each with
       a warning in the log that names the tool, the place and the keyword. 0: they are an error. */
    int32_t relax;
} minim_constraint_params;
#define MINIM_CONSTRAINT_PARAMS_INIT \
    { sizeof(minim_constraint_params), 0, NULL, 0, 0 }

/*
 * A JSON value that fits a JSON Schema (draft 2020-12 and the spellings of older ones); `{"type": "object"}` is any
 * object. Every keyword that restricts a value is enforced, or refused with its place:
 *   members        come in the order of the schema; unnamed ones only if additionalProperties, patternProperties,
 *                  unevaluatedProperties or minProperties asks for them; items beyond prefixItems likewise
 *   numbers        have any number of digits; those with bounds have an exponent only behind one digit and a point
 *                  ("1.5e-7"), those with multipleOf none
 *   enum, const    are compared as values: 1.0 is 1, and the order of members does not count
 *   pattern        is a regular expression as below that occurs in the text; format is enforced for date, time,
 *                  date-time, duration, email, hostname, ipv4, ipv6, uri, uri-reference, iri, iri-reference, uri-template,
 *                  json-pointer, relative-json-pointer and uuid, and an annotation otherwise; both and lengths may be
 *                  combined
 *   $ref           leads into the schema itself, by pointer, $id or $anchor
 *   oneOf          is exact, or counts as anyOf if what its members have in common cannot be worked out
 *   uniqueItems    is enforced for up to 10 listed values, and for arrays of at most one item
 * Refused are: $dynamicRef with several targets, what follows from the negation (`not`, `if`) of additionalProperties,
 * patternProperties, propertyNames, uniqueItems or unevaluated keywords, and multipleOf with more than 5 digits. A keyword
 * whose value is null counts as absent. Errors: INVALID (no JSON, no schema, nothing fits it), UNSUPPORTED (a keyword
 * that cannot be enforced, or more than a limit allows to be worked out); both name the place in the schema.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_constraint_from_schema(minim_model* model, const char* schema,
                                                                     const minim_constraint_params* params,
                                                                     minim_constraint** out,
                                                                     minim_error* err);
/*
 * A regular expression that the whole answer fits, in the syntax of JavaScript, with look-around, \b, \p{} for general
 * categories, and also (?i), (?m), (?s), (?P<name>), \A, \Z and \z. `pattern` ends with a zero. Errors: INVALID,
 * UNSUPPORTED (back references, a lookahead within a lookbehind, other groups and properties) with the byte where it stands;
 * UNSUPPORTED too for an expression whose automaton would be too large.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_constraint_from_regex(minim_model* model, const char* pattern,
                                                                    const minim_constraint_params* params,
                                                                    minim_constraint** out, minim_error* err);
/* The same for a pattern of `length` bytes, which may hold zeros; SIZE_MAX: up to the first zero. */
MINIM_API MINIM_MUST_CHECK minim_status minim_constraint_from_regex_n(minim_model* model, const char* pattern,
                                                                      size_t length,
                                                                      const minim_constraint_params* params,
                                                                      minim_constraint** out,
                                                                      minim_error* err);
/* One of these texts, each up to its first zero. */
MINIM_API MINIM_MUST_CHECK minim_status minim_constraint_from_choices(
    minim_model* model, const char* const* choices, size_t count, const minim_constraint_params* params,
    minim_constraint** out, minim_error* err);
/* The same for texts of `lengths[i]` bytes, which may hold zeros; SIZE_MAX: up to the first zero. */
MINIM_API MINIM_MUST_CHECK minim_status minim_constraint_from_choices_n(
    minim_model* model, const char* const* choices, const size_t* lengths, size_t count,
    const minim_constraint_params* params, minim_constraint** out, minim_error* err);
/*
 * Calls of tools, with parameters that fit the tools' schemas. `tools` is the JSON list of a chat request: each has its
 * parameters' schema as `parameters`, `input_schema` or `inputSchema`, or takes none; members that are null count as
 * absent. Strings are any text without "</parameter>". A schema with `properties` names all parameters unless it asks for
 * more. `name` is the one tool that may be called, or NULL; `single` is 1 for exactly one call, 0 for one or several.
 * Errors: as minim_constraint_from_schema; UNSUPPORTED too if calls are optional and the model has no token
 * "<minimax:tool_call>".
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_constraint_from_tools(minim_model* model, const char* tools,
                                                                    const char* name, int32_t single,
                                                                    const minim_constraint_params* params,
                                                                    minim_constraint** out, minim_error* err);
/*
 * Sets `*matches` to 1 if the whole text is one that the constraint allows, else to 0. An answer that was generated
 * to its end matches; the start of one does not. Markup that the model writes as tokens stands in the text as their
 * text: "<minimax:tool_call>". With starts_after the text begins before that token.
 *   text, length  any bytes; SIZE_MAX: up to the first zero
 * Errors: INVALID (a NULL argument).
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_constraint_matches(const minim_constraint* constraint,
                                                                 const char* text, size_t length,
                                                                 int32_t* matches, minim_error* err);
MINIM_API void minim_constraint_free(minim_constraint* constraint);

/* -------------------------------------------------------------------------------------------- sampling */

/*
 * How tokens are chosen and when generation ends: options by name. A new handle means: greedy, until the
 * model ends its turn or the context is full. minim_sampling_option lists every option with type, range,
 * default and help.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_sampling_create(minim_sampling** out, minim_error* err);
MINIM_API void minim_sampling_free(minim_sampling* sampling);
MINIM_API MINIM_MUST_CHECK minim_status minim_sampling_set_i64(minim_sampling* sampling, const char* name,
                                                               int64_t value, minim_error* err);
MINIM_API MINIM_MUST_CHECK minim_status minim_sampling_set_f64(minim_sampling* sampling, const char* name,
                                                               double value, minim_error* err);
/* Sets temperature, top_p, top_k, min_p, repetition_penalty and penalty_last_n as minim_checkpoint_recommended_sampling
 * gives them for the model's checkpoint, as it was when the model was opened. Later calls may change them. */
MINIM_API MINIM_MUST_CHECK minim_status minim_sampling_set_recommended(minim_sampling* sampling,
                                                                       const minim_model* model,
                                                                       minim_error* err);
/* Texts that end a repetition for the options dry_*, in place of "\n", ":", "\"" and "*". The text i has `lengths[i]` bytes
 * (SIZE_MAX: up to the first zero; `lengths` may be NULL: all end with a zero), of which the first 40 count; at most 64
 * texts. count 0: nothing ends a repetition. INVALID for an empty text. */
MINIM_API MINIM_MUST_CHECK minim_status minim_sampling_set_dry_breakers(minim_sampling* sampling,
                                                                        const char* const* texts,
                                                                        const size_t* lengths, size_t count,
                                                                        minim_error* err);
/* Text up to which to generate; the text itself is not part of the answer. At most 16. */
MINIM_API MINIM_MUST_CHECK minim_status minim_sampling_add_stop(minim_sampling* sampling, const char* text,
                                                                size_t length, minim_error* err);
/* A token that ends generation like the model's own end token. */
MINIM_API MINIM_MUST_CHECK minim_status minim_sampling_add_stop_token(minim_sampling* sampling, int32_t id,
                                                                      minim_error* err);
/* Added to the token's logit before sampling; -INFINITY forbids it. */
MINIM_API MINIM_MUST_CHECK minim_status minim_sampling_add_logit_bias(minim_sampling* sampling, int32_t id,
                                                                      float bias, minim_error* err);

/* The form of the answer; NULL: any. Answers of another model than the constraint's are refused (INVALID). */
MINIM_API MINIM_MUST_CHECK minim_status minim_sampling_set_constraint(minim_sampling* sampling,
                                                                      const minim_constraint* constraint,
                                                                      minim_error* err);

enum { MINIM_OPTION_I64 = 1, MINIM_OPTION_F64 = 2 };

typedef struct minim_option_info {
    uint32_t size;
    int32_t type;            /* MINIM_OPTION_* */
    double minimum, maximum; /* both allowed */
    double default_value;
    const char* name; /* static text */
    const char* help;
} minim_option_info;
#define MINIM_OPTION_INFO_INIT \
    { sizeof(minim_option_info), 0, 0, 0, 0, NULL, NULL }

MINIM_API size_t minim_sampling_option_count(void);
MINIM_API MINIM_MUST_CHECK minim_status minim_sampling_option(size_t index, minim_option_info* out,
                                                              minim_error* err);

/* ------------------------------------------------------------------------------------------ generation */

typedef struct minim_token_probability {
    int32_t id;
    float logprob;
} minim_token_probability;

/* One generated token. The pointers are valid until the callback returns or the next call on the
 * session. */
typedef struct minim_token {
    uint32_t size;
    int32_t id;
    const char*
        text; /* whole UTF-8, zero-terminated; "" while a sequence or a possible stop text is held back */
    size_t text_length;
    float logprob; /* natural logarithm, before temperature and filters; 0 unless option logprobs is set */
    int32_t n_top; /* entries of `top`: option top_logprobs */
    const minim_token_probability* top;
} minim_token;
#define MINIM_TOKEN_INIT \
    { sizeof(minim_token), 0, NULL, 0, 0, 0, NULL }

/* Return 0 to go on, anything else to stop after this token (finish: MINIM_FINISH_STOPPED, unless the text
 * had ended with this token anyway). */
typedef int32_t (*minim_token_fn)(void* user_data, const minim_token* token);

enum {
    MINIM_FINISH_NONE = 0, /* not finished */
    MINIM_FINISH_END = 1,  /* the model ended its turn, or a stop token came, which is not reported; or the
                              answer's form is complete */
    MINIM_FINISH_STOP_TEXT = 2,
    MINIM_FINISH_LENGTH = 3, /* max_tokens */
    MINIM_FINISH_CONTEXT_FULL = 4,
    MINIM_FINISH_STOPPED = 5,    /* the callback asked for it, or the request was cancelled */
    MINIM_FINISH_TIMEOUT = 6,    /* requests only */
    MINIM_FINISH_TOOL_CALLS = 7, /* of parsed output only: the model calls tools */
    MINIM_FINISH_LOOP = 8        /* the text repeated itself: option loop_tokens */
};

typedef struct minim_generate_result {
    uint32_t size;
    int32_t finish;     /* MINIM_FINISH_* */
    int32_t stop_token; /* the token that ended it, or -1 */
    uint32_t reserved;
    uint64_t n_prompt;    /* tokens of the prompt */
    uint64_t n_generated; /* tokens reported; they stay in the session, also after an error */
    uint64_t prompt_us;   /* microseconds for the prompt */
    uint64_t generate_us; /* microseconds from the first token to the last */
    uint64_t seed;        /* the seed used, to repeat the text */
    int32_t stop_text;    /* index of the stop text that ended it, in the order they were added, or -1 */
    uint32_t reserved2;
    uint64_t n_reasoning; /* tokens generated between <think> and </think> */
} minim_generate_result;
#define MINIM_GENERATE_RESULT_INIT \
    { sizeof(minim_generate_result), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/*
 * Appends the prompt and generates, calling `on_token` for each token. `sampling`, `on_token`, `cancel` and
 * `result` may be NULL. The prompt may be empty only where the session already holds tokens. The session
 * keeps the prompt and the reported tokens, also when an error ends the text in the middle; a prompt that
 * fails leaves nothing. `result` is filled also where the call fails, but for BUSY and for INVALID of a NULL session, and
 * in a child of fork(). Errors: INVALID, CONTEXT_FULL (the prompt does not
 * fit; nothing is evaluated), CANCELLED.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_generate(minim_session* session, const minim_sampling* sampling,
                                                       const int32_t* prompt, size_t count,
                                                       minim_token_fn on_token, void* user_data,
                                                       minim_cancel* cancel, minim_generate_result* result,
                                                       minim_error* err);

/*
 * The same, one token a call, for hosts with iterators of their own: begin, then next until *has_token is
 * 0. begin, eval, truncate and minim_generate end a generation that is under way, once their arguments are
 * found good. minim_generate_state and minim_session_token_count may be asked from any thread and from
 * callbacks.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_generate_begin(minim_session* session,
                                                             const minim_sampling* sampling,
                                                             const int32_t* prompt, size_t count,
                                                             minim_cancel* cancel, minim_error* err);
MINIM_API MINIM_MUST_CHECK minim_status minim_generate_next(minim_session* session, minim_token* token,
                                                            int32_t* has_token, minim_cancel* cancel,
                                                            minim_error* err);
/* How the generation stands or ended. INVALID where none was begun. */
MINIM_API MINIM_MUST_CHECK minim_status minim_generate_state(const minim_session* session,
                                                             minim_generate_result* result, minim_error* err);

/* --------------------------------------------------------------------------------------------- engines */

/*
 * Many requests at once, worked on by a thread of the engine's. Each step evaluates the next token of every
 * answer and, beside them, pieces of the prompts that are not read yet. What a request answers does not
 * depend on who shares its steps; on a GPU the last bits may, unless the model was opened `deterministic`.
 * Prompts that begin like an earlier text take over its keys and values. Where memory runs short the last
 * request is set aside and goes on later with the same text.
 */
typedef struct minim_engine minim_engine;   /* any thread */
typedef struct minim_request minim_request; /* any thread; minim_request_next one thread at a time */

typedef struct minim_engine_params {
    uint32_t size;
    uint32_t flags;     /* none defined: 0 */
    uint64_t kv_tokens; /* tokens whose keys and values there is memory for, of all requests and the prefix
                              cache together; 0: the context the model was trained for, or as many as fit */
    int32_t k_format;   /* MINIM_KV_*; AUTO: F16 */
    int32_t v_format;
    int32_t n_requests;      /* worked on at once, others wait; 0: 64 */
    int32_t n_batch;         /* tokens of a step, at least n_requests; 0: 512, or n_requests */
    int32_t n_prompt_rows;   /* of them, most for prompts while answers are under way; 0: a quarter */
    int32_t forget_prefixes; /* 1: keys and values of ended requests are not kept for others */
    /* Tokens of one request, prompt and answer, at most kv_tokens. May exceed what the model was trained for, with a warning.
       0: kv_tokens, at most the trained context. */
    uint64_t max_context;
} minim_engine_params;
#define MINIM_ENGINE_PARAMS_INIT \
    { sizeof(minim_engine_params), 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Takes the memory for keys and values at once: OUT_OF_MEMORY names how many tokens would fit. */
MINIM_API MINIM_MUST_CHECK minim_status minim_engine_create(minim_model* model,
                                                            const minim_engine_params* params,
                                                            minim_engine** out, minim_error* err);
/* Ends what is under way (MINIM_FINISH_STOPPED). Requests stay good. */
MINIM_API void minim_engine_free(minim_engine* engine);

/* From here on no request is taken. Waits until those under way are done, at most timeout_ms (negative:
 * without end); *done tells whether they are. */
MINIM_API MINIM_MUST_CHECK minim_status minim_engine_drain(minim_engine* engine, int64_t timeout_ms,
                                                           int32_t* done, minim_error* err);

typedef struct minim_engine_state {
    uint32_t size;
    uint32_t reserved;
    uint64_t n_waiting;
    uint64_t n_running;
    uint64_t n_steps;        /* since the engine was made, as the next two */
    uint64_t n_evaluated;    /* tokens */
    uint64_t n_preempted;    /* times that a request was set aside */
    uint64_t n_pages;        /* of 64 tokens each */
    uint64_t n_pages_held;   /* by requests or the prefix cache */
    uint64_t n_pages_cached; /* of them in the prefix cache */
} minim_engine_state;
#define MINIM_ENGINE_STATE_INIT \
    { sizeof(minim_engine_state), 0, 0, 0, 0, 0, 0, 0, 0, 0 }

MINIM_API MINIM_MUST_CHECK minim_status minim_engine_get_state(const minim_engine* engine,
                                                               minim_engine_state* out, minim_error* err);

/*
 * Writes the prefix cache to a file: the keys and values of texts that ended, and the tokens they belong to.
 * A later engine of the same model adds them to its own cache, the last used first, as far as it has room;
 * *n_pages, which may be NULL, is how many pages of at most 64 tokens were read. Requests wait meanwhile. Permissions of
 * the file are as with minim_session_save. Errors: as minim_session_save and minim_session_restore; INVALID where the engine keeps no prefixes.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_engine_save_prefixes(minim_engine* engine, const char* path,
                                                                   minim_cancel* cancel, minim_error* err);
MINIM_API MINIM_MUST_CHECK minim_status minim_engine_load_prefixes(minim_engine* engine, const char* path,
                                                                   minim_cancel* cancel, uint64_t* n_pages,
                                                                   minim_error* err);

/* Called on the engine's thread when a request has something new. Must not block, and of this library call nothing but
 * minim_request_cancel and minim_request_free. What it throws is dropped. */
typedef void (*minim_notify_fn)(void* user_data);

typedef struct minim_request_params {
    uint32_t size;
    uint32_t flags;   /* none defined: 0 */
    int32_t priority; /* higher ones are started first, and others are set aside for them */
    int32_t reserved;
    int64_t timeout_ms;     /* after which the text ends where it is; 0: none */
    minim_notify_fn notify; /* may be NULL */
    void* notify_user_data;
} minim_request_params;
#define MINIM_REQUEST_PARAMS_INIT \
    { sizeof(minim_request_params), 0, 0, 0, 0, NULL, NULL }

/*
 * Hands a prompt in and returns at once. `sampling` (copied) and `params` may be NULL. Errors: INVALID (an
 * empty prompt, an id or option out of range, a drained engine), CONTEXT_FULL (the prompt can never fit).
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_engine_submit(minim_engine* engine,
                                                            const minim_sampling* sampling,
                                                            const int32_t* prompt, size_t count,
                                                            const minim_request_params* params,
                                                            minim_request** out, minim_error* err);

/*
 * Hands in `n_answers` requests for answers to one prompt, 1 to 1024 of them, and returns at once: all or none. They are
 * requests like others, and share the keys and values of the prompt, which is evaluated once (but for its last token).
 * With a seed, answer i has the seed plus i. `params` hold for each; `notify` is called for each. `out` has room for
 * n_answers handles, each of which is released with minim_request_free. Errors: as minim_engine_submit; every entry of
 * `out` is then NULL.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_engine_submit_n(
    minim_engine* engine, const minim_sampling* sampling, const int32_t* prompt, size_t count,
    const minim_request_params* params, size_t n_answers, minim_request** out, minim_error* err);

enum { MINIM_NEXT_END = 0, MINIM_NEXT_TOKEN = 1, MINIM_NEXT_PENDING = 2 };

/*
 * The next token of the answer. Waits at most timeout_ms for it (0: not at all, negative: without end). *next
 * is MINIM_NEXT_TOKEN with *token filled, valid until the next call for this request; MINIM_NEXT_END after
 * the last one; MINIM_NEXT_PENDING where the time is over. Errors: what ended the request, if that was an
 * error.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_request_next(minim_request* request, int64_t timeout_ms,
                                                           minim_token* token, int32_t* next,
                                                           minim_error* err);

/* Ends the answer after what was reported so far (MINIM_FINISH_STOPPED). Where `notify` is running on another thread, waits
 * for its end: the caller must hold no lock that `notify` takes. */
MINIM_API void minim_request_cancel(minim_request* request);

typedef struct minim_request_state {
    uint32_t size;
    int32_t finish;     /* MINIM_FINISH_*; NONE until the last token was taken */
    int32_t stop_token; /* the token that ended it, or -1 */
    uint32_t reserved;
    uint64_t n_prompt;
    uint64_t n_cached;    /* tokens of the prompt whose keys and values were there */
    uint64_t n_generated; /* tokens, taken or to be taken */
    uint64_t n_preempted; /* how often it was set aside */
    uint64_t queue_us;    /* microseconds until it was first worked on */
    uint64_t prompt_us;   /* from then until the first token */
    uint64_t generate_us; /* from the first token to the last */
    uint64_t seed;
    int32_t stop_text; /* as in minim_generate_result */
    uint32_t reserved2;
    uint64_t n_reasoning;   /* tokens generated between <think> and </think> */
    uint64_t n_prompt_done; /* tokens of the prompt that are evaluated or were there */
} minim_request_state;
#define MINIM_REQUEST_STATE_INIT \
    { sizeof(minim_request_state), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

MINIM_API MINIM_MUST_CHECK minim_status minim_request_get_state(const minim_request* request,
                                                                minim_request_state* out, minim_error* err);
/* Cancels it where it has not ended, and waits as minim_request_cancel does. `notify` is not called any more once this has
 * returned. */
MINIM_API void minim_request_free(minim_request* request);

/* --------------------------------------------------------------------------------------------- formats */

typedef struct minim_format_info {
    uint32_t size;
    int32_t gguf_type;   /* the type's number in GGUF files; -1: of safetensors folders alone */
    int32_t block_elems; /* elements of a block, which share their scales */
    int32_t block_bytes;
    int32_t row_header_bytes; /* one scale for the whole row, before its blocks; 0 for most formats */
    int32_t is_weight;        /* 1 where minim_format_decode decodes it */
    const char* name;         /* static text */
} minim_format_info;
#define MINIM_FORMAT_INFO_INIT \
    { sizeof(minim_format_info), 0, 0, 0, 0, 0, NULL }

MINIM_API size_t minim_format_count(void);
MINIM_API MINIM_MUST_CHECK minim_status minim_format_get_info(size_t index, minim_format_info* out,
                                                              minim_error* err);

/*
 * Decodes one row of `count` elements, its header included where the format has one. `name` as in quants
 * and model files: "Q4_K". INVALID where count is no multiple of the block or row_length is not the row's
 * size in bytes.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_format_decode(const char* name, const void* row,
                                                            size_t row_length, size_t count, float* out,
                                                            minim_error* err);

#ifdef __cplusplus
}
#endif

#endif /* MINIM_H */
