/* SPDX-License-Identifier: Apache-2.0 */
/*
 * minim: inference for the MiniMax-M2 family of language models.
 *
 * This header is the complete interface and its manual. It is C99 and includes only standard headers.
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
 *   parent alive (a session its model, a model its runtime), so handles may be released in any order.
 *   Sessions, requests and decoders may be released during a call that uses them, by its callback or by
 *   another thread; the call releases them when it returns. Other handles must not be released before the
 *   calls that use them have returned.
 * - A call that can fail returns minim_status and takes a minim_error as its last argument, which may be
 *   NULL. If a call fails, its out-parameter is NULL (handles) or unchanged (values), and every handle is as
 *   it was before the call.
 * - Structs start with `size`, set by the *_INIT macro. Every other field may stay zero, which is the
 *   default. A library older than its caller refuses a struct whose unknown tail is not all zero
 *   (MINIM_E_UNSUPPORTED), or is longer than 4096 bytes (MINIM_E_INVALID).
 * - Text is UTF-8. Text arguments are zero-terminated strings, or a pointer and a length in bytes if the
 *   comment says so. Returned text is in memory of the library; the comment of the call states its lifetime.
 * - The library prints nothing, has no global state, and never aborts or exits the process.
 * - Environment variables that the library reads: MINIM_PLUGIN_PATH (folders with plug-ins, see
 *   minim_devices); XDG_CACHE_HOME and HOME (the folder of measured speeds, see below); for ranks, the
 *   process's number and their count as its launcher says them (Open MPI, MPICH, Intel MPI, Slurm); and for
 *   debugging MINIM_LOG (level 1..4: a runtime without a logger writes its log to standard error) and
 *   MINIM_CPU (scalar; avx2, avx2_vnni, avx512, avx512_vbmi on x86-64; neon_dotprod, neon_i8mm on aarch64:
 *   use the kernels of another instruction set that the CPU has). The plug-in for NVIDIA GPUs reads
 *   MINIM_NCCL_LIBRARY and MINIM_NCCL_FOLDER (where NCCL is) and, for debugging and measuring,
 *   MINIM_CUDA_DEBUG and MINIM_CUDA_PATHS.
 * - Files that the library writes: those that a call names, and one small file for each measured speed of
 *   the machine, in $XDG_CACHE_HOME/minim or else $HOME/.cache/minim, when a plan or the placement on
 *   devices first needs the speed. Without both variables none is kept.
 * - Results are reproducible bit by bit only if the host does not change the floating-point environment of
 *   its threads: another rounding mode, or subnormal numbers flushed to zero, changes them. The library's
 *   threads inherit the environment of the thread that creates the runtime; minim_runtime_create logs a
 *   warning if subnormal numbers are flushed there.
 * - Threads: each handle's comment says whether one or any thread may use it at a time. Callbacks run on the
 *   thread that made the call, without a lock that other calls wait for. Log lines may come from any thread
 *   that is in a call, and from an engine's own thread. A C++ exception from a callback ends the call with
 *   MINIM_E_INTERNAL. longjmp() out of a callback leaves the handle in use for ever (MINIM_E_BUSY).
 * - The library's own threads are called "minim-1", "minim-2" ... and "minim-engine". They block all signals
 *   except those of faults (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS), so the host's threads
 *   get the process's signals.
 * - fork(): a child process has none of the library's threads. In the child, calls that need them fail with
 *   MINIM_E_INVALID (all calls on a model, session or engine; only those on an engine if the runtime has one
 *   thread or `parallel_for`), and *_free and *_close return at once without freeing all memory. A child may
 *   create its own runtime and open the model again. exec() after fork() is safe.
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

/* -------------------------------------------------------------------------------- the calls that suffice */

/*
 * The 15 calls of this part open a model, tokenise a conversation, and generate, as in the example above. The
 * sections after it have the other calls, and the structs of which this part has only the names: pass NULL
 * for their defaults.
 */
struct minim_runtime_params;
struct minim_model_params;
struct minim_generate_result;

typedef int32_t minim_status;

enum minim_status_code {
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
    MINIM_E_BUSY = 11,     /* the handle is in use by another call */
    MINIM_E_INTERNAL = 12, /* a bug in the library */
    MINIM_E_PEER_LOST = 13 /* a rank, which the message names, has ended or does not answer */
};

/* Owned by the caller; filled if a call fails, unchanged if it succeeds. */
typedef struct minim_error {
    uint32_t size;
    int32_t status;
    int32_t reason; /* MINIM_REASON_*, or 0 */
    /* The device concerned, or -1 (also for the CPU). After minim_model_open: its index in the params'
       `devices` (-1 for one that only `overrides` name); else an index for minim_model_device_memory. */
    int32_t device;
    int64_t os_code;    /* errno, or 0 */
    int64_t requested;  /* bytes (out of memory) or tokens (context full) requested, or 0 */
    int64_t available;  /* bytes or tokens available, or 0 */
    int64_t offset;     /* byte position in the file, or -1 */
    char message[1024]; /* zero-terminated: what, where, and what to try */
} minim_error;
/* clang-format off */
#define MINIM_ERROR_INIT { sizeof(minim_error), 0, 0, 0, 0, 0, 0, 0, {0} }
/* clang-format on */

/* "One thread at a time": the handle may move between threads; a call while another one uses it fails with
 * MINIM_E_BUSY. */
typedef struct minim_runtime minim_runtime;       /* any thread */
typedef struct minim_checkpoint minim_checkpoint; /* immutable, any thread */
typedef struct minim_model minim_model;           /* immutable, any thread */
typedef struct minim_session minim_session;       /* one thread at a time */
typedef struct minim_sampling minim_sampling;     /* one thread at a time while it is changed, else any */
typedef struct minim_tokens minim_tokens;         /* immutable, any thread */
typedef struct minim_text minim_text;             /* immutable, any thread */
typedef struct minim_decoder minim_decoder;       /* one thread at a time */
typedef struct minim_cancel minim_cancel;         /* any thread; trigger also from a signal handler */
typedef struct minim_output_parser minim_output_parser; /* one thread at a time */
typedef struct minim_output minim_output;               /* immutable, any thread */

/* Creates a runtime, which owns the logger and the threads. `params` may be NULL. A process may have
 * several runtimes. */
MINIM_API MINIM_MUST_CHECK minim_status minim_runtime_create(const struct minim_runtime_params* params,
                                                             minim_runtime** out, minim_error* err);
MINIM_API void minim_runtime_free(minim_runtime* runtime);

/* Loads a model. `params` and `cancel` may be NULL. Errors: those of minim_checkpoint_open, UNSUPPORTED
 * (another architecture, a tensor type without decoder, a feature that the forward pass does not have, a
 * device that cannot be used; always named), NOT_FOUND (also for a device that does not exist),
 * OUT_OF_MEMORY, OUT_OF_DEVICE_MEMORY, DEVICE_LOST, CANCELLED, PEER_LOST. */
MINIM_API MINIM_MUST_CHECK minim_status minim_model_open(minim_runtime* runtime, const char* path,
                                                         const struct minim_model_params* params,
                                                         minim_cancel* cancel, minim_model** out,
                                                         minim_error* err);
MINIM_API void minim_model_close(minim_model* model);

typedef struct minim_session_params {
    uint32_t size;
    uint32_t flags;       /* none defined: 0 */
    uint64_t max_context; /* tokens; 0: the context that the model was trained for, or what fits in memory */
    /* MINIM_KV_*; AUTO: F16. Q8_0 and Q4_0 need a head dimension that is a multiple of 32, keys in Q4_0 a
       power of two. */
    int32_t k_format;
    int32_t v_format;
    int32_t n_batch; /* reserved, has no effect; must not be negative */
    /* Tokens of a step, at most 65536; 0: 512, or more if opening the model chose it. Changes speed, never
       results. */
    int32_t n_ubatch;
} minim_session_params;
#define MINIM_SESSION_PARAMS_INIT \
    { sizeof(minim_session_params), 0, 0, 0, 0, 0, 0 }

/* Creates a session and allocates the memory for its whole context: OUT_OF_MEMORY names the largest
 * context that would fit. Without `params` that is the context that the model was trained for, 46 GiB for
 * MiniMax-M2 and F16, or a shorter one that fits, with a warning in the log; minim_session_context_size
 * returns it. Work space comes on top, which grows with n_ubatch and the model's width (125 MiB for
 * MiniMax-M2 and 512 rows); minim_session_kv_bytes does not include it. */
MINIM_API MINIM_MUST_CHECK minim_status minim_session_create(minim_model* model,
                                                             const minim_session_params* params,
                                                             minim_session** out, minim_error* err);
MINIM_API void minim_session_free(minim_session* session);

/*
 * Options of sampling and of the end of generation, by name. A new handle is greedy, until the model ends its
 * turn or the context is full. minim_sampling_option lists every option with type, range, default and help. A
 * seed is any 64 bits, as int64_t.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_sampling_create(minim_sampling** out, minim_error* err);
MINIM_API void minim_sampling_free(minim_sampling* sampling);
MINIM_API MINIM_MUST_CHECK minim_status minim_sampling_set_i64(minim_sampling* sampling, const char* name,
                                                               int64_t value, minim_error* err);
MINIM_API MINIM_MUST_CHECK minim_status minim_sampling_set_f64(minim_sampling* sampling, const char* name,
                                                               double value, minim_error* err);

/* Token ids that a call returned. The data is valid as long as the handle. */
MINIM_API const int32_t* minim_tokens_data(const minim_tokens* tokens); /* never NULL */
MINIM_API size_t minim_tokens_count(const minim_tokens* tokens);
MINIM_API void minim_tokens_free(minim_tokens* tokens);

/* Which added tokens are recognised in text. SAFE does not recognise control tokens (a "[e~[" typed by a
 * user ends nothing), but the others (<think>, the tool tags). */
enum minim_specials {
    MINIM_SPECIALS_EXACT = 0, /* all */
    MINIM_SPECIALS_SAFE = 1,  /* those that are not control tokens */
    MINIM_SPECIALS_NONE = 2,  /* none */
    /* Only for minim_chat_tokenize: all in the template's own text, none in messages. */
    MINIM_SPECIALS_TEMPLATE = 3
};

/* Renders the prompt for a conversation, as minim_chat_render describes it, as token ids.
 * MINIM_SPECIALS_EXACT: tokenises the rendered text. MINIM_SPECIALS_SAFE: recognises control tokens only
 * in the template's own text, so that no message can forge them. MINIM_SPECIALS_TEMPLATE: recognises all
 * added tokens only there; "<think>" in a message is plain text. */
MINIM_API MINIM_MUST_CHECK minim_status minim_chat_tokenize(const minim_model* model, const char* messages,
                                                            const char* tools, const char* kwargs,
                                                            int32_t specials, minim_tokens** out,
                                                            minim_error* err);

typedef struct minim_token_probability {
    int32_t id;
    float logprob;
} minim_token_probability;

/* One generated token. The pointers are valid until the callback returns or the next call on the
 * session. */
typedef struct minim_token {
    uint32_t size;
    int32_t id;
    /* Whole UTF-8, zero-terminated; "" while a sequence or a possible stop text is held back. */
    const char* text;
    size_t text_length;
    /* Natural logarithm, before temperature and filters; 0 unless the option logprobs is set. */
    float logprob;
    int32_t n_top; /* entries of `top`: option top_logprobs */
    const minim_token_probability* top;
    /* 0: a generated token. Else, with the option prompt_logprobs, a token of the prompt, without its text:
       its rank after the tokens before it, 1 for the likeliest. */
    int32_t prompt_rank;
    uint32_t reserved;
} minim_token;
#define MINIM_TOKEN_INIT \
    { sizeof(minim_token), 0, NULL, 0, 0, 0, NULL, 0, 0 }

/* Receives a token. Return 0 to continue, anything else to stop after this token (MINIM_FINISH_STOPPED,
 * unless the text ends with this token anyway). */
typedef int32_t (*minim_token_fn)(void* user_data, const minim_token* token);

/*
 * Appends the prompt and generates, calling `on_token` for each token. `sampling`, `on_token`, `cancel` and
 * `result` may be NULL. The prompt may be empty only if the session has tokens. The session keeps the prompt
 * and the reported tokens, also if an error ends the text; after an error in the prompt it is unchanged.
 * `result` is filled also if the call fails, except for BUSY, for a NULL session and in a child of fork().
 * Errors: INVALID, CONTEXT_FULL (nothing is evaluated), CANCELLED, FORMAT (weights that are not finite).
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_generate(minim_session* session, const minim_sampling* sampling,
                                                       const int32_t* prompt, size_t count,
                                                       minim_token_fn on_token, void* user_data,
                                                       minim_cancel* cancel,
                                                       struct minim_generate_result* result,
                                                       minim_error* err);

/* -------------------------------------------------------------------------------------------- versions */

/* Within a major version, 0 included, calls, constants and fields at the end of structs are only added. A
 * program works with every library of the same major version that is not older than its header. The SONAME
 * of the shared library, libminim.so.0, and the version of the CMake package follow this rule. */
#define MINIM_VERSION_MAJOR 0
#define MINIM_VERSION_MINOR 1
#define MINIM_VERSION_PATCH 0
#define MINIM_VERSION_NUMBER \
    (MINIM_VERSION_MAJOR * 1000000 + MINIM_VERSION_MINOR * 1000 + MINIM_VERSION_PATCH)

/* Return the version of the library, "0.1.0" and 1000, to compare with the header's. Static text. Any
 * thread. */
MINIM_API const char* minim_version(void);
MINIM_API uint32_t minim_version_number(void);

/* Returns one line: version, compiler, and the instruction sets of this build. Static text. Any thread. */
MINIM_API const char* minim_build_info(void);

/* Returns 1 if this build has the feature, else 0. Names: "gguf", "safetensors", "cpu", "reference",
 * "avx2", "avx512", "neon_dotprod", "neon_i8mm", "cuda" (the plug-in was built; minim_devices_list shows the devices that it finds). */
MINIM_API int32_t minim_has_feature(const char* name);

/* ---------------------------------------------------------------------------------------------- errors */

/* The fault of a bad file. */
enum minim_reason {
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

/* Return the name of a number, "MINIM_E_FORMAT" or "truncated": static text, NULL for an unknown number.
 * Any thread. */
MINIM_API const char* minim_status_name(minim_status status);
MINIM_API const char* minim_reason_name(int32_t reason);

/* ---------------------------------------------------------------------------------- texts and cancelling */

/* A text that a call returned. The data is valid as long as the handle, zero-terminated, and may contain
 * zero bytes too. */
MINIM_API const char* minim_text_data(const minim_text* text);
MINIM_API size_t minim_text_length(const minim_text* text); /* bytes, without the terminating zero */
MINIM_API void minim_text_free(minim_text* text);

/* Cancels calls that it is passed to: they return MINIM_E_CANCELLED. It stays triggered until it is reset.
 * Calls check it between blocks of at most 4 MiB while loading, twice in each layer while a prompt is
 * evaluated, and between tokens. */
MINIM_API MINIM_MUST_CHECK minim_status minim_cancel_create(minim_cancel** out, minim_error* err);
MINIM_API void minim_cancel_trigger(minim_cancel* cancel);
MINIM_API void minim_cancel_reset(minim_cancel* cancel);
MINIM_API void minim_cancel_free(minim_cancel* cancel);

/* --------------------------------------------------------------------------------------------- runtime */

enum minim_log_level {
    MINIM_LOG_OFF = 0,
    MINIM_LOG_ERROR = 1,
    MINIM_LOG_WARNING = 2,
    MINIM_LOG_INFO = 3,
    MINIM_LOG_DEBUG = 4
};

/* One complete line without its newline. */
typedef void (*minim_log_fn)(void* user_data, int32_t level, const char* line);

/*
 * A function of the host that runs the library's arithmetic on the host's threads. It must call task(context,
 * i, slot) once for each i from 0 to n_tasks - 1 and return when all have returned. Slots are 0 to n_threads
 * - 1; two tasks that run at the same time must not have the same slot. Tasks are short and do not block (but
 * while a model is loaded, they read up to some hundred kilobytes from its files, and write two megabytes to
 * a packed file). It is called on the thread that is in a call of the library, so sessions on several threads
 * call it at the same time.
 */
typedef void (*minim_task_fn)(const void* context, int64_t index, int32_t slot);
typedef void (*minim_parallel_for_fn)(void* user_data, int64_t n_tasks, minim_task_fn task,
                                      const void* context);

/*
 * Placement on machines with several NUMA nodes, where the memory of another node is slower. In all modes but
 * OFF, each thread of the library is bound to the cores of one node (the calling thread is not bound), and KV
 * cache and work space are interleaved over the nodes. Results have the same bits in all modes. SPLIT and
 * INTERLEAVE fail with MINIM_E_UNSUPPORTED and the reason if this build has no hwloc to detect several nodes,
 * or the system refuses placement, as containers may.
 */
enum minim_numa {
    /* SPLIT if there are several nodes and the system allows placement (with a warning if it does not), else
       OFF; OFF with parallel_for. */
    MINIM_NUMA_AUTO = 0,
    MINIM_NUMA_OFF = 1,
    /* Weights in memory of the process are interleaved over the nodes, page by page. */
    MINIM_NUMA_INTERLEAVE = 2,
    /* Each node has rows of each weight in proportion to its threads, which work on these first; not with
       parallel_for. */
    MINIM_NUMA_SPLIT = 3
};

typedef struct minim_runtime_params {
    uint32_t size;
    uint32_t flags;    /* none defined: 0 */
    int32_t n_threads; /* compute threads, including the caller; 0: the cores that this process may use */
    int32_t log_level; /* MINIM_LOG_*: the most detailed lines that the logger gets */
    minim_log_fn log;  /* NULL: no log. Called until the runtime and all its children are released */
    void* log_user_data;
    int32_t n_threads_decode; /* threads for steps of one token, which are bound by memory; 0: n_threads (if
                                 * that is 0 too, the big cores of CPUs with cores of several speeds) */
    int32_t pin_threads;      /* 1: bind each thread of the library to a core of its own */
    minim_parallel_for_fn parallel_for; /* NULL: threads of the library. Else n_threads must be set */
    void* parallel_for_user_data;
    int32_t numa; /* MINIM_NUMA_*: placement of threads and memory on NUMA nodes */
    uint32_t reserved;
} minim_runtime_params;
#define MINIM_RUNTIME_PARAMS_INIT \
    { sizeof(minim_runtime_params), 0, 0, 0, NULL, NULL, 0, 0, NULL, NULL, 0, 0 }

MINIM_API int32_t minim_runtime_thread_count(const minim_runtime* runtime);
/* Returns the NUMA mode in use: "off", "interleave" or "split". Static text. */
MINIM_API const char* minim_runtime_numa(const minim_runtime* runtime);
/* Returns the instruction set in use: "scalar", "avx2", "avx2_vnni", "avx512", "avx512_vbmi", "neon_dotprod",
 * "neon_i8mm". Static text. */
MINIM_API const char* minim_runtime_cpu_level(const minim_runtime* runtime);

/* ----------------------------------------------------------------------------------------- checkpoints */

/*
 * Opens the headers of a checkpoint: metadata and tensor list; no weights are loaded. `path` is a .gguf file
 * (any part of a split one; the others are in the same folder), a .safetensors file, a
 * model.safetensors.index.json, or a folder with either. Errors: NOT_FOUND, IO, FORMAT (with a reason).
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_checkpoint_open(minim_runtime* runtime, const char* path,
                                                              minim_checkpoint** out, minim_error* err);
/*
 * Opens a checkpoint by an open descriptor of a GGUF file that is not split, or of a folder. The file is read
 * from its start, whatever the position of the descriptor, which does not change. The file is not opened
 * again, so no permission for its path is needed; the files of a folder are opened through /proc. The library
 * keeps a copy of the descriptor: the caller may close its own after the call. The path "/dev/fd/N" means the
 * same in every call that takes the path of a checkpoint. Errors: those of minim_checkpoint_open, INVALID (a
 * negative descriptor), IO (a descriptor that is not open; a pipe or socket).
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_checkpoint_open_fd(minim_runtime* runtime, int32_t descriptor,
                                                                 minim_checkpoint** out, minim_error* err);
MINIM_API void minim_checkpoint_close(minim_checkpoint* checkpoint);

MINIM_API size_t minim_checkpoint_file_count(const minim_checkpoint* checkpoint);
/* Returns the bytes of all files together. */
MINIM_API uint64_t minim_checkpoint_file_bytes(const minim_checkpoint* checkpoint);

/* Metadata in file order: all keys of a GGUF file, or the `__metadata__` texts of a safetensors file. The
 * keys are valid as long as the handle. */
MINIM_API size_t minim_checkpoint_metadata_count(const minim_checkpoint* checkpoint);
/* Returns NULL if there is no such index. */
MINIM_API const char* minim_checkpoint_metadata_key(const minim_checkpoint* checkpoint, size_t index);

/*
 * Returns the value of a key as text: numbers in decimal, booleans true or false, strings as they are, arrays
 * as `i32[3] {1, 2, 3}` with strings in quotes. `max_array`: at most so many array elements before "..."; 0:
 * all. Errors: NOT_FOUND (no such key).
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_checkpoint_metadata(const minim_checkpoint* checkpoint,
                                                                  const char* key, size_t max_array,
                                                                  minim_text** out, minim_error* err);

/*
 * The sampling that the makers of a checkpoint recommend: temperature, top_p, top_k, min_p and
 * repetition_penalty of generation_config.json (temperature 0 if do_sample is false), or temp, top_p, top_k,
 * min_p, penalty_repeat and penalty_last_n of the keys general.sampling.* of a GGUF file. Values that are
 * missing or out of range are replaced with those of MiniMax-M2's model card: 1.0, 0.95, 40, and no other
 * filter or penalty.
 */
typedef struct minim_recommended_sampling {
    uint32_t size;
    int32_t top_k;
    double temperature;
    double top_p;
    double min_p;
    double repetition_penalty;
    int32_t penalty_last_n; /* the most recent tokens that the penalty uses; -1: all */
    int32_t reserved;       /* 0 */
    /* The source of the values: "generation_config.json", "general.sampling", or "" if the checkpoint
       recommends nothing. Static text. */
    const char* source;
} minim_recommended_sampling;
#define MINIM_RECOMMENDED_SAMPLING_INIT \
    { sizeof(minim_recommended_sampling), 0, 0, 0, 0, 0, 0, 0, NULL }

/* Reads the file again at each call. Errors: IO, FORMAT (generation_config.json is not a JSON object). */
MINIM_API MINIM_MUST_CHECK minim_status minim_checkpoint_recommended_sampling(
    const minim_checkpoint* checkpoint, minim_recommended_sampling* out, minim_error* err);

typedef struct minim_tensor_info {
    uint32_t size;
    int32_t n_dims;
    int64_t dims[8]; /* outermost first: [out, in] for a weight, [experts, out, in] for a stack */
    uint64_t bytes;
    const char* name;   /* valid as long as the checkpoint */
    const char* format; /* "Q4_K", "F8_E4M3": valid as long as the checkpoint */
} minim_tensor_info;
#define MINIM_TENSOR_INFO_INIT \
    { sizeof(minim_tensor_info), 0, {0}, 0, NULL, NULL }

MINIM_API size_t minim_checkpoint_tensor_count(const minim_checkpoint* checkpoint);
MINIM_API MINIM_MUST_CHECK minim_status minim_checkpoint_tensor(const minim_checkpoint* checkpoint,
                                                                size_t index, minim_tensor_info* out,
                                                                minim_error* err);

/* --------------------------------------------------------------------------------------------- devices */

/* The devices at the time of the call: "cpu" first, then those that plug-ins find ("cuda:0" ...). Plug-ins
 * are libraries named libminim-KIND.so in the folders of the environment variable MINIM_PLUGIN_PATH,
 * separated by colons, or in minim-0 beside this library (0: the number in its SONAME). Any thread. Calls
 * on CUDA devices change the calling thread's current CUDA device: a program with CUDA code of its own
 * must set it again. */
typedef struct minim_devices minim_devices;

typedef struct minim_device_info {
    uint32_t size;
    int32_t usable; /* 1, or 0: `reason` says why not */
    uint64_t memory_bytes;
    uint64_t free_bytes;
    /* Valid as long as the list. */
    const char* name;        /* "cpu", "cuda:0"; for a plug-in that cannot be loaded only its kind, "cuda" */
    const char* description; /* "NVIDIA H200" */
    const char* reason;      /* "" if the device is usable */
    int32_t unified;         /* 1: its memory is the host's, counted once in plans and models; or 0 */
    int32_t reserved;        /* 0 */
} minim_device_info;
#define MINIM_DEVICE_INFO_INIT \
    { sizeof(minim_device_info), 0, 0, 0, NULL, NULL, NULL, 0, 0 }

MINIM_API MINIM_MUST_CHECK minim_status minim_devices_list(minim_runtime* runtime, minim_devices** out,
                                                           minim_error* err);
MINIM_API void minim_devices_free(minim_devices* devices);
MINIM_API size_t minim_devices_count(const minim_devices* devices); /* 0 for NULL */
/* Errors: INVALID (no such index). */
MINIM_API MINIM_MUST_CHECK minim_status minim_devices_get(const minim_devices* devices, size_t index,
                                                          minim_device_info* out, minim_error* err);

/* ----------------------------------------------------------------------------------------------- plan */

enum minim_kv_format {
    MINIM_KV_AUTO = 0,
    MINIM_KV_F16 = 1,
    MINIM_KV_F32 = 2,
    MINIM_KV_BF16 = 3,
    MINIM_KV_Q8_0 = 4,
    MINIM_KV_Q4_0 = 5 /* keys are rotated, so that they lose less */
};

/* A number of ranks: one for each device; of groups of experts: one for each rank. */
#define MINIM_ALL_RANKS (-1)

typedef struct minim_plan_params {
    uint32_t size;
    uint32_t flags; /* none defined: 0 */
    /* Texts "NAME=MEMORY,BANDWIDTH[,pcie=BANDWIDTH]" in the order of the layers, such as
       "cuda:0=96GiB,1790GB/s,pcie=50GB/s"; the devices need not exist. A device that shares the host's memory
       has "unified" instead of a link, as "cuda:0=121.6GiB,273GB/s,unified"; it is the only one. A card may stand for its numbers,
       alone or with a count: "cuda:0=RTX 3090", "RTX 3090", "4x RTX 3090"; without a name, cards are cuda:0,
       cuda:1 and so on. "NAME" and "NAME=MEMORY" are devices of this machine, measured once. NULL: all usable
       ones. */
    const char* const* devices;
    size_t n_devices; /* with devices not NULL, 0 plans for the CPU alone */
    /* "MEMORY,BANDWIDTH", as "768GiB,576GB/s"; NULL: this machine, whose bandwidth and kernels are measured
       once; the figures are kept in the user's cache folder. NULL beside a device that shares the host's
       memory, which describes both. */
    const char* host;
    int64_t n_context;   /* tokens of one sequence; 0, with for_engine: the longest that fits */
    int32_t n_sequences; /* concurrent sequences, each of which reserves the context; 0: 1 */
    int32_t n_ubatch;    /* rows of a prompt step; 0: chosen, 512 or more */
    int32_t k_format;    /* MINIM_KV_*; AUTO: F16 */
    int32_t v_format;
    const char* overrides; /* as in minim_model_params; NULL: none */
    /* Shares of the layers, one per device; shares that add up to the model's layers are counts of layers.
       NULL: chosen by memory and bandwidth. */
    const double* split;
    size_t n_split;
    int32_t n_device_layers; /* as in minim_model_params; 0: all, or as many as have room */
    /* 1: the sequences are the requests of an engine. They share a KV cache, and its tokens, and a context of
       0, are chosen as minim_engine_create does. 0: each sequence reserves the context. */
    int32_t for_engine;
    int64_t n_host_experts; /* as in minim_model_params */
    /* As in minim_model_params. MINIM_EXPERT_CACHE_ROOM and 0: what is left beside the KV cache. */
    uint64_t expert_cache_bytes;
    /* Ranks share every layer, where devices otherwise have layers each. Each of the `devices` is a rank; with
       0 devices each rank is a host like `host`. All 0 or 1: one rank.
       tensor_parallel: ranks that have parts of the heads and of the experts; MINIM_ALL_RANKS: all devices.
       expert_parallel: groups of ranks with whole experts of their own; MINIM_ALL_RANKS: one for each rank.
       Without tensor_parallel, the number of ranks; each then has all of the attention. 0: the best for few
       sequences.
       pipeline_parallel: stages of layers, each on a process of its own; 0: 1. */
    int32_t tensor_parallel;
    int32_t expert_parallel;
    int32_t pipeline_parallel;
    int32_t reserved; /* 0 */
    /* What connects the ranks, "TIME,BANDWIDTH": the time to add up a few KB on all of them, and the bandwidth
       of each, as "9us,20GB/s"; NULL: 20us, and the devices' pcie. */
    const char* link;
} minim_plan_params;
#define MINIM_PLAN_PARAMS_INIT                                                                             \
    {                                                                                                      \
        sizeof(minim_plan_params), 0, NULL, 0, NULL, 0, 0, 0, MINIM_KV_AUTO, MINIM_KV_AUTO, NULL, NULL, 0, \
            0, 0, 0, 0, 0, 0, 0, 0, NULL                                                                   \
    }

/*
 * Plans where the weights of a checkpoint go, how much of each memory they use, and how fast that will be.
 * Reads only headers, so the checkpoint may be larger than this machine. Writes a JSON object:
 *   fits                       true if every memory has room for its part
 *   devices                    a list in the order of `devices`, or of the ranks: name, dense_bytes,
 *                              expert_bytes, kv_bytes, work_bytes, free_bytes, n_layers, n_experts, and speed:
 *                              "measured" (its kernels with the model's formats, on this machine) or
 *                              "estimated"
 *   host                       the same sizes and speed
 *   unified                    true if the device shares the host's memory; free_bytes of both are then one
 *                              number
 *   used_bytes                 of the devices and the host together, work space included
 *   bytes_per_token            dense, experts, kv_at_context: read to decode one token
 *   decode_tokens_per_second   of one sequence whose context is full
 *   prompt_tokens_per_second   of a prompt as long as the context
 *   decode_seconds             the parts of a token's time: dense, kv_cache, device_experts, host_experts,
 *                              launches, hand_over, sums (exchanges of ranks that share layers)
 *   parallel                   tensor, expert_groups, expert_parts, pipeline; all 1: devices have layers each.
 *                              Rank r of a stage has the experts e with e % expert_groups ==
 *                              r % expert_groups, each in expert_parts parts
 *   choices                    sentences: what was placed where; if it does not fit, what would
 *   n_context, kv_tokens       tokens of one sequence, and of the KV cache; both may have been chosen
 *   n_sequences, n_ubatch      sequences at once, and rows of a prompt step
 * `runtime` provides log and threads. Errors: those of minim_checkpoint_open; FORMAT and UNSUPPORTED as in
 * minim_model_open; INVALID (a text that does not describe a device, quoted; an unknown device in
 * `overrides`; numbers of ranks that cannot share the model, with those that can; a host beside a device that
 * shares the host's memory); UNSUPPORTED (experts on the host or in a cache beside such a device). A plan that
 * does not fit is not an error.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_plan_make(minim_runtime* runtime, const char* path,
                                                        const minim_plan_params* params, minim_text** out,
                                                        minim_error* err);

/* ---------------------------------------------------------------------------------------------- convert */

typedef struct minim_convert_progress {
    uint32_t size;
    int32_t reserved;    /* 0 */
    uint64_t done_bytes; /* of the source; never decreasing */
    uint64_t total_bytes;
    int64_t n_done; /* tensors that are finished */
    int64_t n_tensors;
    /* Valid during the callback. */
    const char* tensor; /* the one that is worked on, or was just finished */
    const char*
        result; /* a tensor was just finished: the JSON object that the report has for it; else NULL */
} minim_convert_progress;

/* Reports progress, after each piece of a tensor and after each tensor. Return 0 to continue, anything else to
 * cancel. */
typedef int32_t (*minim_convert_progress_fn)(void* user_data, const minim_convert_progress* progress);

enum minim_convert_effort {
    MINIM_CONVERT_EFFORT_FULL = 0,
    MINIM_CONVERT_EFFORT_FAST = 1 /* several times faster, with slightly larger errors */
};

typedef struct minim_convert_params {
    uint32_t size;
    uint32_t flags; /* none defined: 0 */
    /* Quantises: the name of a recipe, in any case: "Q4_K_M", or of a type; "COPY" changes no tensor. Of a
       folder: of a layout. NULL: converts, by `matrix_type`, or to `layout`. */
    const char* recipe;
    /* Without a recipe: "keep" or NULL (each tensor in the type that holds its numbers, if GGUF has it, else
       BF16), "auto" (all matrices BF16), "f32", "f16", "bf16" or "q8_0" (all matrices). */
    const char* matrix_type;
    /* n_rules texts "PATTERN=TYPE": a regular expression that is searched in the GGUF names of the tensors,
       and the type of those that match. The first rule that matches a tensor decides, before the recipe. Norms
       and biases never change; the router only for F32, F16 and BF16. */
    const char* const* rules;
    size_t n_rules;
    const char* output_type;    /* type of output.weight, before the rules; NULL: by the recipe */
    const char* embedding_type; /* the same of token_embd.weight */
    int32_t keep_output;        /* 1: output.weight stays in the source's type */
    int32_t pure;               /* 1: all matrices get the recipe's main type */
    int32_t allow_requantize;   /* 1: matrices below 8 bits may be encoded again, which adds errors */
    int32_t without_importance; /* 1: types that need importance data are encoded without */
    const char* imatrix;        /* path of a file of importance data; NULL: none */
    /* Importance data is used for tensors whose name has one of n_include_weights texts (none: all), and none
       of n_exclude_weights texts. */
    const char* const* include_weights;
    size_t n_include_weights;
    const char* const* exclude_weights;
    size_t n_exclude_weights;
    int32_t effort;           /* MINIM_CONVERT_EFFORT_* */
    int32_t no_hashes;        /* 1: the metadata have no minim.* keys */
    const char* name;         /* general.name; NULL: the source's, or the folder's name */
    const char* const* unset; /* n_unset metadata keys to remove, first */
    size_t n_unset;
    /* n_set texts "KEY=VALUE" or "KEY=TYPE:VALUE". A key that is there keeps its type; the type of a new one is
       said (u32, i64, f32, bool, string, ...) or deduced. Keys that the tensors or the vocabulary decide are
       refused. */
    const char* const* set;
    size_t n_set;
    const char* const* set_text; /* n_set_text texts "KEY=TEXT": strings, whatever they look like */
    size_t n_set_text;
    /* The largest number of bytes of tensors, and of tensors, in a part; 0: no limit. */
    uint64_t part_bytes;
    int64_t part_tensors;
    int32_t first_part_empty;           /* 1: the first part has the metadata alone */
    int32_t keep_parts;                 /* 1: the tensors are divided as in the parts of the source */
    int32_t dry_run;                    /* 1: plans only, and writes nothing */
    int32_t overwrite;                  /* 1: files of the output that exist are replaced */
    int32_t restart;                    /* 1: an unfinished output is thrown away */
    int32_t no_verify;                  /* 1: the output is not read again at the end */
    uint64_t memory_bytes;              /* the most memory of all buffers; 0: 2 GiB */
    minim_convert_progress_fn progress; /* may be NULL */
    void* progress_user_data;
    /* Of an output that is a folder, in any case: "bf16" or NULL; "fp8" (the official release's: attention and
       experts in blocks of 128 x 128); "mxfp8" (the official release's of M3: also dense feed-forwards, in groups
       of 32); and, of experts alone, "nvfp4" (ModelOpt), "nvfp4-ct", "mxfp4-ct",
       "int4-g32", "int4-g128" and "int8" (compressed-tensors). `rules` then have the layout or "bf16" as type. */
    const char* layout;
    /* Keeps some experts of each layer: a number ("154"), of those with the largest mean of gate * norm of the
       output in the importance data `imatrix`; or the path of a JSON file, {"layers": [[ids], ...]}, with a
       list of as many experts for each layer. NULL: keeps all. */
    const char* keep_experts;
    /* Path of an earlier output, a GGUF file with hashes: tensors that were made of the same bytes, with the
       same type, importance data and encoders are copied from it. NULL: none. */
    const char* reuse;
    /* "gguf" or "safetensors", in any case; NULL: by the name of the output. */
    const char* container;
} minim_convert_params;
#define MINIM_CONVERT_PARAMS_INIT                                                                          \
    {                                                                                                      \
        sizeof(minim_convert_params), 0, NULL, NULL, NULL, 0, NULL, NULL, 0, 0, 0, 0, NULL, NULL, 0, NULL, \
            0, 0, 0, NULL, NULL, 0, NULL, 0, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL,   \
            NULL, NULL                                                                                     \
    }

/*
 * Converts or quantises a checkpoint to a GGUF file or a safetensors folder. `source` is whatever
 * minim_checkpoint_open opens, of every layout. `output` ends in .gguf, or is the path of the folder, unless `container` says which. Parts are
 * called PREFIX-00001-of-00003.gguf; those of a folder model-00001-of-00003.safetensors, of 5 GB unless
 * `part_bytes` says otherwise. A folder also gets the configuration and tokenizer files, the source folder's or
 * made of the metadata of a GGUF file; options for metadata and recipes are INVALID for it. Uses the threads of
 * `runtime`. `params` and `cancel` may be NULL. The bytes of the output depend on neither threads nor memory.
 *
 * The files are made in a folder OUTPUT.partial and get their names once all are complete. After a failure,
 * a cancellation, or the end of the process, the same call goes on with the tensors that are missing.
 *
 * Writes a JSON object, the report:
 *   files               a list in the order of the parts: name, bytes, tensors (a count; 0 of the small files
 *                       of a folder)
 *   bytes, tensor_bytes of all files, and of the tensors in them
 *   bits_per_weight
 *   source_bytes        that are read
 *   free_bytes          in the folder of the output, before
 *   peak_memory_bytes   of all buffers
 *   tensors             a list in the order of the files: name, from and to (types), shape (outermost first),
 *                       bytes; but for a dry run also number, of, source_bytes, xxh3 and source_xxh3 (XXH3-64 of
 *                       the bytes, in hexadecimal), seconds, and of encoded tensors rmse and weighted: the root
 *                       of the sum of square errors over that of squares, plain and weighted by importance.
 *                       Of a folder: a matrix with its scales, in the name of its weight; the hash is that of
 *                       the hashes of its tensors
 *   needs_importance    names of tensors whose type needs importance data, for which there is none
 *   without_importance  names of encoded tensors for which `imatrix` has no data
 *   fallbacks           names of tensors whose rows are no multiple of the block of the type that was asked for
 *   widened             names of tensors that became BF16 because GGUF does not have their type
 *   resumed, reused     not for a dry run: tensors of an earlier run, and those copied from `reuse`
 *   seconds             not for a dry run: the time of this run
 * A dry run reads only headers.
 *
 * Errors: those of minim_checkpoint_open; FORMAT and UNSUPPORTED as in minim_model_open, and UNSUPPORTED for a
 * type without encoder; INVALID (an unknown recipe or type; a rule that matches no matrix; a number that is
 * not finite, with its tensor, row and column; missing importance data; an output that exists, is the source, or
 * is the unfinished one of another job); IO (too little room, or a failed write); BUSY (another process writes
 * this output); CANCELLED.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_convert(minim_runtime* runtime, const char* source,
                                                      const char* output, const minim_convert_params* params,
                                                      minim_cancel* cancel, minim_text** report,
                                                      minim_error* err);

/* ---------------------------------------------------------------------------------------------- models */

/* Reports progress. done_bytes: bytes loaded and packed so far, never decreasing. total_bytes: 0 if there
 * is nothing to load, as with an existing packed file. Return 0 to continue, anything else to cancel. */
typedef int32_t (*minim_progress_fn)(void* user_data, uint64_t done_bytes, uint64_t total_bytes);

enum minim_residence {
    /* Owned if the kernels are faster with packed weights and a tenth of the available memory stays free,
       else mapped; with a warning if memory is the reason. */
    MINIM_RESIDENCE_AUTO = 0,
    /* Pages of the file, read when first used; the file must not shrink meanwhile. Folders with codes and
       scales in separate tensors (FP8, NVFP4, AWQ), and files on a file system that maps none, are read into
       memory all the same, with a line in the log; not with `packed_file` */
    MINIM_RESIDENCE_MAPPED = 1,
    /* Read into memory of the process (with huge pages, if the system gives them) and packed for the kernels;
       no file is mapped; results have the same bits. */
    MINIM_RESIDENCE_OWNED = 2
};

enum minim_expand {
    /* ON if a measurement at load shows that products are faster, and a quarter of the available memory stays
       free. Formats with 64 MiB of weights or more are measured, in 0.1 to 0.2 seconds each. */
    MINIM_EXPAND_AUTO = 0,
    MINIM_EXPAND_OFF = 1,
    MINIM_EXPAND_ON = 2
};

/* Bytes of a cache of experts: all room that is left beside the context. */
#define MINIM_EXPERT_CACHE_ROOM UINT64_MAX

/* The time at which the experts of a cache change. */
enum minim_expert_moves {
    MINIM_EXPERT_MOVES_AUTO = 0, /* REPRODUCIBLE; FIXED for `deterministic` models */
    /* Never: the experts that were cached first stay. */
    MINIM_EXPERT_MOVES_FIXED = 1,
    /* An expert that is used more takes the place of one that is used less, a fixed number of steps after it
       was chosen: the same requests in the same steps give the same bits. */
    MINIM_EXPERT_MOVES_REPRODUCIBLE = 2,
    /* As soon as it has been copied: the last bits, and with them now and then a token, differ from run to
       run. */
    MINIM_EXPERT_MOVES_EAGER = 3
};

typedef struct minim_model_params {
    uint32_t size;
    uint32_t flags; /* none defined: 0 */
    /* NULL or "cpu"; "reference": plain float arithmetic, slow and exact, also on `devices` */
    const char* backend;
    int32_t residence;          /* MINIM_RESIDENCE_*: storage of the weights in host memory */
    int32_t engine_tokenizer;   /* 1: split text as llama.cpp does, for token-exact comparison with it */
    minim_progress_fn progress; /* may be NULL */
    void* progress_user_data;
    /* Devices for the layers, in the order of the layers, each once: "cuda:0" or "cuda:0,cuda:1" ("CUDA0" is
       "cuda:0"); "auto": all usable devices, or `backend` if there are none; NULL: all layers are on
       `backend`. A budget may follow a device (`budgets`): "cuda:0=20GiB", or "cuda:0=0.9", a part of its
       memory.
       If no field places experts (`overrides`, `n_host_experts`, `fit_context`, `expert_cache_bytes`), room
       is left for a context of 8192 tokens, or a shorter one if needed, and experts that do not fit are
       cached as with MINIM_EXPERT_CACHE_ROOM. `placement` of minim_model_info and the log report the result.
       The KV cache of a layer is on the layer's device. Weights for a device's own memory are copied through
       16 MiB of host memory; `residence` applies only to weights that stay in host memory. */
    const char* devices;
    /* n_split shares of the layers, one for each device; NULL: layers are split by their bytes, without
       offloaded experts, in proportion to the memory that may be used. */
    const double* split;
    size_t n_split;
    /* The number of layers on the devices, the last ones of the model; those before stay on `backend`. 0:
       all. */
    int32_t n_device_layers;
    /* 1: devices that cannot be opened are left out with a warning; if none is left, all layers are on
       `backend`. 0: such a device is an error. */
    int32_t allow_cpu;
    /* n_budgets limits in bytes, one for each device: weights, KV cache and work space together, as long as
       the model is open; 0: no limit. NULL: no limits. OUT_OF_DEVICE_MEMORY names a budget that does not
       suffice. */
    const uint64_t* budgets;
    size_t n_budgets;
    /* Puts experts on another device than their layer, where they are computed:
       "PATTERN=DEVICE,PATTERN=DEVICE", as llama.cpp's -ot. A pattern is a regular expression that is searched
       in the names of tensors in GGUF files (blk.3.ffn_up_exps.weight), for every kind of checkpoint; the
       first one that matches decides. "cpu" is `backend`; a device that `devices` does not name has no
       budget. Errors: INVALID (a pattern that decides nothing), UNSUPPORTED (a pattern that would move
       anything but all experts of a layer). NULL: none. */
    const char* overrides;
    /* Keeps the experts of the first n layers on `backend`; below 0: of the last n layers; 0: of none; the
       number of layers or more: of all. Does not apply to experts that `overrides` name. */
    int64_t n_host_experts;
    /* Keeps as many of the other experts on `backend` as needed to leave room on each device for a context of
       so many tokens (F16) and the work space of a session, the first layers first. 0: none, or see
       `devices`. OUT_OF_DEVICE_MEMORY if there is no room even without experts. */
    int64_t fit_context;
    /* 1: locks weights (mapped ones too) and KV cache in host memory, so that they are never paged out.
       OUT_OF_MEMORY names the limit (RLIMIT_MEMLOCK) if it does not suffice, here or when a session or engine
       is created. */
    int32_t lock;
    /* 1: prefaults mapped weights before the model is ready, with progress. Weights in memory of the process
       are present anyway. */
    int32_t prefault;
    /* 1: results of `devices` do not depend on batch composition, on prompt chunking, or on the version of a
       vendor's library (cuBLASLt is not used). 0: the last bits of logits may differ, and so, rarely, a
       token. A GPU then uses the kernels for many rows also for single tokens, and always splits attention in
       the same way. That is slower, most of all for single sequences and for prompts with F16 and BF16
       weights, and takes 10 to 70 MB more work space. The CPU, and backend "reference", are always
       deterministic. */
    int32_t deterministic;
    /* MINIM_EXPAND_*: unpack the codebooks of IQ1, IQ2 and IQ3 weights (IQ1_S to IQ3_S) that are read into
       memory of the process: store a code for each weight. Same results, 1.24 to 1.58 times the bytes, fewer
       instructions for each weight. Faster if few threads share the memory bandwidth, slower if many do.
       minim_device_memory has the resulting bytes. */
    int32_t expand;
    /* A file with the packed weights of `backend`, or NULL. The weights are mapped from it: nothing is read
       or packed, processes that open the same file share its pages, and decoding is as fast as from memory of
       the process once the pages are present (but rows are not split over NUMA nodes).
       If the file does not exist, is damaged, or does not fit this call (another version of the library,
       another placement, another `expand` than AUTO, checkpoint files with another size or modification
       time), the checkpoint is first read and packed into a new file of that name, of about its size. The new
       file replaces the old one when it is complete; until then the disk needs room for both. The file must
       not change while a model is open.
       Errors: FORMAT (a file of another kind, or of another model as far as samples of its weights show; it
       is left unchanged; with `prefault` or `lock`, which read all of it, also altered weights), IO (also if
       the disk is full), INVALID (an empty text, MINIM_RESIDENCE_OWNED, or not exactly one backend on the
       host). */
    const char* packed_file;
    /* Device memory for an expert cache. All experts are then in host memory too; a device computes the
       experts that it caches while the CPU computes the others of the same layer. Shared by the devices in
       proportion to their layers. With `fit_context`, experts are cached only if not all of them have room.
       MINIM_EXPERT_CACHE_ROOM: what is left beside the context of `fit_context`, or of one that is chosen. 0:
       no cache, or see `devices`. */
    uint64_t expert_cache_bytes;
    int32_t expert_moves; /* MINIM_EXPERT_MOVES_* */
    /* MINIM_KV_* of the context that room is left for; AUTO: F16. */
    int32_t fit_k_format;
    int32_t fit_v_format;
    /* Rows of a prompt step that room is left for, as n_ubatch of a session. 0: 512 or, beside a cache of the
       room that is left, what a plan finds best. */
    int32_t fit_n_ubatch;
    /* A file of minim_model_save_expert_profile, which says which experts a cache has at first, or NULL. A
       missing file counts as an empty profile. FORMAT: the file is another model's, or no profile. */
    const char* expert_profile;
    /* Leaves room for the KV cache of an engine of so many requests (n_requests of minim_engine_params), as
       an engine with kv_tokens 0 takes it: for `fit_context` tokens at least, or, if that is 0, for the
       longest context that fits. A longer cache never takes more memory from experts than it leaves to them.
       0: room for one context only. */
    int64_t fit_requests;
    /* A chat template in place of all those of the checkpoint: the text of a Jinja template in UTF-8, which
       is copied, or NULL. It is the template "default". The output parser reads the markup of the model as
       ever. INVALID: the text has no "{{" and no "{%", as the name of a template or of a file. UNSUPPORTED,
       with the line: the template cannot be parsed. */
    const char* chat_template;
    /* Ranks that share the layers, one for each of `devices` (without `devices`, `backend` is one rank), and
       for those of every process that a launcher of MPI programs has started. All processes open the model
       with the same arguments; those other than process 0 then call minim_model_follow. 0 or 1: layers are
       not shared.
       tensor_parallel: ranks that share heads and experts; -1: all. Divides the KV heads.
       expert_parallel: groups of ranks that have whole experts, or without tensor_parallel ranks that share
       experts alone, with the results of one rank on the CPU; -1: one for each rank.
       pipeline_parallel: processes that have layers each.
       With `devices` "auto", each process takes as many devices as it has ranks.
       INVALID: numbers that divide nothing, or of other ranks than there are; options that place experts or
       shares of layers, with ranks. UNSUPPORTED: processes without the plug-in for MPI. */
    int32_t tensor_parallel;
    int32_t expert_parallel;
    int32_t pipeline_parallel;
    /* PEER_LOST if a rank does not answer within a step for so long; 0: 30 s. The end of a process is noticed
       at once. */
    int32_t rank_timeout_ms;
} minim_model_params;
#define MINIM_MODEL_PARAMS_INIT                                                                             \
    {                                                                                                       \
        sizeof(minim_model_params), 0, NULL, 0, 0, NULL, NULL, NULL, NULL, 0, 0, 0, NULL, 0, NULL, 0, 0, 0, \
            0, 0, 0, NULL, 0, 0, 0, 0, 0, NULL, 0, NULL, 0, 0, 0, 0                                         \
    }

/* Computes this process's share of the model until process 0 closes it. For processes other than 0 (`process`
 * of minim_model_info), which have no sessions or engines of their own. Errors: INVALID (process 0),
 * PEER_LOST, and those of a rank, which it names; the model can then only be closed. */
MINIM_API MINIM_MUST_CHECK minim_status minim_model_follow(minim_model* model, minim_error* err);

/* Returns PEER_LOST, with its name, if a rank is lost: every call that computes then fails with the same
 * error. Else OK. Takes no time; any thread. */
MINIM_API MINIM_MUST_CHECK minim_status minim_model_check(const minim_model* model, minim_error* err);

/* Loads a model by an open descriptor, as for minim_checkpoint_open_fd. Errors: those of both. */
MINIM_API MINIM_MUST_CHECK minim_status minim_model_open_fd(minim_runtime* runtime, int32_t descriptor,
                                                            const minim_model_params* params,
                                                            minim_cancel* cancel, minim_model** out,
                                                            minim_error* err);
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
    int64_t n_vocab;         /* logits of a row: rows of the embedding, padding included */
    int64_t n_context_train; /* the longest context that the model was trained for, in tokens */
    int64_t n_parameters;    /* without scales, zero points and unused tensors */
    uint64_t weight_bytes;
    uint64_t kv_token_bytes_f16; /* KV cache of one token, in F16 */
    double rope_theta;
    const char* name;    /* from the checkpoint, or ""; valid as long as the model */
    const char* backend; /* of the first layers: "cpu", "reference" or a device; valid as long as the model */
    /* "cuda:0 (layers 0-30), cuda:1 (layers 31-61), cpu (experts of layers 0-9, 31)"; valid as long as the
       model */
    const char* placement;
    int32_t process;     /* number of this process; 0 has the sessions and engines, the others follow it */
    int32_t n_processes; /* that share the model; 1: only this one */
    int32_t n_ranks;     /* that share the model, in all processes; 1: none do */
    int32_t reserved;
} minim_model_info;
#define MINIM_MODEL_INFO_INIT \
    { sizeof(minim_model_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, 0, 0, 0, 0 }

/* Fills the fields that fit into out->size bytes. */
MINIM_API MINIM_MUST_CHECK minim_status minim_model_get_info(const minim_model* model, minim_model_info* out,
                                                             minim_error* err);

/*
 * The memory that a model, its sessions and its engines use on a device at the time of the call. Memory of
 * the driver itself shows only in `free_bytes`.
 */
typedef struct minim_device_memory {
    uint32_t size;
    int32_t first_layer;
    int32_t n_layer;
    /* 1: the weights are pages of the files, which the system may drop and read again. */
    int32_t weights_mapped;
    uint64_t weight_bytes;
    uint64_t expert_bytes;   /* the part of weight_bytes that is experts */
    uint64_t kv_bytes;       /* KV cache */
    uint64_t work_bytes;     /* activations and work space of sessions and engines */
    uint64_t free_bytes;     /* still available; UINT64_MAX if unknown */
    const char* name;        /* as in `placement`; valid as long as the model */
    uint64_t kept_bytes;     /* the part of free_bytes that is kept for later sessions of this model */
    uint64_t budget_bytes;   /* limit of allocations; 0: none */
    int64_t n_expert_layers; /* layers whose experts it has, including layers of other devices */
    /* Bytes received from and sent to the other devices for each token of a step: the residual stream, and
       the routing of offloaded experts. */
    uint64_t token_in_bytes;
    uint64_t token_out_bytes;
    uint64_t locked_bytes; /* of weights and KV cache in host memory */
} minim_device_memory;
#define MINIM_DEVICE_MEMORY_INIT \
    { sizeof(minim_device_memory), 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0, 0, 0, 0, 0, 0 }

/* Return the memory of each device, in the order of the layers; devices that have only experts of other
 * devices' layers (n_layer is 0) come last. Any thread. Errors: INVALID (no such index). */
MINIM_API size_t minim_model_device_count(const minim_model* model); /* 0 for NULL */
MINIM_API MINIM_MUST_CHECK minim_status minim_model_device_memory(const minim_model* model, size_t index,
                                                                  minim_device_memory* out, minim_error* err);

/* The devices of a layer, as indices for minim_model_device_memory. */
typedef struct minim_layer_devices {
    uint32_t size;
    int32_t device;  /* of attention, norms, router and KV cache */
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
    int64_t n_misses;     /* experts of tokens that the CPU computed */
    int64_t n_moves;      /* experts that took another's place */
    uint64_t bytes;       /* of the device's memory */
    uint64_t moved_bytes; /* copied to the device by moves */
} minim_expert_cache;
#define MINIM_EXPERT_CACHE_INIT \
    { sizeof(minim_expert_cache), 0, 0, 0, 0, 0, 0, 0 }

/* `index` as for minim_model_device_memory. Any thread. Errors: INVALID (no such index). */
MINIM_API MINIM_MUST_CHECK minim_status minim_model_expert_cache(const minim_model* model, size_t index,
                                                                 minim_expert_cache* out, minim_error* err);

/* Writes how often each expert was used recently, for `expert_profile`. An older file of that name is
 * replaced once the new one is whole. Any thread. Errors: INVALID (no device has a cache), NOT_FOUND (no
 * such folder), IO. */
MINIM_API MINIM_MUST_CHECK minim_status minim_model_save_expert_profile(const minim_model* model,
                                                                        const char* path, minim_error* err);

/*
 * The weights in host memory on a NUMA node, as the system reports them at the time of the call for a sample
 * of a few thousand pages. Pages of mapped files that are not in memory are left out.
 */
typedef struct minim_node_memory {
    uint32_t size;
    int32_t node; /* the system's number */
    /* Threads of the library on the node, with the calling thread counted to the first node; 0: not bound. */
    int32_t n_threads;
    /* Threads on the node that work on steps of one token. */
    int32_t n_threads_decode;
    uint64_t wanted_bytes; /* planned for the node; 0: anywhere */
    uint64_t weight_bytes; /* on the node */
} minim_node_memory;
#define MINIM_NODE_MEMORY_INIT \
    { sizeof(minim_node_memory), 0, 0, 0, 0, 0 }

/* Writes one entry for each node that has cores for this process or weights of this model, at most
 * `capacity` entries; each must have its size set. *count, the number of nodes, is always written. `out`
 * may be NULL if capacity is 0. Any thread. Errors: UNSUPPORTED (the system does not report it). */
MINIM_API MINIM_MUST_CHECK minim_status minim_model_nodes(const minim_model* model, minim_node_memory* out,
                                                          size_t capacity, size_t* count, minim_error* err);

/* Returns the headers that the model was loaded from; release them with minim_checkpoint_close. */
MINIM_API MINIM_MUST_CHECK minim_status minim_model_checkpoint(const minim_model* model,
                                                               minim_checkpoint** out, minim_error* err);

/* ----------------------------------------------------------------------------------------------- check */

typedef struct minim_check_params {
    uint32_t size;
    uint32_t flags;     /* none defined: 0 */
    int32_t quick;      /* 1: no stage that reads all weights or computes; of the hashes 16 MiB of tensors */
    int32_t wants_sums; /* 1: the report has `sums`: the SHA-256 of each file, as sha256sum writes it */
    int32_t wants_answers; /* 1: the report has `answers`, for another machine or file to be compared with */
    int32_t machine;       /* 1: also this machine: kernels, devices and storage with the model's weights */
    const char* sums;      /* text as sha256sum writes it, which the files must agree with; NULL: none */
    const char*
        answers; /* text of `answers` of another report, which the model must agree with; NULL: none */
    const char* reference; /* path of a checkpoint of the same model, in other formats or not; NULL: none */
    const minim_model_params* model; /* how the model is opened for what is computed; NULL: by default */
    minim_progress_fn progress;      /* of each stage that reads weights, from 0 on; may be NULL */
    void* progress_user_data;
} minim_check_params;
#define MINIM_CHECK_PARAMS_INIT \
    { sizeof(minim_check_params), 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL }

/*
 * Checks whether a checkpoint is whole, is a model of the family, and is computed right on this machine. `params`
 * and `cancel` may be NULL. Stages, each if those before it found what it needs: headers, configuration,
 * vocabulary, hashes (if the file has minim.tensor_xxh3), sums (if given), weights (every number), reference (if
 * given), probe (a built-in text of 300 tokens on the devices of params->model),
 * machine (if wanted), answers (if given).
 *
 * Writes a JSON object, the report:
 *   faults    a list: class (header, config, tokenizer, hash, nan, range, probe, machine, reference or answers), tensor (or
 *             the file or key at fault), detail (what is, and what should be)
 *   warnings  a list of the same
 *   stages    a list of the names of those that ran
 *   sums, answers  texts, if wanted
 * Faults are no error of the call. Errors: NOT_FOUND and IO (of files that are not there or cannot be read),
 * INVALID, OUT_OF_MEMORY, CANCELLED.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_check(minim_runtime* runtime, const char* path,
                                                    const minim_check_params* params, minim_cancel* cancel,
                                                    minim_text** report, minim_error* err);

/* ---------------------------------------------------------------------------------------------- tokens */

/* Tokenises `text` of `length` bytes (SIZE_MAX: zero-terminated). Bytes that are not UTF-8 become single-byte
 * tokens. */
MINIM_API MINIM_MUST_CHECK minim_status minim_tokenize(const minim_model* model, const char* text,
                                                       size_t length, int32_t specials, minim_tokens** out,
                                                       minim_error* err);

/* Returns the text of `count` ids as valid UTF-8, with U+FFFD for ill-formed parts. skip_special: 1 leaves
 * control tokens out. Errors: INVALID (an id that is not a token of the model). */
MINIM_API MINIM_MUST_CHECK minim_status minim_detokenize(const minim_model* model, const int32_t* ids,
                                                         size_t count, int32_t skip_special, minim_text** out,
                                                         minim_error* err);

/* Attributes of a token, as bits. */
enum minim_token_attribute {
    MINIM_TOKEN_CONTROL = 1,      /* added, special: left out of text */
    MINIM_TOKEN_USER_DEFINED = 2, /* added, kept in text */
    MINIM_TOKEN_UNUSED = 4,       /* a padding row without text; never sampled */
    MINIM_TOKEN_END = 8,          /* ends generation */
    MINIM_TOKEN_BOS = 16
};

/* Returns MINIM_TOKEN_* bits, or -1 if `id` is not a token of the model. */
MINIM_API int32_t minim_token_attributes(const minim_model* model, int32_t id);

/* Returns the token's raw bytes, which may be part of a UTF-8 sequence. */
MINIM_API MINIM_MUST_CHECK minim_status minim_token_text(const minim_model* model, int32_t id,
                                                         minim_text** out, minim_error* err);

/* Detokenises a stream. Each push returns the complete UTF-8 sequences so far, valid until the next call
 * on the decoder; at most 3 bytes are held back. minim_decoder_finish returns U+FFFD for an incomplete
 * sequence and resets the decoder. */
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
 * Renders the prompt for a conversation with the checkpoint's own chat template (Jinja). The result is that
 * of transformers. The template has access only to these variables, and its work is bounded.
 *   messages  JSON array of objects: role, content, reasoning_content, tool_calls ...
 *   tools     JSON array in the OpenAI form, or NULL
 *   kwargs    JSON object of template variables: add_generation_prompt (default true), model_identity ..., or
 *             NULL. A variable that the template does not use gives a warning in the log.
 * The messages are normalised first: role "developer" in the first message becomes "system"; call arguments
 * may be a JSON string; "reasoning" is used if reasoning_content is missing; results of parallel calls are
 * sorted in the order of the calls. Errors: INVALID (bad JSON; an exception of the template, with its text,
 * as for a tool message without a call; a message that the template would leave out, with its place and
 * role), UNSUPPORTED (the checkpoint has no chat template, or the template uses a filter, test or statement
 * that is not supported, with its name and line; for M3 a picture or film in a message, with its place).
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_chat_render(const minim_model* model, const char* messages,
                                                          const char* tools, const char* kwargs,
                                                          minim_text** out, minim_error* err);

enum minim_null_content {
    MINIM_NULL_CONTENT_TEMPLATE = 0, /* as the template prints it: "None" */
    MINIM_NULL_CONTENT_EMPTY = 1     /* as an empty text, which most clients intend */
};

typedef struct minim_chat_params {
    uint32_t size;
    uint32_t flags;       /* none is defined: 0 */
    int32_t null_content; /* MINIM_NULL_CONTENT_*: for messages without content, or with null content */
    int32_t reserved;     /* 0 */
    const char* tools;    /* as for minim_chat_render */
    const char* kwargs;   /* as for minim_chat_render */
    /* One of a checkpoint that has several; NULL: "tool_use" if there are tools and it exists, else
       "default" */
    const char* template_name;
    /* 1: a think block that the prompt opens at its end is closed, so that the answer begins with its
       content. M2 was not trained for it, and it needs no variable of the template. For M3 the template's
       variable `thinking_mode` becomes "disabled", unless `kwargs` has it. */
    int32_t thinking_off;
    /* 1: the answer continues the last message, which must be the assistant's: the prompt ends where the
       text of that message does, and add_generation_prompt is false. */
    int32_t continue_final_message;
} minim_chat_params;
/* clang-format off */
#define MINIM_CHAT_PARAMS_INIT { sizeof(minim_chat_params), 0, 0, 0, NULL, NULL, NULL, 0, 0 }
/* clang-format on */

/* The same as minim_chat_render and minim_chat_tokenize, with more options; `params` may be NULL. Errors:
 * also NOT_FOUND (the checkpoint has no template of that name). */
MINIM_API MINIM_MUST_CHECK minim_status minim_chat_render_with(const minim_model* model, const char* messages,
                                                               const minim_chat_params* params,
                                                               minim_text** out, minim_error* err);
MINIM_API MINIM_MUST_CHECK minim_status minim_chat_tokenize_with(const minim_model* model,
                                                                 const char* messages,
                                                                 const minim_chat_params* params,
                                                                 int32_t specials, minim_tokens** out,
                                                                 minim_error* err);

/* Sets *opens to 1 if a prompt ends in an open think block ("<think>", or "<mm:think>" for M3, and white
 * space), so that the answer begins with reasoning, else to 0: for minim_output_parser_params and the
 * starts_after of a constraint. */
MINIM_API MINIM_MUST_CHECK minim_status minim_chat_opens_thinking(const minim_model* model,
                                                                  const int32_t* prompt, size_t count,
                                                                  int32_t* opens, minim_error* err);

/* Sets *may_reason to 1 if a prompt leaves it to the model whether the answer begins with reasoning, else to
 * 0: for the may_reason of a constraint. Prompts of MiniMax-M3 in adaptive mode do: they neither open nor end
 * a think block. The prompt must end where an answer begins, not in one that is continued. */
MINIM_API MINIM_MUST_CHECK minim_status minim_chat_may_reason(const minim_model* model, const int32_t* prompt,
                                                              size_t count, int32_t* may_reason,
                                                              minim_error* err);

/* The chat formats: how a model marks reasoning and calls of tools in its output. */
enum minim_chat_format {
    MINIM_CHAT_FORMAT_M2 = 0, /* of MiniMax-M2: <think>, <minimax:tool_call> */
    MINIM_CHAT_FORMAT_M3 = 1  /* of MiniMax-M3: <mm:think>, "]<]minimax[>[" before each tag of a call */
};

/* The markup of a model's chat format. The texts are zero-terminated and always valid. */
typedef struct minim_chat_markup {
    uint32_t size;
    int32_t format;          /* MINIM_CHAT_FORMAT_*: for minim_output_parser_params */
    const char* think_begin; /* the token that begins reasoning: "<think>" or "<mm:think>" */
    const char* think_end;   /* the token that ends it: for the starts_after of a constraint */
    const char* call_begin;  /* the token that calls begin with: "<minimax:tool_call>" or "]<]minimax[>[" */
} minim_chat_markup;
#define MINIM_CHAT_MARKUP_INIT \
    { sizeof(minim_chat_markup), 0, NULL, NULL, NULL }

/* Returns the markup of a model. A model has the format of M3 if "]<]minimax[>[" is a token of it. */
MINIM_API MINIM_MUST_CHECK minim_status minim_chat_get_markup(const minim_model* model,
                                                              minim_chat_markup* out, minim_error* err);

/* ---------------------------------------------------------------------------------------- model output */

#define MINIM_THINK_END "</think>" /* the token that ends reasoning in the format of M2 */

/* The form in which reasoning (the text up to "</think>" or "</mm:think>") is returned. */
enum minim_reasoning {
    MINIM_REASONING_SPLIT = 0,        /* separate from the content, without the tags */
    MINIM_REASONING_APPEND_THINK = 1, /* in the content, with the tags: the opening one is put before it */
    MINIM_REASONING_NONE = 2          /* in the content, as the model wrote it */
};

typedef struct minim_output_parser_params {
    uint32_t size;
    uint32_t flags;    /* none is defined: 0 */
    int32_t reasoning; /* MINIM_REASONING_* */
    /* 1: the prompt does not end in an open think block ("<think>" and a newline). */
    int32_t starts_in_content;
    const char* tools; /* JSON array as for minim_chat_render; NULL, "null" or "[]": no call is recognised */
    int32_t format;    /* MINIM_CHAT_FORMAT_*: that of the model, from minim_chat_get_markup */
    int32_t reserved;  /* 0 */
} minim_output_parser_params;
/* clang-format off */
#define MINIM_OUTPUT_PARSER_PARAMS_INIT { sizeof(minim_output_parser_params), 0, 0, 0, NULL, 0, 0 }
/* clang-format on */

enum minim_delta { MINIM_DELTA_REASONING = 1, MINIM_DELTA_CONTENT = 2, MINIM_DELTA_TOOL_CALL = 3 };

/* A piece of parsed output. The texts of all pieces of one kind (and index) form the whole text. */
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
 * Parses model output while it is generated: reasoning, content, and tool calls with arguments as JSON,
 * converted by the schemas of the tools. Malformed output is not an error: anything that is not a tool call
 * is text. Deltas are valid UTF-8 (U+FFFD for ill-formed bytes), and form the same texts however the output
 * is cut. The parser holds back only text that may become a tag, trailing whitespace, and arguments of other
 * types than string.
 *
 *     minim_output_parser_feed(parser, token.text, token.length, &n, &err);
 *     for (size_t i = 0; i < n; ++i) {
 *         minim_output_parser_delta(parser, i, &delta, &err);
 *         ... send delta.text ...
 *     }
 *
 * Errors: INVALID (tools are not a JSON array of tools with names). `params` is copied and may be NULL.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_output_parser_create(const minim_output_parser_params* params,
                                                                   minim_output_parser** out,
                                                                   minim_error* err);
/* Adds the next `length` bytes of output (SIZE_MAX: zero-terminated), without the end token. Sets
 * `n_deltas` to the number of new deltas. Errors: INVALID (called after minim_output_parser_finish). */
MINIM_API MINIM_MUST_CHECK minim_status minim_output_parser_feed(minim_output_parser* parser,
                                                                 const char* text, size_t length,
                                                                 size_t* n_deltas, minim_error* err);
/*
 * Ends the output; call it once. `finish`: how generation ended: MINIM_FINISH_END, _STOP_TEXT (the output is
 * complete) or _LENGTH, _CONTEXT_FULL, _STOPPED, _TIMEOUT (it was cut). Sets `n_deltas` as feed does. Sets
 * `finish_reason`, which may be NULL, to MINIM_FINISH_TOOL_CALLS if there was a call, else to `finish`. A
 * call that was cut does not count: `finish_reason` is then `finish`, and the call of the last tool-call
 * deltas must not be executed.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_output_parser_finish(minim_output_parser* parser,
                                                                   int32_t finish, size_t* n_deltas,
                                                                   int32_t* finish_reason, minim_error* err);
/* Returns delta `index` (from 0) of the last feed or finish. Its texts are valid until the next feed,
 * finish or free. Errors: INVALID (no such delta). */
MINIM_API MINIM_MUST_CHECK minim_status minim_output_parser_delta(minim_output_parser* parser, size_t index,
                                                                  minim_output_delta* out, minim_error* err);
MINIM_API void minim_output_parser_free(minim_output_parser* parser);

/* A complete parsed output, without a call that was cut. Texts are zero-terminated and valid as long as the
 * minim_output. */
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

/* Parses a complete output of `length` bytes (SIZE_MAX: zero-terminated), as the calls above do. */
MINIM_API MINIM_MUST_CHECK minim_status minim_output_parse(const minim_output_parser_params* params,
                                                           const char* text, size_t length, int32_t finish,
                                                           minim_output** out, minim_error* err);
MINIM_API MINIM_MUST_CHECK minim_status minim_output_get_info(const minim_output* output,
                                                              minim_output_info* out, minim_error* err);
/* Returns tool call `index` (from 0). Errors: INVALID (index is not below n_tool_calls). */
MINIM_API MINIM_MUST_CHECK minim_status minim_output_get_tool_call(const minim_output* output, size_t index,
                                                                   minim_tool_call* out, minim_error* err);
MINIM_API void minim_output_free(minim_output* output);

/* -------------------------------------------------------------------------------------------- sessions */

/* Returns the number of tokens in the session: evaluated ones and the last generated one. During a
 * generation it includes tokens that are not reported yet, because their text may still change. */
MINIM_API size_t minim_session_token_count(const minim_session* session);
/* Copies the ids of these tokens, in order; release *out with minim_tokens_free. */
MINIM_API MINIM_MUST_CHECK minim_status minim_session_get_tokens(minim_session* session, minim_tokens** out,
                                                                 minim_error* err);
MINIM_API size_t minim_session_context_size(const minim_session* session);
MINIM_API uint64_t minim_session_kv_bytes(const minim_session* session);

/* Removes every token from position `count` on. Errors: INVALID (the session has fewer tokens). */
MINIM_API MINIM_MUST_CHECK minim_status minim_session_truncate(minim_session* session, size_t count,
                                                               minim_error* err);

/*
 * Creates a second session with the same tokens, which shares the KV cache of whole pages of 64 tokens with
 * the first. Both go on independently, on different threads if wanted. A running generation stays with the
 * first session; its tokens up to the last reported one are in both. Memory for the rest of the second
 * session's context is allocated here (OUT_OF_MEMORY). A session truncated into shared pages allocates memory
 * at the next evaluation.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_session_fork(minim_session* session, minim_session** out,
                                                           minim_error* err);

/*
 * Writes the session to a file: tokens, KV cache, and the logits after the last token. A restored session
 * goes on with the same bits. Of a running generation, the tokens up to the last reported one are written.
 * The file is little larger than the KV cache. It gets its name when it is complete and on the disk: after an
 * error, or if the process dies, an old file of that name is unchanged. Only the owner can read and write a
 * new file; one that replaces another keeps the permissions of the old one. If `path` is a symbolic link, its
 * target is replaced. Errors: NOT_FOUND (the folder), IO (also if the disk is full), CANCELLED.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_session_save(minim_session* session, const char* path,
                                                           minim_cancel* cancel, minim_error* err);

/*
 * Restores a session that this or another process saved with the same model. `params` may be NULL; a
 * max_context of 0 and formats of AUTO are those of the saved session. Errors: NOT_FOUND, IO, FORMAT with a
 * reason (not a state file, truncated, altered, saved by another model), INVALID (the tokens do not fit into
 * max_context, other formats), OUT_OF_MEMORY, CANCELLED.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_session_restore(minim_model* model, const char* path,
                                                              const minim_session_params* params,
                                                              minim_cancel* cancel, minim_session** out,
                                                              minim_error* err);

/*
 * Saves the session to memory, as the bytes that minim_session_save writes to a file.
 *   data, capacity  where the session is written, and the bytes that fit there; NULL and 0: only *size is set
 *   size            receives the bytes of the session; unchanged after an error
 * Errors: INVALID (a capacity that is too small: `requested` of the error is the size), CANCELLED. After an
 * error, the contents of `data` are unspecified.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_session_save_memory(minim_session* session, void* data,
                                                                  size_t capacity, size_t* size,
                                                                  minim_cancel* cancel, minim_error* err);
/* Restores a session from the `size` bytes of a saved one, which are not needed after the call. Errors:
 * those of minim_session_restore without NOT_FOUND and IO. */
MINIM_API MINIM_MUST_CHECK minim_status minim_session_restore_memory(minim_model* model, const void* data,
                                                                     size_t size,
                                                                     const minim_session_params* params,
                                                                     minim_cancel* cancel,
                                                                     minim_session** out, minim_error* err);

/*
 * Saves the session to a descriptor of the caller, which stays open: a file, a pipe or a socket, also a
 * non-blocking one. It is written from the position of the descriptor on, so several sessions may follow each
 * other in a file. The caller flushes the file to the disk, and removes what was written before an error. A
 * closed pipe is an error (IO, EPIPE) without the signal. Errors: INVALID (a negative descriptor), IO,
 * CANCELLED.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_session_save_fd(minim_session* session, int32_t descriptor,
                                                              minim_cancel* cancel, minim_error* err);
/* Restores a session from the position of a descriptor on, and moves the position behind it; after an
 * error, it is unchanged. The descriptor stays open. It must be one of a file: read what comes from a pipe
 * or socket to memory, for minim_session_restore_memory. Errors: those of minim_session_restore without
 * NOT_FOUND, INVALID (a negative descriptor). */
MINIM_API MINIM_MUST_CHECK minim_status minim_session_restore_fd(minim_model* model, int32_t descriptor,
                                                                 const minim_session_params* params,
                                                                 minim_cancel* cancel, minim_session** out,
                                                                 minim_error* err);

/*
 * Appends `count` tokens and evaluates them.
 *   logits    row-major float [rows, n_vocab], or NULL; rows = count if all_logits is 1, else 1 (of the last
 *             token). The model's own logits, padding rows included; unspecified after an error
 *   capacity  floats that fit into `logits`
 * Errors: INVALID (no tokens, an id out of range, a capacity that is too small), CONTEXT_FULL (nothing is
 * evaluated), CANCELLED, FORMAT (the model's weights are not finite); after any error the session is
 * unchanged.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_session_eval(minim_session* session, const int32_t* ids,
                                                           size_t count, int32_t all_logits, float* logits,
                                                           size_t capacity, minim_cancel* cancel,
                                                           minim_error* err);

/* ------------------------------------------------------------------------------------ importance data */

/*
 * Importance data: for each weight matrix the sum of squares of each of its inputs, over the rows that
 * reached it, and the number of these rows. Quantisers weigh errors with it. A handle collects from the
 * sessions that it is attached to, or has the data of files, or both. Any thread.
 */
typedef struct minim_importance minim_importance;

typedef struct minim_importance_params {
    uint32_t size;
    uint32_t flags;         /* none defined: 0 */
    const char* dataset;    /* name of the text, which files keep; NULL: none */
    int32_t chunk_size;     /* tokens of a chunk, in which files count the text; 0: 512 */
    int32_t process_output; /* 1: also collect for the output head, output.weight; 0: do not */
    /* Any number that stands for the text. GGUF files keep it, so that a program that goes on with a file
       can check that the text is the same; 0: none. */
    uint64_t text_hash;
} minim_importance_params;
#define MINIM_IMPORTANCE_PARAMS_INIT \
    { sizeof(minim_importance_params), 0, NULL, 0, 0, 0 }

/* Makes a handle that collects for a model. `params` may be NULL. Takes 8 bytes for each input of each
 * matrix, 585 MB for MiniMax-M2. Errors: INVALID, OUT_OF_MEMORY, UNSUPPORTED (a device that cannot show its
 * inputs, several ranks, a cache of experts; always named). */
MINIM_API MINIM_MUST_CHECK minim_status minim_importance_create(minim_model* model,
                                                                const minim_importance_params* params,
                                                                minim_importance** out, minim_error* err);
MINIM_API void minim_importance_free(minim_importance* importance);

/* Collects from all that the session evaluates from now on, also after the handle is released; NULL: no
 * more. Several sessions may be attached. A call on the session that fails may have added a part of its
 * tokens, and fails with FORMAT, naming layer, expert and chunk, if an input is not finite. What the session
 * computes does not change; forks of it are not attached. Errors: INVALID (another model's handle, or one
 * that minim_importance_load made), UNSUPPORTED. */
MINIM_API MINIM_MUST_CHECK minim_status minim_importance_attach(const minim_importance* importance,
                                                                minim_session* session, minim_error* err);

/* Adds the sums and counts of `other`, which stays as it is, to `importance`. Errors: INVALID (an entry of
 * both has different sizes, or comes from an older file that was loaded without chunk_size; named). */
MINIM_API MINIM_MUST_CHECK minim_status minim_importance_merge(minim_importance* importance,
                                                               const minim_importance* other,
                                                               minim_error* err);

enum minim_importance_format {
    MINIM_IMPORTANCE_AUTO = 0, /* by the name: DAT if it ends in .dat */
    MINIM_IMPORTANCE_GGUF = 1, /* sums and counts, as llama.cpp writes them today */
    MINIM_IMPORTANCE_DAT = 2   /* the older form: mean squares alone */
};

/* Writes a file. An older file of that name is replaced once the new one is whole. Errors: INVALID (a form
 * that cannot hold an entry; named), NOT_FOUND (no such folder), IO. */
MINIM_API MINIM_MUST_CHECK minim_status minim_importance_save(const minim_importance* importance,
                                                              const char* path, int32_t format,
                                                              minim_error* err);

/* Reads a file of either form. chunk_size: tokens of a chunk of an older file, which has no counts; 0: not
 * known, so that it cannot be merged or saved as GGUF. Errors: NOT_FOUND, IO, FORMAT (with the entry),
 * INVALID, OUT_OF_MEMORY. */
MINIM_API MINIM_MUST_CHECK minim_status minim_importance_load(const char* path, int32_t chunk_size,
                                                              minim_importance** out, minim_error* err);

/* Returns the data in short, as a JSON object: `format` (gguf or dat), `datasets`, `chunks`, `chunk_size`,
 * `text_hash` and `model_hash` (16 hexadecimal digits), and `tensors`, each with `name`, `columns`,
 * `matrices`, `without_data` (matrices that no row reached), `mean` and `max` (of the mean squares of its
 * inputs), `share_90` (of the inputs, the largest first, that have 90 % of the sum) and `rows` (`least`,
 * `median`, `most` of a matrix, and how many matrices have `below_16`). What is not known is null. */
MINIM_API MINIM_MUST_CHECK minim_status minim_importance_describe(const minim_importance* importance,
                                                                  minim_text** out, minim_error* err);

/* ----------------------------------------------------------------------------------------- constraints */

/*
 * Structured output: tokens that cannot lead to a valid answer are masked at each step, and the answer ends
 * when nothing else can follow (MINIM_FINISH_END, no stop token). If max_tokens or the context ends it
 * earlier, it is the start of a valid answer. A constraint is compiled once and can be used for any number of
 * answers of its model, also at the same time.
 */
typedef struct minim_constraint minim_constraint; /* immutable, any thread */

typedef struct minim_constraint_params {
    uint32_t size;
    uint32_t flags; /* none defined: 0 */
    /* An added token, such as think_end of minim_chat_markup: anything is allowed up to it, then two
       newlines; NULL: the constraint applies from the first token. */
    const char* starts_after;
    /* Only for minim_constraint_from_tools. 1: the answer may also be any text without a call. From the token
       call_begin of minim_chat_markup on (after starts_after, if given) only calls that fit the tools are
       allowed, and the answer ends after them. 0: the answer is a call. */
    int32_t calls_are_optional;
    /* Only for minim_constraint_from_tools. 1: keywords of a tool's schema that cannot be enforced are
       ignored, each with a warning in the log that names the tool, the place and the keyword. 0: they are an
       error. */
    int32_t relax;
    /* 1: the answer may begin with reasoning: with think_begin of minim_chat_markup, then anything up to
       think_end; or with think_end alone. The constraint applies after that, and else from the first token.
       For prompts that leave it to the model whether it reasons (minim_chat_may_reason). starts_after must
       then be NULL, and calls_are_optional 0. */
    int32_t may_reason;
    int32_t reserved; /* 0 */
} minim_constraint_params;
#define MINIM_CONSTRAINT_PARAMS_INIT \
    { sizeof(minim_constraint_params), 0, NULL, 0, 0, 0, 0 }

/*
 * Compiles a JSON Schema (draft 2020-12 and the spellings of older ones); `{"type": "object"}` allows any
 * object. Every keyword that restricts a value is enforced, or refused with its place in the schema:
 *   members        come in the order of the schema; others only if additionalProperties, patternProperties,
 *                  unevaluatedProperties or minProperties requires them; the same for items beyond
 *                  prefixItems
 *   numbers        have any number of digits; with bounds they have an exponent only after one digit and a
 *                  point ("1.5e-7"), with multipleOf none
 *   enum, const    are compared as values: 1.0 equals 1, and the order of members does not matter
 *   pattern        is a regular expression (see below) that must occur in the text; format is enforced for
 *                  date, time, date-time, duration, email, hostname, ipv4, ipv6, uri, uri-reference, iri,
 *                  iri-reference, uri-template, json-pointer, relative-json-pointer and uuid, and an
 *                  annotation otherwise; both can be combined with lengths
 *   $ref           refers to the schema itself, by pointer, $id or $anchor
 *   oneOf          is exact, or treated as anyOf if the overlap of its members cannot be computed
 *   uniqueItems    is enforced for up to 10 listed values, and for arrays of at most one item
 * Refused: $dynamicRef with several targets; the negation (`not`, `if`) of additionalProperties,
 * patternProperties, propertyNames, uniqueItems or unevaluated keywords; multipleOf with more than 5 digits.
 * A keyword whose value is null counts as absent. Errors: INVALID (not JSON, not a schema, nothing fits it),
 * UNSUPPORTED (a keyword that cannot be enforced, or a limit on the size of the automaton); both name the
 * place in the schema.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_constraint_from_schema(minim_model* model, const char* schema,
                                                                     const minim_constraint_params* params,
                                                                     minim_constraint** out,
                                                                     minim_error* err);
/*
 * Compiles a regular expression that the whole answer must match, in the syntax of JavaScript: with
 * look-around, \b, \p{} for general categories, and also (?i), (?m), (?s), (?P<name>), \A, \Z and \z.
 * `pattern` is zero-terminated. Errors: INVALID, UNSUPPORTED (back references, a lookahead within a
 * lookbehind, other groups and properties), both with the position in bytes; UNSUPPORTED also for an
 * expression whose automaton would be too large.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_constraint_from_regex(minim_model* model, const char* pattern,
                                                                    const minim_constraint_params* params,
                                                                    minim_constraint** out, minim_error* err);
/* The same for a pattern of `length` bytes, which may contain zeros; SIZE_MAX: up to the first zero. */
MINIM_API MINIM_MUST_CHECK minim_status minim_constraint_from_regex_n(minim_model* model, const char* pattern,
                                                                      size_t length,
                                                                      const minim_constraint_params* params,
                                                                      minim_constraint** out,
                                                                      minim_error* err);
/*
 * Compiles a context-free grammar in GBNF, the notation of llama.cpp, which is also the EBNF of xgrammar and
 * SGLang:
 *     root  ::= "[" items? "]"            # the whole answer
 *     items ::= item | items "," item     # rules may refer to themselves in any place
 *     item  ::= [0-9]{1,3} | root
 * Parts are literals in double quotes, classes ([a-z], [^,;]), '.' for any character, names of rules, groups
 * in parentheses, and added tokens of the model (<think> or <[id]>), each with ?, *, +, {m}, {m,} or {m,n};
 * '|' divides alternatives. Escapes are those of C, and a backslash with xHH, uHHHH or UHHHHHHHH for a
 * character. `grammar` is zero-terminated UTF-8. Errors: INVALID (not such a grammar, a rule that is missing
 * or defined twice, nothing fits it), UNSUPPORTED (a limit on the size of the grammar or its automaton); both
 * name the line or the rule.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_constraint_from_grammar(minim_model* model, const char* grammar,
                                                                      const minim_constraint_params* params,
                                                                      minim_constraint** out,
                                                                      minim_error* err);
/* The same for a grammar of `length` bytes; SIZE_MAX: up to the first zero. */
MINIM_API MINIM_MUST_CHECK minim_status minim_constraint_from_grammar_n(minim_model* model,
                                                                        const char* grammar, size_t length,
                                                                        const minim_constraint_params* params,
                                                                        minim_constraint** out,
                                                                        minim_error* err);
/* Makes a constraint that allows one of these texts, each up to its first zero. */
MINIM_API MINIM_MUST_CHECK minim_status minim_constraint_from_choices(
    minim_model* model, const char* const* choices, size_t count, const minim_constraint_params* params,
    minim_constraint** out, minim_error* err);
/* The same for texts of `lengths[i]` bytes, which may contain zeros; SIZE_MAX: up to the first zero. */
MINIM_API MINIM_MUST_CHECK minim_status minim_constraint_from_choices_n(
    minim_model* model, const char* const* choices, const size_t* lengths, size_t count,
    const minim_constraint_params* params, minim_constraint** out, minim_error* err);
/*
 * Makes a constraint that allows tool calls whose parameters fit the tools' schemas. `tools` is the JSON list
 * of a chat request: each tool has the schema of its parameters as `parameters`, `input_schema` or
 * `inputSchema`, or takes none; members that are null count as absent. Strings are any text without
 * "</parameter>"; for M3, without "]<]minimax[>[", and objects and arrays are elements. A schema with
 * `properties` allows only these parameters, unless it requires others. `name`: the only tool that may be
 * called, or NULL. `single`: 1 for exactly one call, 0 for one or several. Errors: as
 * minim_constraint_from_schema; UNSUPPORTED too if calls are optional and the model has no token
 * "<minimax:tool_call>".
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_constraint_from_tools(minim_model* model, const char* tools,
                                                                    const char* name, int32_t single,
                                                                    const minim_constraint_params* params,
                                                                    minim_constraint** out, minim_error* err);
/*
 * Sets `*matches` to 1 if the constraint allows the whole text, else to 0. A complete answer matches; the
 * start of one does not. Markup that the model writes as tokens is given as text: "<minimax:tool_call>". With
 * starts_after, the text includes that token and what precedes it.
 *   text, length  any bytes; SIZE_MAX: up to the first zero
 * Errors: INVALID (a NULL argument).
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_constraint_matches(const minim_constraint* constraint,
                                                                 const char* text, size_t length,
                                                                 int32_t* matches, minim_error* err);
MINIM_API void minim_constraint_free(minim_constraint* constraint);

/* -------------------------------------------------------------------------------------------- sampling */

/* Sets temperature, top_p, top_k, min_p, repetition_penalty and penalty_last_n to the values of
 * minim_checkpoint_recommended_sampling for the model's checkpoint, as read when the model was opened.
 * Later calls may change them. */
MINIM_API MINIM_MUST_CHECK minim_status minim_sampling_set_recommended(minim_sampling* sampling,
                                                                       const minim_model* model,
                                                                       minim_error* err);
/* Sets the texts that end a repetition for the options dry_*; the defaults are "\n", ":", "\"" and "*".
 * Text i has `lengths[i]` bytes (SIZE_MAX: up to the first zero; `lengths` may be NULL: all are
 * zero-terminated), of which the first 40 are used; at most 64 texts. count 0: nothing ends a repetition.
 * Errors: INVALID (an empty text). */
MINIM_API MINIM_MUST_CHECK minim_status minim_sampling_set_dry_breakers(minim_sampling* sampling,
                                                                        const char* const* texts,
                                                                        const size_t* lengths, size_t count,
                                                                        minim_error* err);
/* Adds a stop text: the answer ends before it. At most 16. */
MINIM_API MINIM_MUST_CHECK minim_status minim_sampling_add_stop(minim_sampling* sampling, const char* text,
                                                                size_t length, minim_error* err);
/* Adds a token that ends generation like the model's own end token. */
MINIM_API MINIM_MUST_CHECK minim_status minim_sampling_add_stop_token(minim_sampling* sampling, int32_t id,
                                                                      minim_error* err);
/* Adds `bias` to the token's logit before sampling; -INFINITY forbids the token. */
MINIM_API MINIM_MUST_CHECK minim_status minim_sampling_add_logit_bias(minim_sampling* sampling, int32_t id,
                                                                      float bias, minim_error* err);

/* Sets the constraint of the answer; NULL: none. Generation with another model than the constraint's fails
 * (INVALID). */
MINIM_API MINIM_MUST_CHECK minim_status minim_sampling_set_constraint(minim_sampling* sampling,
                                                                      const minim_constraint* constraint,
                                                                      minim_error* err);

enum minim_option_type { MINIM_OPTION_I64 = 1, MINIM_OPTION_F64 = 2 };

typedef struct minim_option_info {
    uint32_t size;
    int32_t type;            /* MINIM_OPTION_* */
    double minimum, maximum; /* inclusive */
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

enum minim_finish {
    MINIM_FINISH_NONE = 0, /* not finished */
    /* The model ended its turn, or generated a stop token (not reported); or the constraint is complete. */
    MINIM_FINISH_END = 1,
    MINIM_FINISH_STOP_TEXT = 2,
    MINIM_FINISH_LENGTH = 3, /* max_tokens */
    MINIM_FINISH_CONTEXT_FULL = 4,
    MINIM_FINISH_STOPPED = 5,    /* by the callback, or the request was cancelled */
    MINIM_FINISH_TIMEOUT = 6,    /* only for requests */
    MINIM_FINISH_TOOL_CALLS = 7, /* only for parsed output: the model calls tools */
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
    uint64_t n_reasoning; /* tokens generated as reasoning */
    float stop_logprob;   /* log-probability of stop_token; 0 unless the option logprobs is set */
    uint32_t reserved3;
    uint64_t n_drafted;         /* draft tokens that were checked: option draft_tokens */
    uint64_t n_drafts_accepted; /* those of them that became tokens of the text */
} minim_generate_result;
#define MINIM_GENERATE_RESULT_INIT \
    { sizeof(minim_generate_result), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/*
 * Generate with one token for each call: begin, then next until *has_token is 0. begin, eval, truncate and
 * minim_generate end a running generation, once their arguments are found valid. minim_generate_state and
 * minim_session_token_count may be called from any thread and from callbacks.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_generate_begin(minim_session* session,
                                                             const minim_sampling* sampling,
                                                             const int32_t* prompt, size_t count,
                                                             minim_cancel* cancel, minim_error* err);
MINIM_API MINIM_MUST_CHECK minim_status minim_generate_next(minim_session* session, minim_token* token,
                                                            int32_t* has_token, minim_cancel* cancel,
                                                            minim_error* err);
/* Returns the state of the current or last generation. Errors: INVALID (none was begun). */
MINIM_API MINIM_MUST_CHECK minim_status minim_generate_state(const minim_session* session,
                                                             minim_generate_result* result, minim_error* err);

/* --------------------------------------------------------------------------------------------- engines */

/*
 * Continuous batching: many requests at once, on the engine's own thread. Each step evaluates the next token
 * of every answer and chunks of prompts that are not read yet. Answers do not depend on batch composition; on
 * a GPU the last bits of logits may, unless the model was opened `deterministic`. Prompts that begin like an
 * earlier text share its KV cache. If memory runs short, the last request is preempted and goes on later with
 * the same text.
 */
typedef struct minim_engine minim_engine;   /* any thread */
typedef struct minim_request minim_request; /* any thread; minim_request_next one thread at a time */

typedef struct minim_engine_params {
    uint32_t size;
    uint32_t flags; /* none defined: 0 */
    /* Size of the KV cache in tokens, for all requests and the prefix cache together. 0: what fits in memory,
       from one context to n_requests of them, but no more than 131072 tokens if one context is not longer. */
    uint64_t kv_tokens;
    int32_t k_format; /* MINIM_KV_*; AUTO: F16 */
    int32_t v_format;
    int32_t n_requests; /* running at once, others wait; 0: 64 */
    int32_t n_batch;    /* tokens of a step, at least n_requests; 0: as a session's n_ubatch, or n_requests */
    int32_t n_prompt_rows;   /* limit of prompt tokens in a step while answers are running; 0: a quarter */
    int32_t forget_prefixes; /* 1: no prefix cache: the KV cache of ended requests is not kept */
    /* Limit of the tokens of one request, prompt and answer, at most kv_tokens. May exceed the context that
       the model was trained for, with a warning. 0: kv_tokens, or what fits in memory, at most the trained
       context. */
    uint64_t max_context;
    /* 1: n_requests is a wish: fewer run at once if the KV cache has less than a page for each. 0: that is an
       error, unless n_requests is 0 or kv_tokens is not. */
    int32_t fewer_requests;
    /* 1: computes a step of a prompt and one of an answer before the call returns, so that the first request
       does not pay for what devices and threads do once. Nothing of it stays in the prefix cache, in caches
       of experts, or in the counts of minim_engine_state. It reads the weights of one token. It is left out,
       with a line in the log, if layers are computed from files that are mapped, because it would read them
       from the disk. */
    int32_t warm_up;
    /* Limit in bytes of host memory for prompt states: pages of the prefix cache that must make room in the
       KV cache move there, the least recently used are dropped first, and they come back, with the same bits,
       when a request begins with their tokens. UINT64_MAX: as much as is free; 0: none, such pages are
       dropped. A sixteenth of the memory that is available when the engine is created, and what weights need
       that are mapped from files, stay free: if memory runs short, there are fewer prompt states, and nothing
       fails. On the CPU the KV cache itself is in host memory, and a larger kv_tokens does the same without
       copies. */
    uint64_t host_cache_bytes;
} minim_engine_params;
#define MINIM_ENGINE_PARAMS_INIT \
    { sizeof(minim_engine_params), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Creates an engine and allocates its KV cache. Errors: INVALID, OUT_OF_MEMORY and OUT_OF_DEVICE_MEMORY
 * (they name the context, or the requests, that would fit; only for sizes that were given: sizes that are
 * 0 become what fits, as minim_engine_state says). */
MINIM_API MINIM_MUST_CHECK minim_status minim_engine_create(minim_model* model,
                                                            const minim_engine_params* params,
                                                            minim_engine** out, minim_error* err);
/* Ends running requests (MINIM_FINISH_STOPPED). Request handles stay valid. A callback on the engine's thread may call it too: it
 * returns at once then, and the engine ends after the callback has returned, with the last calls of `notify` and of the log. */
MINIM_API void minim_engine_free(minim_engine* engine);

/* Refuses new requests from now on, and waits until the others are done, at most timeout_ms (negative:
 * without limit). Sets *done to 1 if they are, else to 0. */
MINIM_API MINIM_MUST_CHECK minim_status minim_engine_drain(minim_engine* engine, int64_t timeout_ms,
                                                           int32_t* done, minim_error* err);

typedef struct minim_engine_state {
    uint32_t size;
    uint32_t reserved;
    uint64_t n_waiting;
    uint64_t n_running;
    uint64_t n_steps;        /* since the engine was created, as the next two */
    uint64_t n_evaluated;    /* tokens */
    uint64_t n_preempted;    /* times that a request was preempted */
    uint64_t n_pages;        /* of 64 tokens each */
    uint64_t n_pages_held;   /* owned by requests or the prefix cache */
    uint64_t n_pages_cached; /* the part of them in the prefix cache */
    /* The sizes that were taken: tokens of one request, requests at once, rows of a step. */
    uint64_t max_context;
    uint64_t n_requests;
    uint64_t n_batch;
    /* The sizes as a sentence, with the bytes of the KV cache and the memory that a longer context would
       need: for a log. Belongs to the engine. */
    const char* sizes;
    /* Prompt states in host memory (host_cache_bytes of the params): their bytes now, their pages now, and the
       pages that have gone there and have come back since the engine was created. */
    uint64_t host_cache_bytes;
    uint64_t n_host_pages;
    uint64_t n_host_stored;
    uint64_t n_host_restored;
} minim_engine_state;
#define MINIM_ENGINE_STATE_INIT \
    { sizeof(minim_engine_state), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0, 0, 0, 0 }

MINIM_API MINIM_MUST_CHECK minim_status minim_engine_get_state(const minim_engine* engine,
                                                               minim_engine_state* out, minim_error* err);

/*
 * Write the prefix cache (tokens and KV cache of ended requests, also those in host memory) to a file, and
 * add such a file to the cache of an engine of the same model, the most recently used first, as far as there
 * is room. *n_pages, which may
 * be NULL, is the number of pages of at most 64 tokens that were read. Requests wait meanwhile. The
 * permissions of the file are as in minim_session_save. Errors: those of minim_session_save and
 * minim_session_restore; INVALID (the engine has no prefix cache).
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_engine_save_prefixes(minim_engine* engine, const char* path,
                                                                   minim_cancel* cancel, minim_error* err);
MINIM_API MINIM_MUST_CHECK minim_status minim_engine_load_prefixes(minim_engine* engine, const char* path,
                                                                   minim_cancel* cancel, uint64_t* n_pages,
                                                                   minim_error* err);

/*
 * The same for one conversation. minim_engine_save_prefix writes the longest prefix of `tokens` that is
 * cached; *n_tokens, which may be NULL, is its length. minim_engine_load_prefix reads such a file, for which
 * other prefixes make room, and returns the tokens that are cached then: fewer than the file has, also none,
 * if running requests leave no room. minim_engine_erase_prefix drops what only `tokens` have in the prefix
 * cache, not what other prefixes begin with; *n_tokens, which may be NULL, is the number of tokens dropped.
 * Errors: as above; FORMAT (a file of minim_engine_save_prefixes with several prefixes).
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_engine_save_prefix(minim_engine* engine, const int32_t* tokens,
                                                                 size_t count, const char* path,
                                                                 minim_cancel* cancel, uint64_t* n_tokens,
                                                                 minim_error* err);
MINIM_API MINIM_MUST_CHECK minim_status minim_engine_load_prefix(minim_engine* engine, const char* path,
                                                                 minim_cancel* cancel, minim_tokens** out,
                                                                 minim_error* err);
MINIM_API MINIM_MUST_CHECK minim_status minim_engine_erase_prefix(minim_engine* engine, const int32_t* tokens,
                                                                  size_t count, uint64_t* n_tokens,
                                                                  minim_error* err);

/* Called on the engine's thread if a request has something new. It must not block, and must not call this
 * library except minim_request_cancel and minim_request_free. Exceptions from it are dropped. */
typedef void (*minim_notify_fn)(void* user_data);

/* A `notify` for event loops (epoll, libuv, asyncio): wakes a loop that waits for a descriptor, without
 * running its code on the engine's thread. `notify_user_data` is the descriptor itself,
 * (void*)(intptr_t)descriptor: an eventfd, or a non-blocking pipe or socket, which gets 8 bytes, the
 * number 1. One that is full is left as it is. It must stay open until the requests are released. */
MINIM_API void minim_notify_fd(void* user_data);

typedef struct minim_request_params {
    uint32_t size;
    uint32_t flags;   /* none defined: 0 */
    int32_t priority; /* higher ones start first, and others are preempted for them */
    int32_t reserved;
    int64_t timeout_ms;     /* time after which the answer is ended; 0: none */
    minim_notify_fn notify; /* may be NULL */
    void* notify_user_data;
} minim_request_params;
#define MINIM_REQUEST_PARAMS_INIT \
    { sizeof(minim_request_params), 0, 0, 0, 0, NULL, NULL }

/*
 * Submits a prompt and returns at once. `sampling` (copied) and `params` may be NULL. With the option
 * prompt_logprobs, minim_request_next first returns the tokens of the prompt after the first one, or from the
 * index prompt_logprobs_from on, with their log-probabilities; only tokens before these come from cached
 * prefixes. Errors: INVALID (an empty prompt, an id or option out of range, a drained engine), CONTEXT_FULL
 * (the prompt can never fit).
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_engine_submit(minim_engine* engine,
                                                            const minim_sampling* sampling,
                                                            const int32_t* prompt, size_t count,
                                                            const minim_request_params* params,
                                                            minim_request** out, minim_error* err);

/*
 * Submits `n_answers` requests (1 to 1024) for answers to one prompt, all or none, and returns at once. They
 * share the KV cache of the prompt, which is evaluated once, except its last token. With a seed, answer i has
 * the seed plus i. `params` apply to each request; `notify` is called for each. `out` has room for n_answers
 * handles; release each with minim_request_free. Errors: those of minim_engine_submit; every entry of `out`
 * is then NULL.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_engine_submit_n(
    minim_engine* engine, const minim_sampling* sampling, const int32_t* prompt, size_t count,
    const minim_request_params* params, size_t n_answers, minim_request** out, minim_error* err);

enum minim_next { MINIM_NEXT_END = 0, MINIM_NEXT_TOKEN = 1, MINIM_NEXT_PENDING = 2 };

/*
 * Waits for the next token of the answer, at most timeout_ms (0: not at all, negative: without limit). Sets
 * *next to MINIM_NEXT_TOKEN and fills *token, valid until the next call for this request; or to
 * MINIM_NEXT_END after the last one; or to MINIM_NEXT_PENDING after the timeout. Errors: the error that ended
 * the request, if any.
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_request_next(minim_request* request, int64_t timeout_ms,
                                                           minim_token* token, int32_t* next,
                                                           minim_error* err);

/* Ends the answer after the tokens reported so far (MINIM_FINISH_STOPPED). If `notify` is running on
 * another thread, waits until it returns: the caller must not have a lock that `notify` takes. */
MINIM_API void minim_request_cancel(minim_request* request);

typedef struct minim_request_state {
    uint32_t size;
    int32_t finish;     /* MINIM_FINISH_*; NONE until the last token has been read */
    int32_t stop_token; /* the token that ended it, or -1 */
    uint32_t reserved;
    uint64_t n_prompt;
    uint64_t n_cached;    /* tokens of the prompt that were in the prefix cache */
    uint64_t n_generated; /* tokens, read or still to be read */
    uint64_t n_preempted; /* how often it was preempted */
    uint64_t queue_us;    /* microseconds until it was started */
    uint64_t prompt_us;   /* from then until the first token */
    uint64_t generate_us; /* from the first token to the last */
    uint64_t seed;
    int32_t stop_text; /* as in minim_generate_result */
    uint32_t reserved2;
    uint64_t n_reasoning;   /* tokens generated as reasoning */
    uint64_t n_prompt_done; /* tokens of the prompt that are evaluated or were cached */
    float stop_logprob;     /* as in minim_generate_result, like the next two */
    uint32_t reserved3;
    uint64_t n_drafted;
    uint64_t n_drafts_accepted;
} minim_request_state;
#define MINIM_REQUEST_STATE_INIT \
    { sizeof(minim_request_state), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

MINIM_API MINIM_MUST_CHECK minim_status minim_request_get_state(const minim_request* request,
                                                                minim_request_state* out, minim_error* err);
/* Cancels the request if it has not ended, waits as minim_request_cancel does, and releases it. `notify`
 * is not called after this has returned. */
MINIM_API void minim_request_free(minim_request* request);

/* --------------------------------------------------------------------------------------------- formats */

typedef struct minim_format_info {
    uint32_t size;
    int32_t gguf_type;   /* the type's number in GGUF files; -1: only in safetensors folders */
    int32_t block_elems; /* elements of a block, which share their scales */
    int32_t block_bytes;
    int32_t row_header_bytes; /* one scale for the whole row, before its blocks; 0 for most formats */
    int32_t is_weight;        /* 1 if minim_format_decode decodes it */
    const char* name;         /* static text */
} minim_format_info;
#define MINIM_FORMAT_INFO_INIT \
    { sizeof(minim_format_info), 0, 0, 0, 0, 0, NULL }

MINIM_API size_t minim_format_count(void);
MINIM_API MINIM_MUST_CHECK minim_status minim_format_get_info(size_t index, minim_format_info* out,
                                                              minim_error* err);

/*
 * Decodes one row of `count` elements, including its header if the format has one. `name`: as in model files,
 * "Q4_K". Errors: INVALID (count is not a multiple of the block, or row_length is not the size of the row in
 * bytes).
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_format_decode(const char* name, const void* row,
                                                            size_t row_length, size_t count, float* out,
                                                            minim_error* err);

/*
 * Encodes `n_rows` rows of `columns` weights, x [n_rows, columns], in the format `name`, with the smallest
 * weighted square error that a search finds. Rows follow each other without gaps: row i begins at byte
 * i * (row_header_bytes + columns / block_elems * block_bytes) of `out`, which has `capacity` bytes. What
 * follows the last row is left as it is. minim_format_decode decodes the rows.
 *
 * `importance` [columns]: the weight of each column's square errors, 0 or more; mean squares of the layer's
 * inputs, for example. Only ratios matter. NULL: all columns count alike. IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S
 * and IQ3_XXS are of little use without importance.
 *
 * NVFP4 blocks hold magnitudes up to 2688: divide a matrix by its largest magnitude / 2688 before, and store
 * that factor apart, as model files do.
 *
 * The bytes depend on the arguments alone, not on the machine or on how many rows a call has. The work is done
 * on the caller's thread, and several threads may encode at once. It takes 0.01 to 1 us a weight.
 *
 * Errors: UNSUPPORTED (an unknown format, or one without an encoder: integers, F64, TQ1_0, TQ2_0, Q1_0, Q2_0,
 * IQ1_KT to IQ4_KT, formats of safetensors folders); INVALID (columns is not a multiple of the block, capacity
 * is too small, a number is NaN or infinite or exceeds what the format's scales hold, importance is negative).
 */
MINIM_API MINIM_MUST_CHECK minim_status minim_format_encode(const char* name, const float* x, size_t n_rows,
                                                            size_t columns, const float* importance,
                                                            void* out, size_t capacity, minim_error* err);

#ifdef __cplusplus
}
#endif

#endif /* MINIM_H */
